/* A record and its state share a line: filled and persisted, then marked and persisted. The line is written back twice
 * in each operation, and stored to before each.
 *
 * Clean: neither write-back is redundant. After the first the record is durable and not marked, which says that it
 * does not count yet; the mark goes in by one store.
 *
 * clean
 */
#include "../pm.h"

enum { RECORDS = 4 };

struct record {
    PM_ALIGNED uint64_t value;
    uint64_t inverse;
    uint64_t state; /* 0: free, 1: complete */
};

struct pool {
    struct record records[RECORDS];
};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    struct record *record = &pool->records[i];
    record->value = 15 + (uint64_t)i;
    record->inverse = ~record->value;
    pm_persist(record, sizeof *record);
    record->state = 1;
    pm_persist(record, sizeof *record);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < RECORDS; i++) {
        struct record *record = &pool->records[i];
        if (record->state == 0)
            continue;
        if (record->value != 15 + i || record->inverse != ~record->value)
            pm_fail("record %lu is complete and damaged", i);
        pm_print("%lu\n", record->value);
    }
}

PM_MAIN(RECORDS)

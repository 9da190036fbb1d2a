/* A log of two-word records: four records share a line.
 *
 * Wasteful: the fields are written back one by one, which flushes their common line twice before the fence.
 * Right: one write-back after the last store.
 * Both are crash consistent: the number of records is stored after the fence.
 *
 * bug: double-flush @ second-flush
 * explore: no
 * needs: clflushopt
 */
#include "../pm.h"

enum { RECORDS = 4 };

struct record {
    uint64_t key;
    uint64_t value;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t count;
    PM_ALIGNED struct record records[RECORDS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct record *record = &pool->records[i];
    record->key = 60 + (uint64_t)i;
    record->value = 2 * record->key;
#ifdef BUG
    pm_flush(&record->key, sizeof record->key);
    pm_flush(&record->value, sizeof record->value); /* @second-flush */
#else
    pm_flush(record, sizeof *record);
#endif
    pm_fence();
    pool->count = (uint64_t)i + 1;
    pm_persist(&pool->count, sizeof pool->count);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count > RECORDS)
        pm_fail("%lu records", pool->count);
    for (uint64_t i = 0; i < pool->count; i++) {
        if (pool->records[i].key != 60 + i || pool->records[i].value != 2 * (60 + i))
            pm_fail("record %lu is damaged", i);
        pm_print("%lu: %lu\n", pool->records[i].key, pool->records[i].value);
    }
}

PM_MAIN(RECORDS)

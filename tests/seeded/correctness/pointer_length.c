/* A table of records that are two lines long.
 *
 * Wrong: the length given is that of the pointer, eight bytes, so only the record's first line is written back. The
 * record is then declared valid with its second half still in the cache.
 * Right: the length is the record's.
 *
 * bug: missing-flush @ tail-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ tail-store
 */
#include "../pm.h"

enum { RECORDS = 3 };

struct record {
    PM_ALIGNED char name[64];
    PM_ALIGNED uint64_t price;
    uint64_t stock;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t valid; /* one bit a record */
    struct record records[RECORDS];
};

static const char names[RECORDS][64] = {"anvil", "bellows", "chisel"};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct record *record = &pool->records[i];
    memcpy(record->name, names[i], sizeof record->name);
    record->price = 250 + (uint64_t)i; /* @tail-store */
    record->stock = 9 - (uint64_t)i;   /* @tail-store */
#ifdef BUG
    pm_persist(record, sizeof record);
#else
    pm_persist(record, sizeof *record);
#endif
    pool->valid |= 1ULL << i;
    pm_persist(&pool->valid, sizeof pool->valid);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < RECORDS; i++) {
        struct record *record = &pool->records[i];
        if (!(pool->valid >> i & 1))
            continue;
        if (memcmp(record->name, names[i], sizeof record->name) != 0 || record->price != 250 + i ||
            record->stock != 9 - i)
            pm_fail("record %lu is valid and incomplete", i);
        pm_print("%s: %lu, %lu left\n", record->name, record->price, record->stock);
    }
}

PM_MAIN(RECORDS)

/* A ring for machines whose caches survive a power failure: entry, then number, no write-backs and no fences.
 *
 * Clean in the eADR domain: a store is durable when it leaves the store buffer, and stores leave it in order. (Under
 * ADR this program is wrong.)
 *
 * clean
 * domain: eadr
 */
#include "../pm.h"

enum { ENTRIES = 4 };

struct entry {
    PM_ALIGNED uint64_t value;
    uint64_t square;
};

struct pool {
    PM_ALIGNED uint64_t count;
    struct entry entries[ENTRIES];
};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    struct entry *entry = &pool->entries[i];
    entry->value = 10 + (uint64_t)i;
    entry->square = entry->value * entry->value;
    pm_compiler_barrier();
    pool->count = (uint64_t)i + 1;
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count > ENTRIES)
        pm_fail("%lu entries", pool->count);
    for (uint64_t i = 0; i < pool->count; i++) {
        struct entry *entry = &pool->entries[i];
        if (entry->value != 10 + i || entry->square != entry->value * entry->value)
            pm_fail("entry %lu is counted and not there", i);
        pm_print("%lu\n", entry->value);
    }
}

PM_MAIN(ENTRIES)

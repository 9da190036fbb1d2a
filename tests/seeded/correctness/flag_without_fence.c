/* An append-only ring: entries, and the number of valid ones in a line of its own.
 *
 * Wrong: the entry is written back, but no fence stands between that and the store of the number. The fence that
 * follows completes both, so at the end all is durable; but before it the line with the number may be evicted while
 * the write-back of the entry has not happened. A crash then leaves an entry counted and not there.
 * Right: a fence completes the entry's write-back first.
 *
 * check: none
 * assert: not-ordered @ entry-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ entry-store
 * needs: clflushopt
 */
#include "../pm.h"

enum { ENTRIES = 4 };

struct entry {
    PM_ALIGNED uint64_t value;
    uint64_t square;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t count;
    struct entry entries[ENTRIES];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct entry *entry = &pool->entries[i];
    uint64_t value = 10 + (uint64_t)i;
    *entry = (struct entry){.value = value, .square = value * value}; /* @entry-store */
    pm_flush(entry, sizeof *entry);
#ifndef BUG
    pm_fence();
#endif
    pool->count = (uint64_t)i + 1;
    PM_ASSERT_ORDERED(entry, sizeof *entry, &pool->count, sizeof pool->count);
    pm_persist(&pool->count, sizeof pool->count);
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

/* A list of entries that is searched from its beginning, with a count of the comparisons made.
 *
 * Wasteful: the count lies in the pool. It is stored to at every comparison and never written back, and nobody reads it
 * after a restart.
 * Right: it is an ordinary variable.
 * Both are crash consistent.
 *
 * bug: transient-data @ comparisons
 * bug: missing-flush @ comparisons
 * explore: no
 */
#include "../pm.h"

enum { ENTRIES = 7 };

struct entry {
    uint64_t key, value;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t length;
    PM_ALIGNED struct entry entries[ENTRIES];
#ifdef BUG
    PM_ALIGNED uint64_t comparisons;
#endif
};

#ifndef BUG
static uint64_t comparisons;
#endif

static void count_comparison(struct pool *pool)
{
#ifdef BUG
    pool->comparisons++; /* @comparisons */
#else
    (void)pool;
    comparisons++;
#endif
    /* One store each: the compiler would add them up. */
    pm_compiler_barrier();
}

static struct entry *find(struct pool *pool, uint64_t key)
{
    for (uint64_t i = 0; i < pool->length; i++) {
        count_comparison(pool);
        if (pool->entries[i].key == key)
            return &pool->entries[i];
    }
    return NULL;
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    uint64_t key = 100 + (uint64_t)i;
    if (!find(pool, key)) {
        struct entry *entry = &pool->entries[pool->length];
        *entry = (struct entry){key, key * key};
        pm_persist(entry, sizeof *entry);
        pool->length++;
        pm_persist(&pool->length, sizeof pool->length);
    }
    for (uint64_t known = 100; known <= key; known++)
        if (!find(pool, known))
            pm_fail("%lu is not there", known);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < pool->length; i++)
        pm_print("%lu: %lu\n", pool->entries[i].key, pool->entries[i].value);
}

PM_MAIN(ENTRIES)

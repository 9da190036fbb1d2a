/* A hash set that keeps the number of its members beside the table.
 *
 * Clean: the number is stored on every insertion and never written back. Before the first, the pool is durably marked
 * dirty; whoever opens a dirty pool counts the members, persists their number, and only then clears the mark. A member
 * is one aligned word.
 *
 * clean
 * allow: missing-flush @ count
 * allow: transient-data @ count
 */
#include "../pm.h"

enum { BUCKETS = 8, MEMBERS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t dirty;
    PM_ALIGNED uint64_t count;
    PM_ALIGNED uint64_t buckets[BUCKETS]; /* 0: free */
};

static uint64_t members(struct pool *pool)
{
    uint64_t count = 0;
    for (int i = 0; i < BUCKETS; i++)
        count += pool->buckets[i] != 0;
    return count;
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    if (pool->dirty) {
        pool->count = members(pool);
        pm_persist(&pool->count, sizeof pool->count);
        pool->dirty = 0;
        pm_persist(&pool->dirty, sizeof pool->dirty);
    }
    PM_EXCLUDE(&pool->count, sizeof pool->count);
}

static void operation(struct pool *pool, int i)
{
    if (!pool->dirty) {
        pool->dirty = 1;
        pm_persist(&pool->dirty, sizeof pool->dirty);
    }
    uint64_t key = 3 + 8 * (uint64_t)i + (uint64_t)i % 2, at = key % BUCKETS;
    while (pool->buckets[at] != 0)
        at = (at + 1) % BUCKETS;
    pool->buckets[at] = key;
    pm_persist(&pool->buckets[at], sizeof key);
    pool->count++; /* @count */
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count != members(pool))
        pm_fail("%lu members are counted, %lu are there", pool->count, members(pool));
    for (int i = 0; i < BUCKETS; i++)
        if (pool->buckets[i] != 0)
            pm_print("%lu\n", pool->buckets[i]);
}

PM_MAIN(MEMBERS)

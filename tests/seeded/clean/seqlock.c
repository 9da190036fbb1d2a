/* A pair of numbers under a sequence lock in persistent memory; a crash in the middle leaves the sequence odd.
 *
 * Clean: an undo copy is durable before the sequence is odd, the pair before it is even again. Recovery restores the copy
 * if it is odd. Readers would wait for an even number for ever; recovery does not.
 *
 * clean
 */
#include "../pm.h"

enum { CHANGES = 4 };

struct pool {
    PM_ALIGNED uint64_t sequence;
    PM_ALIGNED uint64_t first;
    PM_ALIGNED uint64_t second;
    PM_ALIGNED uint64_t old[2];
};

static void set(uint64_t *to, uint64_t value)
{
    *to = value;
    pm_persist(to, sizeof *to);
}

static void open_pool(struct pool *pool)
{
    if (pool->sequence % 2 == 0)
        return;
    pool->first = pool->old[0];
    pool->second = pool->old[1];
    pm_flush(&pool->first, sizeof pool->first);
    pm_flush(&pool->second, sizeof pool->second);
    pm_fence();
    set(&pool->sequence, pool->sequence + 1);
}

static void operation(struct pool *pool, int i)
{
    pool->old[0] = pool->first;
    pool->old[1] = pool->second;
    pm_persist(pool->old, sizeof pool->old);
    set(&pool->sequence, pool->sequence + 1);
    pool->first = (uint64_t)i + 1;
    pool->second = ((uint64_t)i + 1) * 7;
    pm_flush(&pool->first, sizeof pool->first);
    pm_flush(&pool->second, sizeof pool->second);
    pm_fence();
    set(&pool->sequence, pool->sequence + 1);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    while (*(volatile uint64_t *)&pool->sequence % 2 != 0)
        ;
    if (pool->second != pool->first * 7)
        pm_fail("the pair is torn");
    pm_print("pair %d\n", (int)pool->first);
}

PM_MAIN(CHANGES)

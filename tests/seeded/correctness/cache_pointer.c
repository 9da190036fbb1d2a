/* A sum over the pool, which recovery computes once and remembers.
 *
 * Wrong: it remembers *where* in ordinary memory the sum is, and marks that as done in the pool. If recovery itself is cut short
 * after that, the next recovery finds the mark and follows the pointer of a process that is gone. One crash is survived; two are not.
 * Right: it remembers the sum.
 *
 * check: none
 * explore: yes
 * symptom: signal
 * explored: recovery-crash @ remember
 * crashes: 2
 */
#include "../pm.h"

enum { VALUES = 3 };

struct pool {
    PM_ALIGNED uint64_t values[VALUES];
    PM_ALIGNED uint64_t cache; /* the sum; wrong: its address */
    uint64_t is_cached;
};

static uint64_t sum_of(struct pool *pool)
{
    uint64_t sum = 0;
    for (int i = 0; i < VALUES; i++)
        sum += pool->values[i];
    return sum;
}

static void open_pool(struct pool *pool)
{
    if (!pm_job.check) {
        /* What is about to change is not remembered. */
        pool->is_cached = 0;
        pm_persist(&pool->is_cached, sizeof pool->is_cached);
    }
}

static void operation(struct pool *pool, int i)
{
    pool->values[i] = 10 + (uint64_t)i;
    pm_persist(&pool->values[i], sizeof pool->values[i]);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    uint64_t *own = malloc(sizeof *own);
    if (!own)
        _exit(2);
    *own = sum_of(pool);
    if (!pool->is_cached) {
#ifdef BUG
        pool->cache = (uint64_t)own;
#else
        pool->cache = *own;
#endif
        pm_compiler_barrier();
        pool->is_cached = 1; /* @remember */
        pm_persist(&pool->cache, 2 * sizeof(uint64_t)); /* @remember */
    }
#ifdef BUG
    uint64_t sum = *(uint64_t *)pool->cache;
#else
    uint64_t sum = pool->cache;
#endif
    pm_print("%lu\n", sum);
    pool->is_cached = 0; /* @remember */
    pm_persist(&pool->is_cached, sizeof pool->is_cached); /* @remember */
}

PM_MAIN(VALUES)

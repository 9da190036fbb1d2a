/* A list of samples and their sum. A mark says that the sum may not fit the samples; recovery then adds them up.
 *
 * Wrong: the mark is set and not made persistent, and is overwritten when the sum fits again. So it never protects
 * anything: after a crash between sample and sum there may be no mark.
 * Right: the mark is durable before the list changes.
 *
 * options: --enable overwritten-unpersisted
 * bug: overwritten-unpersisted @ unmark
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ mark
 */
#include "../pm.h"

enum { SAMPLES = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t marked;
    PM_ALIGNED uint64_t sum;
    PM_ALIGNED uint64_t length;
    PM_ALIGNED uint64_t samples[SAMPLES];
};

static uint64_t add_up(const struct pool *pool)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < pool->length; i++)
        sum += pool->samples[i];
    return sum;
}

static void store_sum(struct pool *pool, uint64_t sum)
{
    pool->sum = sum;
    pm_persist(&pool->sum, sizeof pool->sum);
    pool->marked = 0; /* @unmark */
    pm_persist(&pool->marked, sizeof pool->marked);
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    if (pool->marked)
        store_sum(pool, add_up(pool));
}

static void operation(struct pool *pool, int i)
{
    uint64_t *sample = &pool->samples[pool->length];
    pool->marked = 1; /* @mark */
#ifndef BUG
    pm_persist(&pool->marked, sizeof pool->marked);
#endif
    *sample = 20 + (uint64_t)i;
    pm_persist(sample, sizeof *sample);
    pool->length++;
    pm_persist(&pool->length, sizeof pool->length);
    store_sum(pool, pool->sum + *sample);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->sum != add_up(pool))
        pm_fail("the sum of %lu samples is not %lu", pool->length, pool->sum);
    for (uint64_t i = 0; i < pool->length; i++)
        pm_print("%lu\n", pool->samples[i]);
    pm_print("sum %lu\n", pool->sum);
}

PM_MAIN(SAMPLES)

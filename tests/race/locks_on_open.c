/* Counters with a spin lock each; the locks lie in the pool, some in the line of their counter.
 *
 * Clean: opening initialises all locks, so it does not matter that one was held, and evicted, when the power failed.
 *
 * clean
 * allow: missing-flush @ lock
 * allow: transient-data @ lock
 * allow: overwritten-unpersisted @ lock
 * published
 */
#include "race.h"

enum { COUNTERS = 3, THREADS = 3, ROUNDS = 4 };

struct counter {
    PM_ALIGNED uint32_t lock;
    uint64_t value;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct counter counters[COUNTERS];
    struct {
        PM_ALIGNED uint64_t sum;
    } sums[THREADS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    for (int i = 0; i < COUNTERS; i++)
        pm_store(&pool->counters[i].lock, 0); /* @lock */
}

static void lock(struct counter *counter)
{
    while (__atomic_exchange_n(&counter->lock, 1, __ATOMIC_ACQUIRE)) /* @lock */
        _mm_pause();
}

static void unlock(struct counter *counter)
{
    pm_store(&counter->lock, 0); /* @lock */
}

static void round_of(struct pool *pool, int index, int i)
{
    struct counter *counter = &pool->counters[i % COUNTERS];
    lock(counter);
    uint64_t value = counter->value + 5;
    counter->value = value;
    pm_persist_it(counter->value);
    unlock(counter);
    pool->sums[index].sum = value;
    pm_persist_it(pool->sums[index]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < ROUNDS; i++)
        round_of(pool, index, i + index);
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, thread);
}

static void more(struct pool *pool)
{
    for (int i = 0; i < COUNTERS; i++)
        round_of(pool, 0, i);
}

static void check(struct pool *pool)
{
    uint64_t largest = 0;
    for (int i = 0; i < COUNTERS; i++) {
        lock(&pool->counters[i]);
        if (pool->counters[i].value % 5 != 0)
            pm_fail("counter %d is %lu", i, pool->counters[i].value);
        if (pool->counters[i].value > largest)
            largest = pool->counters[i].value;
        pm_print("%lu\n", pool->counters[i].value);
        unlock(&pool->counters[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        if (pool->sums[i].sum > largest)
            pm_fail("thread %d has seen %lu", i, pool->sums[i].sum);
    }
}

RACE_MAIN

/* Counters with a spin lock each. The locks lie in the pool.
 *
 * Clean: opening initialises all locks, so it does not matter that one was held, and evicted, when the power failed.
 * Nothing writes them back.
 *
 * clean
 * allow: missing-flush @ lock
 * allow: transient-data @ lock
 */
#include "../pm.h"

enum { COUNTERS = 2, OPERATIONS = 4 };

struct counter {
    PM_ALIGNED uint32_t lock;
    PM_ALIGNED uint64_t value;
};

struct pool {
    struct counter counters[COUNTERS];
};

static void lock(struct counter *counter)
{
    while (__atomic_exchange_n(&counter->lock, 1, __ATOMIC_ACQUIRE)) /* @lock */
        _mm_pause();
}

static void unlock(struct counter *counter)
{
    __atomic_store_n(&counter->lock, 0, __ATOMIC_RELEASE); /* @lock */
}

static void open_pool(struct pool *pool)
{
    for (int i = 0; i < COUNTERS; i++) {
        PM_EXCLUDE(&pool->counters[i].lock, sizeof(uint32_t));
        __atomic_store_n(&pool->counters[i].lock, 0, __ATOMIC_RELAXED); /* @lock */
    }
}

static void operation(struct pool *pool, int i)
{
    struct counter *counter = &pool->counters[i % COUNTERS];
    lock(counter);
    counter->value += 5;
    pm_persist(&counter->value, sizeof counter->value);
    unlock(counter);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < COUNTERS; i++) {
        lock(&pool->counters[i]);
        if (pool->counters[i].value % 5 != 0)
            pm_fail("counter %d is %lu", i, pool->counters[i].value);
        pm_print("%lu\n", pool->counters[i].value);
        unlock(&pool->counters[i]);
    }
}

PM_MAIN(OPERATIONS)

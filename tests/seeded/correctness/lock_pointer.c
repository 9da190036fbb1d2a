/* Counters with a lock each, which is allocated on the heap; the counter leads to it.
 *
 * Wrong: the pointer is kept in the pool as if it outlived the process. A counter that has one uses it, so the next process
 * locks at an address that was another's.
 * Right: opening gives every counter a lock of this process before anybody uses it.
 *
 * The bug shows whenever the pool is opened again, with or without a crash. Nothing here asks for a certain address: that the
 * next process has another heap is the kernel's doing.
 *
 * check: none
 * explore: yes
 * symptom: signal
 * explored: recovery-crash @ keep
 * normal: signal
 */
#include "../pm.h"

enum { COUNTERS = 2, OPERATIONS = 4 };

struct counter {
    PM_ALIGNED uint64_t value;
    PM_ALIGNED uint32_t *lock;
};

struct pool {
    struct counter counters[COUNTERS];
};

static uint32_t *new_lock(void)
{
    uint32_t *lock = calloc(1, sizeof *lock);
    if (!lock)
        _exit(2);
    return lock;
}

static void open_pool(struct pool *pool)
{
    for (int i = 0; i < COUNTERS; i++) {
        struct counter *counter = &pool->counters[i];
        uint32_t *lock = new_lock();
#ifdef BUG
        if (counter->lock)
            continue;
#endif
        counter->lock = lock; /* @keep */
        pm_persist(&counter->lock, sizeof counter->lock); /* @keep */
    }
}

static void lock(struct counter *counter)
{
    while (__atomic_exchange_n(counter->lock, 1, __ATOMIC_ACQUIRE))
        _mm_pause();
}

static void unlock(struct counter *counter)
{
    __atomic_store_n(counter->lock, 0, __ATOMIC_RELEASE);
}

static void operation(struct pool *pool, int i)
{
    struct counter *counter = &pool->counters[i % COUNTERS];
    lock(counter);
    counter->value += 5;
    pm_persist(&counter->value, sizeof counter->value); /* @keep */
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

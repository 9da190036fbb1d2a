/* A counter in persistent memory, guarded by a spin lock that lies in persistent memory too.
 *
 * Wrong: nobody resets the lock when the pool is opened. Nothing writes it back on purpose, but its line may be
 * evicted at any time, also while the lock is held. After a crash in that moment the next process waits for a holder
 * that is gone.
 * Right: opening initialises the lock. (Its own missing write-back does no harm.)
 *
 * check: none
 * allow: missing-flush @ lock
 * allow: transient-data @ lock
 * explore: yes
 * symptom: hang
 * explored: recovery-hang @ lock|held
 */
#include "../pm.h"

enum { OPERATIONS = 3 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint32_t lock;
    PM_ALIGNED uint64_t counter;
};

static void lock(struct pool *pool)
{
    while (__atomic_exchange_n(&pool->lock, 1, __ATOMIC_ACQUIRE)) /* @lock */
        _mm_pause();
}

static void unlock(struct pool *pool)
{
    __atomic_store_n(&pool->lock, 0, __ATOMIC_RELEASE); /* @lock */
}

static void open_pool(struct pool *pool)
{
    PM_EXCLUDE(&pool->lock, sizeof pool->lock);
    pm_create(&pool->magic);
#ifndef BUG
    __atomic_store_n(&pool->lock, 0, __ATOMIC_RELAXED); /* @lock */
#endif
}

static void operation(struct pool *pool, int i)
{
    lock(pool);
    pool->counter += 3;
    pm_persist(&pool->counter, sizeof pool->counter); /* @held */
    unlock(pool);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    lock(pool);
    if (pool->counter % 3 != 0)
        pm_fail("the counter is %lu", pool->counter);
    pm_print("%lu\n", pool->counter); /* @held */
    unlock(pool);
}

PM_MAIN(OPERATIONS)

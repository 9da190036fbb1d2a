/* A table of prices under a read-write lock of the C library that lies in the pool.
 *
 * Wrong: the lock is initialised when the pool is made, and never again. A crash while somebody reads, and the line
 * was evicted, leaves a reader that never goes. Reading still works afterwards; the first change does not end.
 * Right: opening initialises the lock.
 *
 * bug: persistent-lock
 * verdict: confirmed
 * continue
 * allow: missing-flush @ store|unlock
 * allow: transient-data @ store|unlock
 * published
 */
#include "race.h"

enum { PRICES = 3, READERS = 2, CHANGES = 4, READS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED pthread_rwlock_t lock;
    struct {
        PM_ALIGNED uint64_t price;
    } prices[PRICES];
};

static void open_pool(struct pool *pool)
{
#ifdef BUG
    if (pool->magic == PM_MAGIC)
        return;
#endif
    pthread_rwlock_init(&pool->lock, NULL);
    pm_persist_it(pool->lock);
    pm_create(&pool->magic);
}

static void change(struct pool *pool, int i)
{
    pthread_rwlock_wrlock(&pool->lock); /* @store */
    pool->prices[i % PRICES].price += 3;
    pm_persist_it(pool->prices[i % PRICES]);
    pthread_rwlock_unlock(&pool->lock); /* @unlock */
}

static uint64_t sum(struct pool *pool)
{
    uint64_t sum = 0;
    pthread_rwlock_rdlock(&pool->lock); /* @store */
    pm_window_evicting(&pool->lock);
    for (int i = 0; i < PRICES; i++)
        sum += pool->prices[i].price;
    pthread_rwlock_unlock(&pool->lock); /* @unlock */
    return sum;
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < CHANGES && index == READERS; i++)
        change(pool, i);
    for (int i = 0; i < READS && index < READERS; i++) {
        if (sum(pool) % 3 != 0)
            pm_fail("the sum is %lu", sum(pool));
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, READERS + 1, thread);
}

static void more(struct pool *pool)
{
    change(pool, 0);
}

static void check(struct pool *pool)
{
    pm_print("%lu\n", sum(pool));
}

RACE_MAIN

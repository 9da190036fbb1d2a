/* A counter that one thread increments while others take numbers from it. (memcached-pmem, bug 9 of PMRace.)
 *
 * Wrong: the counter is made durable after its lock is released. In between another thread reads it, writes a receipt
 * with the number after it, and makes that durable. After a crash there is a receipt for a number that the counter
 * has not reached.
 * Right: the counter is durable before its lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 */
#include "race.h"

enum { INCREMENTS = 6, RECEIPTS = 6, CUSTOMERS = 2 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t counter;
    struct {
        PM_ALIGNED uint64_t number; /* one more than the counter was; 0: none */
    } receipts[CUSTOMERS][RECEIPTS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void increment(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    pool->counter++; /* @store */
#ifndef BUG
    pm_persist_it(pool->counter);
#endif
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_window();
    pm_persist_it(pool->counter);
#endif
}

static void take(struct pool *pool, int customer, int i)
{
    pthread_mutex_lock(&lock);
    uint64_t number = pool->counter + 1; /* @read */
    pthread_mutex_unlock(&lock);
    pool->receipts[customer][i].number = number; /* @effect */
    pm_persist_it(pool->receipts[customer][i].number);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < INCREMENTS && index == 0; i++)
        increment(pool);
    for (int i = 0; i < RECEIPTS && index > 0; i++)
        take(pool, index - 1, i);
}

static void work(struct pool *pool)
{
    pm_threads(pool, 1 + CUSTOMERS, thread);
}

static void more(struct pool *pool)
{
    increment(pool);
    take(pool, 0, 0);
}

static void check(struct pool *pool)
{
    for (int customer = 0; customer < CUSTOMERS; customer++) {
        for (int i = 0; i < RECEIPTS; i++) {
            uint64_t number = pool->receipts[customer][i].number;
            if (number > pool->counter + 1)
                pm_fail("there is a receipt for %lu, and the counter is at %lu", number, pool->counter);
            pm_print("%lu ", number);
        }
    }
    pm_print("of %lu\n", pool->counter);
}

RACE_MAIN

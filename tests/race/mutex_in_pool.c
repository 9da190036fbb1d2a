/* Accounts with a mutex of the C library each, in the pool.
 *
 * Wrong: the mutexes are initialised when the pool is made, and never again. A crash while one is held, and evicted,
 * leaves it held by a thread that is gone. The next payment into that account does not end.
 * Right: opening initialises all mutexes.
 *
 * bug: persistent-lock
 * verdict: confirmed
 * continue
 * allow: missing-flush @ store|unlock
 * allow: transient-data @ store|unlock
 * published
 */
#include "race.h"

enum { ACCOUNTS = 2, THREADS = 2, PAYMENTS = 4 };

struct account {
    PM_ALIGNED pthread_mutex_t mutex;
    PM_ALIGNED uint64_t money;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct account accounts[ACCOUNTS];
};

static void open_pool(struct pool *pool)
{
#ifdef BUG
    if (pool->magic == PM_MAGIC)
        return;
#endif
    for (int i = 0; i < ACCOUNTS; i++) {
        pthread_mutex_init(&pool->accounts[i].mutex, NULL);
        pm_persist_it(pool->accounts[i].mutex);
    }
    pm_create(&pool->magic);
}

static void pay(struct pool *pool, int i)
{
    struct account *account = &pool->accounts[i];
    pthread_mutex_lock(&account->mutex); /* @store */
    pm_window_evicting(&account->mutex);
    account->money += 10;
    pm_persist_it(account->money);
    pthread_mutex_unlock(&account->mutex); /* @unlock */
}

static void payer(struct pool *pool, int index)
{
    for (int i = 0; i < PAYMENTS; i++)
        pay(pool, (i + index) % ACCOUNTS);
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, payer);
}

static void more(struct pool *pool)
{
    for (int i = 0; i < ACCOUNTS; i++)
        pay(pool, i);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < ACCOUNTS; i++) {
        if (pool->accounts[i].money % 10 != 0)
            pm_fail("account %d holds %lu", i, pool->accounts[i].money);
        pm_print("%lu\n", pool->accounts[i].money);
    }
}

RACE_MAIN

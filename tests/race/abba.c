/* Two accounts with a mutex each; two threads move money, one in each direction. A transfer is a record in a log, and
 * the log is what counts.
 *
 * Wrong: a transfer locks the account that pays first, then the other. Two transfers in opposite directions can each
 * hold one mutex and wait for the other.
 * Right: the account with the smaller number is locked first.
 *
 * bug: deadlock
 * hangs
 */
#include "race.h"

enum { ACCOUNTS = 2, TRANSFERS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED int64_t amount;
    } transfers[ACCOUNTS][TRANSFERS]; /* by account that pays */
};

static pthread_mutex_t mutexes[ACCOUNTS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static int64_t balances[ACCOUNTS];

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    for (int from = 0; from < ACCOUNTS; from++) {
        balances[from] += 100;
        for (int i = 0; i < TRANSFERS; i++) {
            balances[from] -= pool->transfers[from][i].amount;
            balances[1 - from] += pool->transfers[from][i].amount;
        }
    }
}

static void transfer(struct pool *pool, int from, int i)
{
    int first = from, second = 1 - from;
#ifndef BUG
    first = 0;
    second = 1;
#endif
    pthread_mutex_lock(&mutexes[first]); /* @effect */
    pthread_mutex_lock(&mutexes[second]); /* @effect */
    if (pool->transfers[from][i].amount == 0) {
        pool->transfers[from][i].amount = i + 1;
        pm_persist_it(pool->transfers[from][i]);
        balances[from] -= i + 1;
        balances[1 - from] += i + 1;
    }
    pthread_mutex_unlock(&mutexes[second]);
    pthread_mutex_unlock(&mutexes[first]);
}

static void payer(struct pool *pool, int index)
{
    for (int i = 0; i < TRANSFERS; i++)
        transfer(pool, index, i);
}

static void work(struct pool *pool)
{
    pm_threads(pool, ACCOUNTS, payer);
}

static void more(struct pool *pool)
{
    transfer(pool, 1, 0);
}

static void check(struct pool *pool)
{
    (void)pool;
    if (balances[0] + balances[1] != 200)
        pm_fail("money was made");
    pm_print("%ld %ld\n", balances[0], balances[1]);
}

RACE_MAIN

/* Who is at work in the pool, in two words: the number of the worker, and how often somebody has begun since the pool was
 * opened. Workers exclude each other by an ordinary mutex, so that nobody waits for the pair; a tool that looks at the
 * pool reads it. The program says that both are 0 after recovery.
 *
 *     PROG POOL           opens the pool and works
 *     PROG POOL recover   opens it
 *
 * Wrong: opening sets only the first word back. Recovery ends well, and nothing that comes after it fails.
 * Right: it sets both back.
 */
#include "../race.h"
#include <brownout.h>

enum { THREADS = 2, ROUNDS = 3 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t worker;
    uint64_t begun;
    PM_ALIGNED uint64_t done;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    pool->worker = 0;
#ifndef BUG
    pool->begun = 0;
#endif
    pm_persist(&pool->worker, 2 * sizeof pool->worker);
    brownout_sync_var(&pool->worker, 2 * sizeof pool->worker, 0);
}

static void body(struct pool *pool, int index)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        pool->worker = (uint64_t)index + 1;
        pool->begun++; /* here */
        pm_persist(&pool->worker, 2 * sizeof pool->worker);
        pool->done++;
        pm_persist_it(pool->done);
        pool->worker = 0;
        pm_persist_it(pool->worker);
        pthread_mutex_unlock(&mutex);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, body);
    pool->begun = 0;
    pm_persist_it(pool->begun);
}

static void more(struct pool *pool)
{
    body(pool, 0);
}

static void check(struct pool *pool)
{
    pm_print("%lu\n", pool->done);
}

RACE_MAIN

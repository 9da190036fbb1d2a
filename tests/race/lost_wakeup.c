/* One thread writes records, another waits for each of them by a condition variable.
 *
 * Wrong: whether there is something to wait for is asked before the mutex is taken, and not asked again. If the
 * signal comes in between, nobody hears it, and the thread waits for ever.
 * Right: it is asked under the mutex, again and again.
 *
 * bug: deadlock
 * hangs
 */
#include "race.h"

enum { RECORDS = 3 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t value;
    } records[RECORDS], sums[RECORDS];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t written = PTHREAD_COND_INITIALIZER;
static int count; /* how many are written in this run */

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void write_record(struct pool *pool, int i)
{
    pool->records[i].value = (uint64_t)i + 10;
    pm_persist_it(pool->records[i]);
    pthread_mutex_lock(&mutex);
    pm_store(&count, i + 1);
    pthread_cond_signal(&written);
    pthread_mutex_unlock(&mutex);
}

static void wait_for_record(struct pool *pool, int i)
{
#ifdef BUG
    if (pm_load(&count) <= i) {
        pthread_mutex_lock(&mutex);
        pthread_cond_wait(&written, &mutex); /* @effect */
        pthread_mutex_unlock(&mutex);
    }
#else
    pthread_mutex_lock(&mutex);
    while (count <= i)
        pthread_cond_wait(&written, &mutex); /* @effect */
    pthread_mutex_unlock(&mutex);
#endif
    pool->sums[i].value = pool->records[i].value + 1;
    pm_persist_it(pool->sums[i]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < RECORDS; i++) {
        if (index == 0)
            write_record(pool, i);
        else
            wait_for_record(pool, i);
    }
}

static void work(struct pool *pool)
{
    count = 0;
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    count = 0;
    write_record(pool, 0);
    wait_for_record(pool, 0);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < RECORDS; i++) {
        if (pool->sums[i].value && pool->sums[i].value != pool->records[i].value + 1)
            pm_fail("sum %d is %lu", i, pool->sums[i].value);
        pm_print("%lu %lu\n", pool->records[i].value, pool->sums[i].value);
    }
}

RACE_MAIN

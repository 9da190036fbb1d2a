/* A number in the pool; records hold the largest of it and others.
 *
 * Wrong: the source is made durable after the lock is released. In between the other thread reads it, and what
 * becomes durable first was computed from it through the C library's qsort, which moved it among others. After a
 * crash it is ahead of its source.
 * Right: the source is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 */
#include "race.h"

enum { CHANGES = 4, READS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t source;
    struct {
        PM_ALIGNED uint64_t value;
    } records[READS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void change(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    pool->source += 10; /* @store */
#ifndef BUG
    pm_persist_it(pool->source);
#endif
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_window();
    pm_persist_it(pool->source);
#endif
}

static void take(struct pool *pool, int i)
{
    uint64_t numbers[6] = {3, 0, 5, 1, 4, 2};
    pthread_mutex_lock(&lock);
    numbers[1] = pool->source; /* @read */
    pthread_mutex_unlock(&lock);
    qsort(numbers, 6, sizeof numbers[0], compare);
    pool->records[i].value = numbers[5]; /* @effect */
    pm_persist_it(pool->records[i]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < CHANGES; i++) {
        if (index == 0)
            change(pool);
        else
            take(pool, i);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    change(pool);
    take(pool, 0);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < READS; i++) {
        if (pool->records[i].value > pool->source && pool->records[i].value > 5)
            pm_fail("record %d has %lu, and its source is at %lu", i, pool->records[i].value, pool->source);
        pm_print("%lu ", pool->records[i].value);
    }
    pm_print("of %lu\n", pool->source);
}

RACE_MAIN

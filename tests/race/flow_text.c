/* A number in the pool, and records of it that went through text.
 *
 * Wrong: the source is made durable after the lock is released. In between the other thread reads it, and what
 * becomes durable first was computed from it through text: it was printed by snprintf, and read again by sscanf.
 * After a crash it is ahead of its source.
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

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void change(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    pool->source++; /* @store */
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
    char text[64];
    pthread_mutex_lock(&lock);
    uint64_t source = pool->source; /* @read */
    pthread_mutex_unlock(&lock);
    snprintf(text, sizeof text, "the number is %lu.", source);
    uint64_t value = 0;
    if (sscanf(text, "the number is %lu.", &value) != 1)
        _exit(2);
    pool->records[i].value = value; /* @effect */
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
        if (pool->records[i].value > pool->source)
            pm_fail("record %d has %lu, and its source is at %lu", i, pool->records[i].value, pool->source);
        pm_print("%lu ", pool->records[i].value);
    }
    pm_print("of %lu\n", pool->source);
}

RACE_MAIN

/* A number in the pool; one thread sends it through a pipe, and another receives it and writes records.
 *
 * Wrong: the source is made durable after the lock is released. In between the other thread reads it, and what
 * becomes durable first was computed from it through the kernel: it was written into a pipe, and read from it by a
 * third thread. After a crash it is ahead of its source.
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
static int ends[2]; /* of the pipe */

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

static void forward(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    uint64_t value = pool->source; /* @read */
    pthread_mutex_unlock(&lock);
    if (write(ends[1], &value, sizeof value) != sizeof value) /* @effect */
        _exit(2);
}

static void take(struct pool *pool, int i)
{
    uint64_t value;
    if (read(ends[0], &value, sizeof value) != sizeof value)
        _exit(2);
    pool->records[i].value = value; /* @effect */
    pm_persist_it(pool->records[i]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < CHANGES; i++) {
        if (index == 0)
            change(pool);
        else if (index == 1)
            forward(pool);
        else
            take(pool, i);
    }
}

static void work(struct pool *pool)
{
    if (pipe(ends) != 0)
        _exit(2);
    pm_threads(pool, 3, thread);
}

static void more(struct pool *pool)
{
    if (pipe(ends) != 0)
        _exit(2);
    change(pool);
    forward(pool);
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

/* Extendible hashing: each segment has a semaphore in the pool, negative while somebody splits it, else the number of
 * its users. (CCEH, bug 6 of PMRace.)
 *
 * Wrong: opening leaves the semaphores as they are. A crash while one is negative, or not zero and then waited for,
 * leaves it so for ever, and recovery, which uses each segment, does not end.
 * Right: opening initialises all semaphores.
 *
 * bug: persistent-lock
 * verdict: confirmed
 * allow: missing-flush @ store|unlock|shared
 * allow: transient-data @ store|unlock|shared
 * published
 */
#include "race.h"

enum { SEGMENTS = 3, THREADS = 3, OPERATIONS = 4 };

struct segment {
    PM_ALIGNED int64_t sema;
    PM_ALIGNED uint64_t depth;
    PM_ALIGNED uint64_t values[THREADS];
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct segment segments[SEGMENTS];
};

static void lock(struct segment *segment)
{
    while (!pm_swap_if(&segment->sema, 0, -1)) /* @store */
        sched_yield();
    pm_window_evicting(&segment->sema);
}

static void unlock(struct segment *segment)
{
    pm_store(&segment->sema, 0); /* @unlock */
}

static void enter(struct segment *segment)
{
    for (;;) {
        int64_t users = pm_load(&segment->sema);
        if (users >= 0 && pm_swap_if(&segment->sema, users, users + 1)) /* @shared */
            return;
        sched_yield();
    }
}

static void leave(struct segment *segment)
{
    __atomic_sub_fetch(&segment->sema, 1, __ATOMIC_RELEASE); /* @shared */
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
#ifndef BUG
    for (int i = 0; i < SEGMENTS; i++) {
        pool->segments[i].sema = 0;
        pm_persist_it(pool->segments[i].sema);
    }
#endif
}

static void set(struct segment *segment, int index)
{
    enter(segment);
    segment->values[index]++;
    pm_persist_it(segment->values[index]);
    leave(segment);
}

static void split(struct segment *segment)
{
    lock(segment);
    segment->depth++;
    pm_persist_it(segment->depth);
    unlock(segment);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < OPERATIONS; i++) {
        set(&pool->segments[(i + index) % SEGMENTS], index);
        if (i % 2 == 1)
            split(&pool->segments[i % SEGMENTS]);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, thread);
}

static void more(struct pool *pool)
{
    set(&pool->segments[0], 0);
    split(&pool->segments[0]);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < SEGMENTS; i++) {
        struct segment *segment = &pool->segments[i];
        enter(segment);
        pm_print("%lu: %lu %lu %lu\n", segment->depth, segment->values[0], segment->values[1], segment->values[2]);
        leave(segment);
    }
}

RACE_MAIN

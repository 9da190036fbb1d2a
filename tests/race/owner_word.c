/* A log whose writer puts its number into an owner's word by compare-and-exchange, and gives up its time while
 * another has it.
 *
 * Wrong: the word is made durable while it is owned, so that one can see after a crash who wrote. Nobody ever takes
 * it from an owner that is gone, and the first record after the crash is never written.
 * Right: opening takes note of the owner and resets the word.
 *
 * bug: persistent-lock
 * verdict: confirmed
 * continue
 * published
 */
#include "race.h"

enum { THREADS = 3, RECORDS = 3, ALL = 24 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t owner; /* 0: nobody */
    PM_ALIGNED uint64_t count;
    struct {
        PM_ALIGNED uint64_t writer;
    } records[ALL];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
#ifndef BUG
    if (pool->owner) {
        pool->owner = 0;
        pm_persist_it(pool->owner);
    }
#endif
}

static void add(struct pool *pool, uint64_t writer)
{
    while (!pm_swap_if(&pool->owner, 0, writer)) /* @store */
        sched_yield();
    pm_persist_it(pool->owner);
    pm_window();
    uint64_t count = pool->count;
    if (count < ALL) {
        pool->records[count].writer = writer;
        pm_persist_it(pool->records[count]);
        pool->count = count + 1;
        pm_persist_it(pool->count);
    }
    pm_store(&pool->owner, 0);
    pm_persist_it(pool->owner);
}

static void writer(struct pool *pool, int index)
{
    for (int i = 0; i < RECORDS; i++)
        add(pool, (uint64_t)index + 1);
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, writer);
}

static void more(struct pool *pool)
{
    add(pool, 9);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < pool->count; i++) {
        if (pool->records[i].writer == 0)
            pm_fail("record %lu is empty", i);
        pm_print("%lu ", pool->records[i].writer);
    }
    pm_print("\n");
}

RACE_MAIN

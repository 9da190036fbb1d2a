/* A counter under a ticket lock whose two words lie in the pool, in lines of their own.
 *
 * Wrong: opening leaves the words as they are. Each line is evicted when the cache likes, so after a crash the next
 * ticket may be far ahead of the one that is served. The first operation afterwards waits for a turn that never
 * comes.
 * Right: opening sets both words to zero.
 *
 * bug: persistent-lock
 * verdict: confirmed
 * continue
 * allow: missing-flush @ store|unlock
 * allow: transient-data @ store|unlock
 * allow: overwritten-unpersisted @ store|unlock
 * published
 */
#include "race.h"

enum { THREADS = 3, ADDITIONS = 3 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint32_t next;
    PM_ALIGNED uint32_t serving;
    PM_ALIGNED uint64_t counter;
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
#ifndef BUG
    pool->next = 0;
    pool->serving = 0;
    pm_flush(&pool->next, sizeof pool->next);
    pm_flush(&pool->serving, sizeof pool->serving);
    pm_fence();
#endif
}

static void add(struct pool *pool)
{
    uint32_t ticket = __atomic_fetch_add(&pool->next, 1, __ATOMIC_ACQUIRE); /* @store */
    pm_window_evicting(&pool->next);
    while (pm_load(&pool->serving) != ticket)
        _mm_pause();
    pool->counter++;
    pm_persist_it(pool->counter);
    pm_store(&pool->serving, ticket + 1); /* @unlock */
}

static void adder(struct pool *pool, int index)
{
    (void)index;
    for (int i = 0; i < ADDITIONS; i++)
        add(pool);
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, adder);
}

static void more(struct pool *pool)
{
    add(pool);
}

static void check(struct pool *pool)
{
    pm_print("%lu\n", pool->counter);
}

RACE_MAIN

/* A pair of numbers under a sequence lock in the pool: odd while somebody writes.
 *
 * Wrong: a crash in the middle leaves the sequence odd. Recovery reads the pair as everybody does: it waits for an
 * even sequence, and does not end.
 * Right: opening restores the pair from its copy if the sequence is odd, and makes it even.
 *
 * bug: persistent-lock
 * verdict: confirmed
 * published
 */
#include "race.h"

enum { WRITERS = 2, THREADS = 3, CHANGES = 3, READS = 4 };

struct pool {
    PM_ALIGNED uint64_t sequence;
    PM_ALIGNED uint64_t pair[2];
    PM_ALIGNED uint64_t old[2]; /* the pair before the change that is under way */
};

/* There is one writer at a time; the sequence is for readers. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
#ifndef BUG
    if (pool->sequence % 2 == 1) {
        memcpy(pool->pair, pool->old, sizeof pool->pair);
        pm_persist_it(pool->pair);
        pool->sequence++;
        pm_persist_it(pool->sequence);
    }
#else
    (void)pool;
#endif
}

static void change(struct pool *pool, uint64_t by)
{
    pthread_mutex_lock(&writing);
    uint64_t sequence = pool->sequence, first = pool->pair[0], second = pool->pair[1];
    pool->old[0] = first;
    pool->old[1] = second;
    pm_persist_it(pool->old);
    pm_store(&pool->sequence, sequence + 1); /* @store */
    pm_persist_it(pool->sequence);
    pm_window();
    pm_store(&pool->pair[0], first + by);
    pm_store(&pool->pair[1], second + 7 * by);
    pm_persist_it(pool->pair);
    pm_store(&pool->sequence, sequence + 2); /* @store */
    pm_persist_it(pool->sequence);
    pthread_mutex_unlock(&writing);
}

static void read_pair(struct pool *pool, uint64_t pair[2])
{
    uint64_t before;
    do {
        while ((before = pm_load(&pool->sequence)) % 2 == 1)
            _mm_pause();
        pair[0] = pm_load(&pool->pair[0]);
        pair[1] = pm_load(&pool->pair[1]);
    } while (pm_load(&pool->sequence) != before);
    if (pair[1] != 7 * pair[0])
        pm_fail("the pair is torn");
}

static void thread(struct pool *pool, int index)
{
    uint64_t pair[2];
    for (int i = 0; i < CHANGES && index < WRITERS; i++)
        change(pool, (uint64_t)index + 1);
    for (int i = 0; i < READS && index >= WRITERS; i++)
        read_pair(pool, pair);
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, thread);
}

static void more(struct pool *pool)
{
    change(pool, 5);
}

static void check(struct pool *pool)
{
    uint64_t pair[2];
    read_pair(pool, pair);
    pm_print("%lu %lu\n", pair[0], pair[1]);
}

RACE_MAIN

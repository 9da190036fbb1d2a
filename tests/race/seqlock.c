/* A pair of numbers under a sequence lock: the pair is in the pool, the sequence in ordinary memory. Readers note
 * what they saw.
 *
 * Clean: the pair is durable before the sequence is even again. A reader may load a pair that is not durable, or
 * torn; then it throws it away and tries again. A writer keeps a durable copy of the old pair while it changes it.
 *
 * clean
 * published
 */
#include "race.h"

enum { WRITERS = 2, READERS = 2, CHANGES = 3, READS = 4 };

struct pool {
    PM_ALIGNED uint64_t changing; /* the copy counts */
    PM_ALIGNED uint64_t pair[2];
    PM_ALIGNED uint64_t old[2];
    struct {
        PM_ALIGNED uint64_t second;
    } notes[READERS][READS];
};

static uint64_t sequence;

static void set(uint64_t *word, uint64_t value)
{
    pm_store(word, value);
    pm_persist(word, sizeof *word);
}

static void open_pool(struct pool *pool)
{
    if (pool->changing) {
        memcpy(pool->pair, pool->old, sizeof pool->pair);
        pm_persist_it(pool->pair);
        set(&pool->changing, 0);
    }
}

static void change(struct pool *pool, uint64_t by)
{
    uint64_t even;
    do {
        while ((even = pm_load(&sequence)) % 2 == 1)
            sched_yield();
    } while (!pm_swap_if(&sequence, even, even + 1));
    uint64_t first = pool->pair[0] + by, second = pool->pair[1] + 7 * by;
    pool->old[0] = first - by;
    pool->old[1] = second - 7 * by;
    pm_persist_it(pool->old);
    set(&pool->changing, 1);
    pm_store(&pool->pair[0], first);
    pm_store(&pool->pair[1], second);
    pm_persist_it(pool->pair);
    set(&pool->changing, 0);
    pm_store(&sequence, even + 2);
}

static void read_pair(struct pool *pool, uint64_t pair[2])
{
    uint64_t before;
    do {
        while ((before = pm_load(&sequence)) % 2 == 1)
            sched_yield();
        pair[0] = pm_load(&pool->pair[0]);
        pair[1] = pm_load(&pool->pair[1]);
    } while (pm_load(&sequence) != before);
}

static void note(struct pool *pool, int reader, int i)
{
    uint64_t pair[2];
    read_pair(pool, pair);
    if (pair[1] != 7 * pair[0])
        pm_fail("the pair is torn");
    pool->notes[reader][i].second = pair[1];
    pm_persist_it(pool->notes[reader][i]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < CHANGES && index < WRITERS; i++)
        change(pool, (uint64_t)index + 1);
    for (int i = 0; i < READS && index >= WRITERS; i++)
        note(pool, index - WRITERS, i);
}

static void work(struct pool *pool)
{
    pm_threads(pool, WRITERS + READERS, thread);
}

static void more(struct pool *pool)
{
    change(pool, 5);
    note(pool, 0, 0);
}

static void check(struct pool *pool)
{
    if (pool->pair[1] != 7 * pool->pair[0])
        pm_fail("the pair is torn");
    for (int i = 0; i < READERS * READS; i++) {
        if (pool->notes[i / READS][i % READS].second > pool->pair[1])
            pm_fail("%lu was seen", pool->notes[i / READS][i % READS].second);
    }
    pm_print("%lu\n", pool->pair[0]);
}

RACE_MAIN

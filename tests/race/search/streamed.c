/* One thread stores past the cache and fences late; another notes what it has read.
 *
 * Wrong: the note is durable before the value is, as far as anybody has made sure.
 * Right: who reads the value writes its line back and fences before it stores the note. What can be read has left the buffer of the thread that has stored it, so
 * that does make it durable, though no fence of that thread does.
 */
#include "../race.h"

enum { VALUES = 6 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t value;
    PM_ALIGNED uint64_t note;
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < VALUES; i++) {
        if (index == 0) {
            _mm_stream_si64((long long *)&pool->value, (long long)pool->value + 1); /* @store */
            sched_yield();
            pm_fence();
        } else {
            uint64_t value = pm_load(&pool->value); /* @read */
#ifndef BUG
            pm_persist_it(pool->value);
#endif
            pool->note = value; /* @effect */
            pm_persist_it(pool->note);
        }
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    thread(pool, 1);
}

static void check(struct pool *pool)
{
    if (pool->note > pool->value)
        pm_fail("%lu is noted, and the value is %lu", pool->note, pool->value);
    pm_print("%lu of %lu\n", pool->note, pool->value);
}

RACE_MAIN

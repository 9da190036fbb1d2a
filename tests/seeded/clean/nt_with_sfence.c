/* Frames are written past the cache, fenced, and then published by a number that is itself stored past the cache and
 * fenced.
 *
 * Clean: a non-temporal store needs a fence and no write-back.
 *
 * clean
 */
#include "../pm.h"

enum { FRAMES = 4, WORDS = 8 };

struct pool {
    PM_ALIGNED uint64_t published;
    PM_ALIGNED uint64_t frames[FRAMES][WORDS];
};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    for (uint64_t n = 0; n < WORDS; n++)
        pm_nt_store(&pool->frames[i][n], (uint64_t)i * 10 + n + 1);
    pm_fence();
    pm_nt_store(&pool->published, (uint64_t)i + 1);
    pm_fence();
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->published > FRAMES)
        pm_fail("%lu frames", pool->published);
    for (uint64_t i = 0; i < pool->published; i++) {
        for (uint64_t n = 0; n < WORDS; n++)
            if (pool->frames[i][n] != i * 10 + n + 1)
                pm_fail("word %lu of frame %lu is not there", n, i);
        pm_print("frame %lu\n", i);
    }
}

PM_MAIN(FRAMES)

/* Frames are written past the cache and published by a number that is persisted with `clflush`.
 *
 * Wrong: no fence stands between the non-temporal stores and the number. They are unordered, `clflush` of another line
 * does not wait for them, and they may still sit in a write-combining buffer when the number is durable.
 * Right: `sfence` first. (`clflush` needs none itself: it is ordered with the store before it, and with the next.)
 *
 * bug: missing-fence @ frame-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ frame-store
 */
#include "../pm.h"

enum { FRAMES = 3, WORDS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t published;
    PM_ALIGNED uint64_t frames[FRAMES][8];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    for (uint64_t n = 0; n < WORDS; n++)
        pm_nt_store(&pool->frames[i][n], (uint64_t)i * 10 + n + 1); /* @frame-store */
#ifndef BUG
    pm_fence();
#endif
    pool->published = (uint64_t)i + 1;
    pm_clflush(&pool->published, sizeof pool->published);
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

/* A settings page of 2 KiB: each change is one aligned word.
 *
 * Wasteful: after each change the whole page is persisted, 32 lines of which 31 are clean.
 * Right: the word's line.
 * Both are crash consistent.
 *
 * bug: oversized-flush @ page-flush
 * explore: no
 */
#include "../pm.h"

enum { SETTINGS = 256, CHANGES = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t settings[SETTINGS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    uint64_t *setting = &pool->settings[i * 50];
    *setting = 5 + (uint64_t)i;
#ifdef BUG
    pm_persist(pool->settings, sizeof pool->settings); /* @page-flush */
#else
    pm_persist(setting, sizeof *setting);
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < SETTINGS; i++)
        if (pool->settings[i] != 0)
            pm_print("setting %d: %lu\n", i, pool->settings[i]);
}

PM_MAIN(CHANGES)

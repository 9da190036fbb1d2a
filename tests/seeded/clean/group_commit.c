/* A journal that commits two entries at a time, and acknowledges both then.
 *
 * Clean: entries are durable before the count that publishes them. Between the entry and its acknowledgement the count
 * may jump by two; nothing that was acknowledged is ever missing.
 *
 * clean
 */
#include "../pm.h"

enum { ENTRIES = 6, GROUP = 2 };

struct pool {
    PM_ALIGNED uint64_t count;
    struct {
        PM_ALIGNED uint64_t value;
    } entries[ENTRIES];
};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    pool->entries[i].value = 100 + (uint64_t)i;
    pm_flush(&pool->entries[i], sizeof pool->entries[i]);
    if ((i + 1) % GROUP != 0)
        return;
    pm_fence();
    uint64_t before = pool->count;
    pool->count = (uint64_t)i + 1;
    pm_persist(&pool->count, sizeof pool->count);
    for (uint64_t n = before; n <= (uint64_t)i; n++)
        pm_ack((int)n);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < pool->count; i++) {
        if (pool->entries[i].value != 100 + i)
            pm_fail("entry %d is counted and not there", (int)i);
        pm_print("entry %d\n", (int)i);
    }
}

PM_MAIN(ENTRIES)

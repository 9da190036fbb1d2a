/* A ring whose write-backs are completed by whatever fence is at hand: `mfence` for even entries, a locked addition to
 * an ordinary variable for odd ones; and for the number of entries a locked exchange in the pool, followed by
 * `mfence`.
 *
 * Clean: `mfence` and every locked instruction complete the thread's write-backs as `sfence` does.
 *
 * clean
 */
#include "../pm.h"

enum { ENTRIES = 4 };

struct pool {
    PM_ALIGNED uint64_t count;
    struct {
        PM_ALIGNED uint64_t value;
    } entries[ENTRIES];
};

static uint64_t turns;

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    pool->entries[i].value = 90 + (uint64_t)i;
    pm_flush(&pool->entries[i], sizeof(uint64_t));
    if (i % 2 == 0)
        __asm__ volatile("mfence" ::: "memory");
    else
        __asm__ volatile("lock incq %0" : "+m"(turns)::"memory");
    __atomic_exchange_n(&pool->count, (uint64_t)i + 1, __ATOMIC_SEQ_CST);
    pm_flush(&pool->count, sizeof pool->count);
    __asm__ volatile("mfence" ::: "memory");
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count > ENTRIES)
        pm_fail("%lu entries", pool->count);
    for (uint64_t i = 0; i < pool->count; i++) {
        if (pool->entries[i].value != 90 + i)
            pm_fail("entry %lu is counted and not there", i);
        pm_print("%lu\n", pool->entries[i].value);
    }
}

PM_MAIN(ENTRIES)

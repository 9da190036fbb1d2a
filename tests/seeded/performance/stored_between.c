/* A table of prices: a price and the number of its changes share a line.
 *
 * Wasteful: the price is written back before the number is stored, and the line once more afterwards. Both write-backs are complete at
 * the same fence, so the first is in vain.
 * Right: both stores, then one write-back.
 * Both are crash consistent: a price stands alone, and the number is only counted.
 *
 * bug: redirtied-line @ second-flush
 * explore: no
 * needs: clflushopt
 */
#include "../pm.h"

enum { PRICES = 4 };

struct price {
    PM_ALIGNED uint64_t amount;
    uint64_t changes;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct price prices[PRICES];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct price *price = &pool->prices[i];
    price->amount = 100 + (uint64_t)i;
#ifdef BUG
    pm_flush(&price->amount, sizeof price->amount);
#endif
    pm_compiler_barrier();
    price->changes++;
    pm_flush(price, sizeof *price); /* @second-flush */
    pm_fence();
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < PRICES; i++) {
        uint64_t amount = pool->prices[i].amount;
        if (amount != 0 && amount != 100 + i)
            pm_fail("price %lu is %lu", i, amount);
        if (pool->prices[i].changes > 1)
            pm_fail("price %lu has changed %lu times", i, pool->prices[i].changes);
        if (pool->prices[i].changes == 1)
            pm_print("%lu\n", amount);
    }
}

PM_MAIN(PRICES)

/* A shop's stock: each item is in stock or sold. What must hold of that is stated for `brownout explore`; recovery
 * itself believes what it reads.
 *
 * Wrong: the two numbers lie in different lines, and one fence completes both write-backs. After a crash an item may
 * be neither in stock nor sold, or both.
 * Right: both numbers are halves of one word, so no crash comes between them.
 *
 * check: none
 * explore: yes
 * symptom: ops
 * explored: recovery-assertion @ sale
 */
#include "../pm.h"
#include <brownout.h>

enum { ITEMS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t taken; /* from the stock; in the fixed twin with `sold` in the upper half */
    PM_ALIGNED uint64_t sold;
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
#ifdef BUG
    pool->taken++; /* @sale */
    pool->sold++; /* @sale */
    pm_flush(&pool->taken, sizeof pool->taken);
    pm_flush(&pool->sold, sizeof pool->sold);
    pm_fence();
#else
    pool->taken += 1ULL << 32 | 1;
    pm_persist(&pool->taken, sizeof pool->taken);
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
    uint64_t taken = pool->taken & 0xffffffff, sold = pool->sold | pool->taken >> 32;
    brownout_must_hold("each item is in stock or sold", ITEMS - taken + sold == ITEMS);
    pm_print("%lu in stock, %lu sold\n", ITEMS - taken, sold);
}

PM_MAIN(ITEMS)

/* A safe that remembers the last number that was tried, and opens for one of them.
 *
 *     k NUMBER   try     p   print     q   end
 *
 * Wrong: that the safe is open is stored and never written back; that the right number was tried is. Only the right number shows it, and only a comparison
 * in the program says which it is.
 * Right: the safe is open, durably, before the number is stored.
 *
 * seed: k 5, p
 * trigger: k 0xc0ffee | p
 * shows: exit
 * bug: missing-flush @ open
 */
#include "pm.h"

#define RIGHT 0xc0ffee

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t last;
    PM_ALIGNED uint64_t open;
};

static void open_pool(struct pool *pool)
{
    if (pm_is_new(&pool->magic))
        pm_created(&pool->magic);
    if (pool->last == RIGHT && !pool->open)
        pm_fail("the right number was tried, and the safe is closed");
}

static void command(struct pool *pool, char letter, char *rest)
{
    uint64_t number;
    if (letter == 'p') {
        pm_print("%lu%s\n", pool->last, pool->last == RIGHT ? ", open" : "");
    } else if (letter == 'k' && pm_number(&rest, &number)) {
        if (number == RIGHT && !pool->open) {
            pool->open = 1; /* @open */
#ifndef BUG
            pm_persist(&pool->open, sizeof pool->open);
#endif
        }
        pool->last = number;
        pm_persist(&pool->last, sizeof pool->last);
    } else {
        pm_print("?\n");
    }
}

PM_MAIN

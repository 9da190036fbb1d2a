/* A small map with run-time statistics, which are reset whenever the pool is opened.
 *
 * Wasteful: the statistics lie in persistent memory and every operation ends by persisting them, also a look-up, which
 * changes none of them. Nobody reads them after a crash, so no write-back of them is ever of use; those after look-ups
 * can be seen to be of none.
 * Right: they are ordinary variables.
 * Both are crash consistent.
 *
 * bug: clean-flush @ statistics-flush
 * explore: no
 */
#include "../pm.h"

enum { KEYS = 3, OPERATIONS = 6 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t values[KEYS]; /* 0: none */
#ifdef BUG
    PM_ALIGNED uint64_t puts;
#endif
};

#ifndef BUG
static uint64_t puts_now;
#endif

static void open_pool(struct pool *pool)
{
#ifdef BUG
    pool->puts = 0;
    pm_persist(&pool->puts, sizeof pool->puts);
#endif
    pm_create(&pool->magic);
}

static void count_put(struct pool *pool)
{
#ifdef BUG
    pool->puts++;
#else
    (void)pool;
    puts_now++;
#endif
}

static void operation(struct pool *pool, int i)
{
    uint64_t *value = &pool->values[i / 2];
    if (i % 2 == 0) {
        *value = 80 + (uint64_t)i;
        pm_persist(value, sizeof *value);
        count_put(pool);
    } else if (*value != 80 + (uint64_t)i - 1) {
        pm_fail("key %d is not there", i / 2);
    }
#ifdef BUG
    pm_persist(&pool->puts, sizeof pool->puts); /* @statistics-flush */
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < KEYS; i++)
        if (pool->values[i] != 0)
            pm_print("key %d: %lu\n", i, pool->values[i]);
}

PM_MAIN(OPERATIONS)

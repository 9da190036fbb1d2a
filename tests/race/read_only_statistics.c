/* A table that one thread fills while others keep statistics about it, in ordinary memory.
 *
 * Clean: the others read what is not durable yet, but nothing durable comes of it: their numbers die with the
 * process.
 *
 * clean
 * published
 */
#include "race.h"

enum { ROWS = 8, READERS = 2, READS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t value;
    } rows[ROWS];
};

static struct {
    uint64_t largest;
    uint64_t sum;
} statistics[READERS];

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void fill(struct pool *pool, int i)
{
    pm_store(&pool->rows[i].value, (uint64_t)(i * i + 1));
    pm_persist_it(pool->rows[i]);
}

static void look(struct pool *pool, int reader)
{
    for (int i = 0; i < ROWS; i++) {
        uint64_t value = pm_load(&pool->rows[i].value);
        statistics[reader].sum += value;
        if (value > statistics[reader].largest)
            statistics[reader].largest = value;
    }
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < ROWS && index == READERS; i++)
        fill(pool, i);
    for (int i = 0; i < READS && index < READERS; i++)
        look(pool, index);
}

static void work(struct pool *pool)
{
    pm_threads(pool, READERS + 1, thread);
}

static void more(struct pool *pool)
{
    fill(pool, 0);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < ROWS; i++) {
        if (pool->rows[i].value && pool->rows[i].value != (uint64_t)(i * i + 1))
            pm_fail("row %d is %lu", i, pool->rows[i].value);
        pm_print("%lu ", pool->rows[i].value);
    }
    pm_print("\n");
}

RACE_MAIN

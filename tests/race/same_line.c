/* Pairs of a number and its double, each pair in one line: one thread stores the numbers, another the doubles.
 *
 * Clean: a double is computed from a number that is not durable yet; but a line survives as it was at one moment, so
 * no double survives without its number. Each pair is written back by both.
 *
 * clean
 * published
 */
#include "race.h"

enum { PAIRS = 6, ROUNDS = 12 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t number;
        uint64_t twice;
    } pairs[PAIRS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void store_number(struct pool *pool, int i)
{
    pm_store(&pool->pairs[i].number, (uint64_t)i + 5);
    pm_persist_it(pool->pairs[i]);
}

static void store_double(struct pool *pool, int i)
{
    pm_store(&pool->pairs[i].twice, 2 * pm_load(&pool->pairs[i].number));
    pm_persist_it(pool->pairs[i]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < PAIRS && index == 0; i++)
        store_number(pool, i);
    for (int i = 0; i < ROUNDS && index == 1; i++)
        store_double(pool, i % PAIRS);
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    for (int i = 0; i < PAIRS; i++)
        store_double(pool, i);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < PAIRS; i++) {
        if (pool->pairs[i].twice && pool->pairs[i].twice != 2 * pool->pairs[i].number)
            pm_fail("%lu is not the double of %lu", pool->pairs[i].twice, pool->pairs[i].number);
        pm_print("%lu\n", pool->pairs[i].number);
    }
}

RACE_MAIN

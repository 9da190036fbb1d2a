/* A value, and its number: recovery wants the value that the number says.
 *
 * Wrong: the number is made durable before the value. Another thread reads the value early, and makes a copy durable; but that
 * is not what recovery fails over: it fails if the value is lost, whether anybody has read it or not.
 * Right: the value is durable first.
 */
#include "../race.h"

enum { VALUES = 6 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t value;
    PM_ALIGNED uint64_t number;
    PM_ALIGNED uint64_t copy;
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void write_values(struct pool *pool)
{
    for (uint64_t i = pool->number; i < VALUES; i++) {
        pm_store(&pool->value, i + 1);
#ifndef BUG
        pm_persist_it(pool->value);
#endif
        pm_store(&pool->number, i + 1);
        pm_persist_it(pool->number);
#ifdef BUG
        pm_persist_it(pool->value);
#endif
    }
}

static void copy_values(struct pool *pool)
{
    for (int i = 0; i < VALUES; i++) {
        uint64_t number = pm_load(&pool->number);
        pm_store(&pool->copy, number + pm_load(&pool->value));
        pm_persist_it(pool->copy);
    }
}

static void thread(struct pool *pool, int index)
{
    if (index == 0)
        write_values(pool);
    else
        copy_values(pool);
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    copy_values(pool);
}

static void check(struct pool *pool)
{
    if (pool->value < pool->number)
        pm_fail("value %lu, number %lu", pool->value, pool->number);
}

RACE_MAIN

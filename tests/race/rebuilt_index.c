/* Items in a table, and an index that says where each key is. One thread inserts items, another keeps the index.
 *
 * Clean: the index is made from items that may not be durable yet, and is itself durable sooner. But opening builds
 * it anew from the items: whatever it held is overwritten.
 *
 * clean
 * verdict: repaired
 * published
 */
#include "race.h"

enum { ITEMS = 8 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t key; /* 0: none */
    } items[ITEMS];
    struct {
        PM_ALIGNED uint64_t key;
        uint64_t where; /* from 1 */
    } places[ITEMS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void place(struct pool *pool, int i, uint64_t key)
{
    pool->places[i].key = key; /* @effect */
    pool->places[i].where = key ? (uint64_t)i + 1 : 0;
    pm_persist_it(pool->places[i]);
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    for (int i = 0; i < ITEMS; i++)
        place(pool, i, pool->items[i].key);
}

static void insert(struct pool *pool, int i)
{
    pthread_mutex_lock(&lock);
    pool->items[i].key = 100 + (uint64_t)i; /* @store */
    pthread_mutex_unlock(&lock);
    pm_persist_it(pool->items[i]);
}

static void index_item(struct pool *pool, int i)
{
    pthread_mutex_lock(&lock);
    uint64_t key = pool->items[i].key; /* @read */
    pthread_mutex_unlock(&lock);
    place(pool, i, key);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < ITEMS; i++) {
        if (index == 0)
            insert(pool, i);
        else
            index_item(pool, i);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    insert(pool, 0);
    index_item(pool, 0);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < ITEMS; i++) {
        if (pool->places[i].key != pool->items[i].key)
            pm_fail("key %lu is not at %d", pool->places[i].key, i);
        pm_print("%lu ", pool->items[i].key);
    }
    pm_print("\n");
}

RACE_MAIN

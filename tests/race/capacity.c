/* Extendible hashing: the directory doubles its capacity and allocates segments for it. (CCEH, bug 7 of PMRace.)
 *
 * Wrong: the thread that doubles it reads the new capacity back before it is durable, allocates by it, and makes the
 * allocation durable first. After a crash the capacity is the old one, and half of the segments belong to nobody.
 * Right: the capacity is durable before anything is allocated by it; opening allocates what is missing.
 *
 * bug: intra-thread-inconsistency
 * verdict: confirmed
 */
#include "race.h"

enum { THREADS = 2, KEYS = 5, FIRST = 4, LAST = 16, BYTES = 64 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t capacity;
    PM_ALIGNED uint64_t allocated; /* bytes */
    struct {
        PM_ALIGNED uint64_t key;
    } segments[LAST];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC) {
        pool->capacity = FIRST;
        pool->allocated = FIRST * BYTES;
        pm_flush(&pool->capacity, sizeof pool->capacity);
        pm_flush(&pool->allocated, sizeof pool->allocated);
        pm_fence();
        pm_create(&pool->magic);
    }
    if (pool->allocated > pool->capacity * BYTES)
        pm_fail("%lu bytes are allocated for %lu segments: some are leaked", pool->allocated, pool->capacity);
    if (pool->allocated < pool->capacity * BYTES) {
        pool->allocated = pool->capacity * BYTES;
        pm_persist_it(pool->allocated);
    }
}

/* Called with the lock. */
static void twice_as_many(struct pool *pool)
{
    pm_store(&pool->capacity, pool->capacity * 2); /* @store */
#ifndef BUG
    pm_persist_it(pool->capacity);
#endif
    uint64_t bytes = pm_load(&pool->capacity) * BYTES; /* @read */
    pool->allocated = bytes; /* @effect */
    pm_persist_it(pool->allocated);
#ifdef BUG
    pm_window();
    pm_persist_it(pool->capacity);
#endif
}

static void insert(struct pool *pool, uint64_t key)
{
    pthread_mutex_lock(&lock);
    uint64_t at = 0;
    while (at < pool->capacity && pool->segments[at].key && pool->segments[at].key != key)
        at++;
    if (at == pool->capacity && at < LAST)
        twice_as_many(pool);
    if (at < LAST) {
        pool->segments[at].key = key;
        pm_persist_it(pool->segments[at]);
    }
    pthread_mutex_unlock(&lock);
}

static void inserter(struct pool *pool, int index)
{
    for (int i = 0; i < KEYS; i++)
        insert(pool, (uint64_t)(10 * (index + 1) + i));
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, inserter);
}

static void more(struct pool *pool)
{
    insert(pool, 1);
    insert(pool, 2);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < LAST; i++) {
        if (pool->segments[i].key && i >= pool->capacity)
            pm_fail("key %lu is behind the end", pool->segments[i].key);
        if (pool->segments[i].key)
            pm_print("%lu\n", pool->segments[i].key);
    }
    pm_print("capacity %lu\n", pool->capacity);
}

RACE_MAIN

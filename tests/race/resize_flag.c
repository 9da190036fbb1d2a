/* A table that tells its users by a word in the pool that it is being enlarged: they wait until it is zero. It is set
 * by a plain store; whoever enlarges holds a volatile mutex.
 *
 * Wrong: the word is durable while it is set, and nothing resets it after a crash. Every user waits for ever.
 * Right: opening resets it; the enlargement is done again when somebody needs it.
 *
 * bug: persistent-lock
 * verdict: confirmed
 * continue
 * published
 */
#include "race.h"

enum { THREADS = 2, KEYS = 5, SLOTS = 32 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint32_t resizing;
    PM_ALIGNED uint64_t size;
    struct {
        PM_ALIGNED uint64_t key;
    } slots[SLOTS];
};

static pthread_mutex_t resizer = PTHREAD_MUTEX_INITIALIZER, inserting = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC) {
        pool->size = 4;
        pm_persist_it(pool->size);
        pm_create(&pool->magic);
    }
#ifndef BUG
    if (pool->resizing) {
        pool->resizing = 0;
        pm_persist_it(pool->resizing);
    }
#endif
}

static void set(uint32_t *word, uint32_t value)
{
    pm_store(word, value); /* @store */
    pm_persist(word, sizeof *word);
}

static void enlarge(struct pool *pool, uint64_t size)
{
    pthread_mutex_lock(&resizer);
    set(&pool->resizing, 1);
    pm_window();
    if (pool->size == size && size < SLOTS) {
        pm_store(&pool->size, 2 * size);
        pm_persist_it(pool->size);
    }
    set(&pool->resizing, 0);
    pthread_mutex_unlock(&resizer);
}

static void insert(struct pool *pool, uint64_t key)
{
    bool inserted = false;
    while (!inserted) {
        while (pm_load(&pool->resizing))
            usleep(10);
        pthread_mutex_lock(&resizer);
        uint64_t size = pool->size;
        pthread_mutex_unlock(&resizer);
        pthread_mutex_lock(&inserting);
        for (uint64_t i = 0; i < size && !inserted; i++) {
            inserted = pool->slots[i].key == key;
            if (!pool->slots[i].key) {
                pool->slots[i].key = key;
                pm_persist_it(pool->slots[i]);
                inserted = true;
            }
        }
        pthread_mutex_unlock(&inserting);
        if (!inserted && size == SLOTS)
            return;
        if (!inserted)
            enlarge(pool, size);
    }
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
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < SLOTS; i++) {
        if (pool->slots[i].key && i >= pool->size)
            pm_fail("key %lu is behind the end", pool->slots[i].key);
        if (pool->slots[i].key)
            pm_print("%lu\n", pool->slots[i].key);
    }
}

RACE_MAIN

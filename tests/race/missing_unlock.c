/* A set of keys under a mutex; one thread inserts and removes them, another updates those that it has found. (P-CLHT,
 * bug 5 of PMRace.)
 *
 * Wrong: if a key was removed between finding and updating it, the update returns without releasing the mutex.
 * Whoever comes next waits for ever.
 * Right: the mutex is released on every path.
 *
 * bug: deadlock
 * hangs
 */
#include "race.h"

enum { SLOTS = 8, KEYS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t key; /* 0: free */
        uint64_t value;
    } slots[SLOTS];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

/* Called with the mutex. */
static int find(struct pool *pool, uint64_t key)
{
    for (int i = 0; i < SLOTS; i++) {
        if (pool->slots[i].key == key)
            return i;
    }
    return -1;
}

static void insert(struct pool *pool, uint64_t key)
{
    pthread_mutex_lock(&mutex); /* @effect */
    int at = find(pool, key) < 0 ? find(pool, 0) : -1;
    if (at >= 0) {
        pool->slots[at].value = 0;
        pm_barrier();
        pool->slots[at].key = key;
        pm_persist_it(pool->slots[at]);
    }
    pthread_mutex_unlock(&mutex);
}

static void erase(struct pool *pool, uint64_t key)
{
    pthread_mutex_lock(&mutex); /* @effect */
    int at = find(pool, key);
    if (at >= 0) {
        pool->slots[at].key = 0;
        pm_persist_it(pool->slots[at]);
    }
    pthread_mutex_unlock(&mutex);
}

static bool contains(struct pool *pool, uint64_t key)
{
    pthread_mutex_lock(&mutex); /* @effect */
    bool there = find(pool, key) >= 0;
    pthread_mutex_unlock(&mutex);
    return there;
}

static bool update(struct pool *pool, uint64_t key)
{
    pthread_mutex_lock(&mutex); /* @effect */
    int at = find(pool, key);
    if (at < 0) {
#ifndef BUG
        pthread_mutex_unlock(&mutex);
#endif
        return false;
    }
    pool->slots[at].value++;
    pm_persist_it(pool->slots[at]);
    pthread_mutex_unlock(&mutex);
    return true;
}

static void thread(struct pool *pool, int index)
{
    for (uint64_t key = 1; key <= KEYS; key++) {
        if (index == 0) {
            insert(pool, key);
            erase(pool, key);
        } else if (contains(pool, key)) {
            update(pool, key);
        }
    }
}

static void work(struct pool *pool)
{
    insert(pool, 100);
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    insert(pool, 9);
    update(pool, 9);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < SLOTS; i++) {
        if (pool->slots[i].key)
            pm_print("%lu=%lu\n", pool->slots[i].key, pool->slots[i].value);
    }
}

RACE_MAIN

/* Buckets with keys and a version that says which rehash they belong to. (P-CLHT, bug 4 of PMRace.)
 *
 * Wrong: the version is stored with every insertion, and never written back; all threads look at it. Nothing that is
 * durable comes of what they read, and recovery does not look at it: the store is of no use but to make lines dirty.
 * Right: there is no such store.
 *
 * bug: unpersisted-publication
 * check: missing-flush @ store
 * predicted: yes
 */
#include "race.h"

enum { BUCKETS = 2, SLOTS = 8, THREADS = 2, KEYS = 4 };

struct bucket {
    PM_ALIGNED uint64_t version;
    PM_ALIGNED uint64_t keys[SLOTS];
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct bucket buckets[BUCKETS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t retries;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void insert(struct pool *pool, uint64_t key)
{
    struct bucket *bucket = &pool->buckets[key % BUCKETS];
    pthread_mutex_lock(&lock);
    if (bucket->version > 1000) /* @read */
        retries++;
    for (int i = 0; i < SLOTS; i++) {
        if (bucket->keys[i] == key)
            break;
        if (!bucket->keys[i]) {
            bucket->keys[i] = key;
            pm_persist_it(bucket->keys[i]);
#ifdef BUG
            bucket->version = 1; /* @store */
#endif
            break;
        }
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
    for (int i = 0; i < BUCKETS * SLOTS; i++) {
        if (pool->buckets[i / SLOTS].keys[i % SLOTS])
            pm_print("%lu\n", pool->buckets[i / SLOTS].keys[i % SLOTS]);
    }
}

RACE_MAIN

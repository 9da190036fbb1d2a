/* A hash table with a spin lock in each bucket, in the line of its keys. (P-CLHT, bug 2 of PMRace.)
 *
 * Wrong: opening leaves the locks as they are. A bucket is written back while its lock is held, so the power can fail
 * with a lock that is held for ever. Recovery takes no lock and ends well; the first insertion into that bucket does
 * not end.
 * Right: opening initialises all locks.
 *
 * bug: persistent-lock
 * verdict: confirmed
 * continue
 * allow: missing-flush @ unlock
 * allow: transient-data @ unlock
 * published
 */
#include "race.h"

enum { BUCKETS = 2, SLOTS = 6, THREADS = 2, KEYS = 4 };

struct bucket {
    PM_ALIGNED uint32_t lock;
    uint32_t count;
    uint64_t keys[SLOTS];
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct bucket buckets[BUCKETS];
};

static void lock(struct bucket *bucket)
{
    while (__atomic_exchange_n(&bucket->lock, 1, __ATOMIC_ACQUIRE)) /* @store */
        _mm_pause();
}

static void unlock(struct bucket *bucket)
{
    pm_store(&bucket->lock, 0); /* @unlock */
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
#ifndef BUG
    for (int i = 0; i < BUCKETS; i++) {
        pool->buckets[i].lock = 0;
        pm_persist_it(pool->buckets[i].lock);
    }
#endif
}

static void insert(struct pool *pool, uint64_t key)
{
    struct bucket *bucket = &pool->buckets[key % BUCKETS];
    lock(bucket);
    uint32_t count = bucket->count;
    if (count < SLOTS) {
        bucket->keys[count] = key;
        pm_barrier();
        bucket->count = count + 1;
        pm_persist(bucket, sizeof *bucket);
        pm_window();
    }
    unlock(bucket);
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
    insert(pool, 100);
    insert(pool, 101);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < BUCKETS; i++) {
        struct bucket *bucket = &pool->buckets[i];
        for (uint32_t j = 0; j < bucket->count; j++) {
            if (j >= SLOTS || bucket->keys[j] % BUCKETS != (uint64_t)i)
                pm_fail("bucket %d holds key %lu", i, bucket->keys[j]);
            pm_print("%lu\n", bucket->keys[j]);
        }
    }
}

RACE_MAIN

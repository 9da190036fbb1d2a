/* A set of keys under a spin lock that lies in the pool; one thread inserts and removes them, another updates those that
 * it has found. (P-CLHT, bug 5 of PMRace, with the lock where P-CLHT has it.)
 *
 * Wrong: if a key was removed between finding and updating it, the update returns without releasing the lock. Whoever
 * comes next spins for ever. Each of its attempts stores to the pool, and changes nothing there.
 * Right: the lock is released on every path.
 *
 * Opening the pool sets the lock back, so that a crash leaves nobody waiting.
 *
 * bug: deadlock
 * hangs
 * allow: missing-flush @ effect|unlock
 * allow: transient-data @ effect|unlock
 * published
 */
#include "race.h"

enum { SLOTS = 8, KEYS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t taken;
    struct {
        PM_ALIGNED uint64_t key; /* 0: free */
        uint64_t value;
    } slots[SLOTS];
};

static void lock(struct pool *pool)
{
    while (__atomic_exchange_n(&pool->taken, 1, __ATOMIC_ACQUIRE)) /* @effect */
        sched_yield();
}

static void unlock(struct pool *pool)
{
    pm_store(&pool->taken, 0); /* @unlock */
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    if (pool->taken) {
        pool->taken = 0;
        pm_persist_it(pool->taken);
    }
}

/* Called with the lock. */
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
    lock(pool);
    int at = find(pool, key) < 0 ? find(pool, 0) : -1;
    if (at >= 0) {
        pool->slots[at].value = 0;
        pm_barrier();
        pool->slots[at].key = key;
        pm_persist_it(pool->slots[at]);
    }
    unlock(pool);
}

static void erase(struct pool *pool, uint64_t key)
{
    lock(pool);
    int at = find(pool, key);
    if (at >= 0) {
        pool->slots[at].key = 0;
        pm_persist_it(pool->slots[at]);
    }
    unlock(pool);
}

static bool contains(struct pool *pool, uint64_t key)
{
    lock(pool);
    bool there = find(pool, key) >= 0;
    unlock(pool);
    return there;
}

static bool update(struct pool *pool, uint64_t key)
{
    lock(pool);
    int at = find(pool, key);
    if (at < 0) {
#ifndef BUG
        unlock(pool);
#endif
        return false;
    }
    pool->slots[at].value++;
    pm_persist_it(pool->slots[at]);
    unlock(pool);
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

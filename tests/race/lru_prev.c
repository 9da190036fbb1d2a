/* A cache's list of items, latest first, with links in the pool: one thread puts items in front, another ages the
 * last one and its neighbour. (memcached-pmem, bug 11 of PMRace: unflushed `prev`, flushed class id.)
 *
 * Wrong: links are never written back, since recovery builds the list anew. But the thread that ages items finds the
 * neighbour by such a link, changes its class and makes that durable. After a crash the class of an item has changed
 * that was never the last one's neighbour. Recovery leaves classes alone.
 * Right: links are durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: unrepaired
 * check: missing-flush @ links|store
 * predicted: yes
 */
#include "race.h"

enum { ITEMS = 8, WARM = 1, COLD = 2, FIRST = 3 };

struct item {
    PM_ALIGNED uint64_t prev; /* number of an item, from 1 */
    uint64_t next;
    PM_ALIGNED uint64_t clsid; /* 0: not in the list yet */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t used;
    struct item items[ITEMS + 1];
};

/* Both ends, which are volatile. */
static uint64_t head, tail;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void link_item(struct pool *pool, uint64_t at)
{
    pool->items[at].next = head; /* @links */
    pool->items[at].prev = 0; /* @links */
    if (head)
        pool->items[head].prev = at; /* @store */
#ifndef BUG
    pm_flush(&pool->items[at], PM_LINE);
    pm_flush(&pool->items[head], PM_LINE);
    pm_fence();
#endif
    head = at;
    if (!tail)
        tail = at;
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    for (uint64_t at = 1; at <= pool->used; at++) {
        if (pool->items[at].clsid)
            link_item(pool, at);
    }
}

static void put(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    if (pool->used < ITEMS) {
        uint64_t made = pool->used + 1;
        pool->used = made;
        pm_persist_it(pool->used);
        pool->items[made].clsid = WARM;
        pm_persist_it(pool->items[made].clsid);
        link_item(pool, made);
    }
    pthread_mutex_unlock(&lock);
}

static void age(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    uint64_t search = tail, before = search ? pool->items[search].prev : 0; /* @read */
    if (before && pool->items[before].clsid == WARM) {
        pool->items[before].clsid = COLD; /* @effect */
        pm_persist_it(pool->items[before].clsid);
    }
    pthread_mutex_unlock(&lock);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < FIRST; i++) {
        if (index == 0)
            put(pool);
        else
            age(pool);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    put(pool);
    age(pool);
}

static void check(struct pool *pool)
{
    uint64_t seen = 0;
    for (uint64_t at = head; at; at = pool->items[at].next) {
        if (pool->items[at].clsid != WARM && pool->items[at].clsid != COLD)
            pm_fail("item %lu has class %lu", at, pool->items[at].clsid);
        if (++seen > pool->used)
            pm_fail("the list does not end");
        pm_print("%lu:%lu\n", at, pool->items[at].clsid);
    }
}

RACE_MAIN

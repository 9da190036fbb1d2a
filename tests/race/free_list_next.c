/* A slab's free list, linked through the free items: one thread frees, another allocates. (memcached-pmem, bug 12 of
 * PMRace: unflushed `next`, flushed flags.)
 *
 * Wrong: a freed item's link is made durable after the lock is released. In between another thread takes this item
 * and the next one by the link, and makes durable that it is used. After a crash the flag says that an item is used
 * to which no durable link led; whoever it was for does not know of it.
 * Right: the link is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: unrepaired
 * predicted: yes
 */
#include "race.h"

enum { ITEMS = 6, FREE = 1, USED = 2, ROUNDS = 3 };

struct item {
    PM_ALIGNED uint64_t next; /* number of an item, from 1 */
    PM_ALIGNED uint64_t flags;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct item items[ITEMS + 1];
};

static uint64_t slots; /* the first free item; recovery finds it */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC) {
        for (uint64_t at = 1; at <= ITEMS; at++) {
            pool->items[at].flags = USED;
            pm_persist_it(pool->items[at].flags);
        }
        pm_create(&pool->magic);
    }
    for (uint64_t at = 1; at <= ITEMS; at++) {
        if (pool->items[at].flags == FREE) {
            pool->items[at].next = slots;
            pm_persist_it(pool->items[at].next);
            slots = at;
        }
    }
}

static void free_item(struct pool *pool, uint64_t at)
{
    pthread_mutex_lock(&lock);
    if (pool->items[at].flags != USED) {
        pthread_mutex_unlock(&lock);
        return;
    }
    pool->items[at].flags = FREE;
    pm_persist_it(pool->items[at].flags);
    pool->items[at].next = slots; /* @store */
#ifndef BUG
    pm_persist_it(pool->items[at].next);
#endif
    slots = at;
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_window();
    pm_persist_it(pool->items[at].next);
#endif
}

static void take(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    uint64_t at = slots;
    if (at) {
        slots = pool->items[at].next; /* @read */
        pool->items[at].flags = USED; /* @effect */
        pm_persist_it(pool->items[at].flags);
    }
    pthread_mutex_unlock(&lock);
}

static void thread(struct pool *pool, int index)
{
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        if (index == 0)
            free_item(pool, i);
        else
            take(pool);
    }
}

static void work(struct pool *pool)
{
    for (uint64_t at = ROUNDS + 1; at <= ITEMS; at++)
        free_item(pool, at);
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    take(pool);
    free_item(pool, 1);
    free_item(pool, 2);
    take(pool);
}

static void check(struct pool *pool)
{
    int listed = 0, free_items = 0;
    for (uint64_t at = slots; at; at = pool->items[at].next) {
        if (pool->items[at].flags != FREE || ++listed > ITEMS)
            pm_fail("item %lu is in the free list, and has flags %lu", at, pool->items[at].flags);
    }
    for (uint64_t at = 1; at <= ITEMS; at++)
        free_items += pool->items[at].flags == FREE;
    if (listed != free_items)
        pm_fail("%d items are free, %d are in the list", free_items, listed);
    pm_print("%d free\n", free_items);
}

RACE_MAIN

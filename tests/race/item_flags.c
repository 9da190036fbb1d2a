/* A cache's items have flags; a thread that compacts the memory moves items, flags and value in one word.
 * (memcached-pmem, bug 13 of PMRace: unflushed flags, a value written from them.)
 *
 * Wrong: a flag is set in the item and made durable after the lock is released. In between the other thread reads the
 * flags, writes the item's word in its new place, and makes that durable. After a crash the copy carries a flag that
 * the item does not have.
 * Right: the flag is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 */
#include "race.h"

enum { ITEMS = 4, FETCHED = 1, ACTIVE = 2 };

struct item {
    PM_ALIGNED uint64_t value;
    PM_ALIGNED uint8_t flags;
    PM_ALIGNED uint64_t copy; /* value and flags in its new place; 0: not moved yet */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct item items[ITEMS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    if (pool->magic == PM_MAGIC)
        return;
    for (uint64_t i = 0; i < ITEMS; i++) {
        pool->items[i].value = 1000 + i;
        pm_persist_it(pool->items[i].value);
    }
    pm_create(&pool->magic);
}

static void set_flag(struct pool *pool, int i, uint8_t flag)
{
    struct item *item = &pool->items[i];
    pthread_mutex_lock(&lock);
    item->flags |= flag; /* @store */
#ifndef BUG
    pm_persist_it(item->flags);
#endif
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_window();
    pm_persist_it(item->flags);
#endif
}

static void move(struct pool *pool, int i)
{
    struct item *item = &pool->items[i];
    pthread_mutex_lock(&lock);
    uint64_t word = item->value << 8 | item->flags; /* @read */
    item->copy = word; /* @effect */
    pm_persist_it(item->copy);
    pthread_mutex_unlock(&lock);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < ITEMS; i++) {
        if (index == 0) {
            set_flag(pool, i, FETCHED);
            set_flag(pool, i, ACTIVE);
        } else {
            move(pool, i);
        }
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    set_flag(pool, 0, ACTIVE);
    move(pool, 0);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < ITEMS; i++) {
        struct item *item = &pool->items[i];
        if (item->copy && item->copy >> 8 != item->value)
            pm_fail("item %d was moved and has another value", i);
        if (item->copy & 0xff & ~(uint64_t)item->flags)
            pm_fail("the copy of item %d has flags %lu, the item has %u", i, item->copy & 0xff, item->flags);
        pm_print("%lu %u %s\n", item->value, item->flags, item->copy ? "moved" : "here");
    }
}

RACE_MAIN

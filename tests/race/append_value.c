/* A cache's items: `incr` changes a number in place, `append` makes a new item of the old text and more.
 * (memcached-pmem, bug 10 of PMRace.)
 *
 * Wrong: `incr` makes the text durable after the lock is released. In between another thread copies the text into a
 * new item, makes that durable, and puts it in the old one's place. After a crash the new item shows an increment
 * that was never durable. Nothing in the pool tells so: recovery finds an item like any other.
 * Right: the text is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: unrepaired
 * predicted: yes
 */
#include "race.h"

enum { KEYS = 2, ITEMS = 16, TEXT = 56, ROUNDS = 4 };

/* One line. */
struct item {
    PM_ALIGNED uint64_t length;
    char text[TEXT];
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t item; /* the one that counts */
    } keys[KEYS];
    PM_ALIGNED uint64_t used;
    struct item items[ITEMS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    if (pool->magic == PM_MAGIC)
        return;
    for (uint64_t key = 0; key < KEYS; key++) {
        struct item *item = &pool->items[key];
        memcpy(item->text, "10000000", 8);
        item->length = 8;
        pm_persist(item, sizeof *item);
        pool->keys[key].item = key;
        pm_persist_it(pool->keys[key].item);
    }
    pool->used = KEYS;
    pm_persist_it(pool->used);
    pm_create(&pool->magic);
}

static void incr(struct pool *pool, int key)
{
    char digits[9] = "";
    pthread_mutex_lock(&lock);
    struct item *item = &pool->items[pool->keys[key].item];
    memcpy(digits, item->text, 8);
    snprintf(digits, sizeof digits, "%08lu", strtoul(digits, NULL, 10) + 1);
    memcpy(item->text, digits, 8); /* @store */
#ifndef BUG
    pm_persist(item, sizeof *item);
#endif
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_window();
    pm_persist(item, sizeof *item);
#endif
}

static void append(struct pool *pool, int key, char what)
{
    pthread_mutex_lock(&lock);
    uint64_t made = pool->used;
    const struct item *old = &pool->items[pool->keys[key].item];
    if (made < ITEMS && old->length < TEXT) {
        pool->used = made + 1;
        pm_persist_it(pool->used);
        struct item *item = &pool->items[made];
        memcpy(item->text, old->text, old->length); /* @read */ /* @effect */
        item->text[old->length] = what;
        item->length = old->length + 1;
        pm_persist(item, sizeof *item);
        pool->keys[key].item = made;
        pm_persist_it(pool->keys[key].item);
    }
    pthread_mutex_unlock(&lock);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (index == 0)
            incr(pool, i % KEYS);
        else
            append(pool, i % KEYS, (char)('a' + i));
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    incr(pool, 0);
    append(pool, 0, 'z');
}

static void check(struct pool *pool)
{
    for (int key = 0; key < KEYS; key++) {
        uint64_t at = pool->keys[key].item;
        if (at >= pool->used || pool->items[at].length < 8 || pool->items[at].length > TEXT)
            pm_fail("key %d has item %lu", key, at);
        pm_print("%.*s\n", (int)pool->items[at].length, pool->items[at].text);
    }
}

RACE_MAIN

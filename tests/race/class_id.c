/* A cache's pages: one thread gives items to a larger class, another writes into each page's head which class its
 * items are of. (memcached-pmem, bug 14 of PMRace: an unflushed class id is read, and a class id written.)
 *
 * Wrong: an item's class is made durable after the lock is released. In between the other thread reads it, writes it
 * into the head of the page, and makes that durable. After a crash the page claims a class that its item has never
 * had.
 * Right: an item's class is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 */
#include "race.h"

enum { PAGES = 3, CLASSES = 3 };

struct page {
    PM_ALIGNED uint32_t clsid; /* never larger than that of its item */
    PM_ALIGNED struct {
        uint64_t key;
        uint8_t clsid; /* only grows */
    } item;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct page pages[PAGES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void promote(struct pool *pool, int i)
{
    struct page *page = &pool->pages[i];
    pthread_mutex_lock(&lock);
    if (page->item.clsid < CLASSES)
        page->item.clsid++; /* @store */
#ifndef BUG
    pm_persist_it(page->item);
#endif
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_window();
    pm_persist_it(page->item);
#endif
}

static void label(struct pool *pool, int i)
{
    struct page *page = &pool->pages[i];
    pthread_mutex_lock(&lock);
    uint8_t clsid = page->item.clsid; /* @read */
    page->clsid = clsid; /* @effect */
    pm_persist_it(page->clsid);
    pthread_mutex_unlock(&lock);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < PAGES * CLASSES; i++) {
        if (index == 0)
            promote(pool, i % PAGES);
        else
            label(pool, i % PAGES);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    promote(pool, 1);
    label(pool, 1);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < PAGES; i++) {
        struct page *page = &pool->pages[i];
        if (page->clsid > page->item.clsid)
            pm_fail("page %d is of class %u, its item of class %u", i, page->clsid, page->item.clsid);
        pm_print("%u %u\n", page->clsid, page->item.clsid);
    }
}

RACE_MAIN

/* A log whose head stands in one line with its first entries.
 *
 * Wrong: the head is moved on under a lock, and made durable when the entry is. Another thread reads the new head in
 * between, and makes its own entry durable behind it. After a crash there is an entry that the head has not come to.
 * Of the first entries, which are in the head's line, no crash can leave one without the head: only the later ones
 * show it.
 * Right: the head is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 */
#include "race.h"

enum { ENTRIES = 16, EACH = 4, WRITERS = 3 };

struct entry {
    uint64_t number, value; /* number: one more than its place; 0: none */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t head;
    struct entry entries[ENTRIES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void append(struct pool *pool, uint64_t value)
{
    pthread_mutex_lock(&lock);
    uint64_t at = pool->head; /* @read */
    pool->head = at + 1; /* @store */
#ifndef BUG
    pm_persist_it(pool->head);
#endif
    pthread_mutex_unlock(&lock);
    struct entry *entry = &pool->entries[at];
    entry->value = value; /* @effect */
    entry->number = at + 1; /* @effect */
    pm_persist(entry, sizeof *entry);
#ifdef BUG
    pm_window();
    pm_persist_it(pool->head);
#endif
}

static void thread(struct pool *pool, int index)
{
    for (uint64_t i = 0; i < EACH; i++)
        append(pool, 100 * (uint64_t)index + i);
}

static void work(struct pool *pool)
{
    pm_threads(pool, WRITERS, thread);
}

static void more(struct pool *pool)
{
    append(pool, 1000);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < ENTRIES; i++) {
        if (pool->entries[i].number && i >= pool->head)
            pm_fail("there is an entry at %lu, and the head is at %lu", i, pool->head);
        pm_print("%lu ", pool->entries[i].number);
    }
    pm_print("of %lu\n", pool->head);
}

RACE_MAIN

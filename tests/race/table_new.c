/* A hash table that is rehashed into another one, to which a word in the pool points while this goes on. (P-CLHT, bug
 * 3 of PMRace.)
 *
 * Wrong: the thread that rehashes reads this word before it is durable, and fills the table that it says. After a
 * crash nothing points to that table, and since it is not empty nobody knows what it is for: it is leaked.
 * Right: the word is durable before anything is stored where it points.
 *
 * bug: intra-thread-inconsistency
 * verdict: confirmed
 */
#include "race.h"

enum { TABLES = 4, SLOTS = 16, FIRST = 4, THREADS = 2, KEYS = 5 };

struct table {
    PM_ALIGNED uint64_t slots[SLOTS];
};

/* Tables are used one after the other. Those before the current one are garbage that somebody else takes away. */
struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t table;
    PM_ALIGNED uint64_t table_new; /* 0: none */
    struct table tables[TABLES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void clear(struct table *table)
{
    memset(table, 0, sizeof *table);
    pm_persist(table, sizeof *table);
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    if (pool->table_new) {
        if (pool->table_new > pool->table)
            clear(&pool->tables[pool->table_new]);
        pool->table_new = 0;
        pm_persist_it(pool->table_new);
    }
    for (uint64_t n = pool->table + 1; n < TABLES; n++) {
        for (int i = 0; i < SLOTS; i++) {
            if (pool->tables[n].slots[i])
                pm_fail("table %lu is not empty, and nothing points to it: it is leaked", n);
        }
    }
}

/* Called with the lock. */
static void rehash(struct pool *pool)
{
    const struct table *from = &pool->tables[pool->table];
    pm_store(&pool->table_new, pool->table + 1); /* @store */
#ifndef BUG
    pm_persist_it(pool->table_new);
#endif
    uint64_t number = pm_load(&pool->table_new); /* @read */
    struct table *to = &pool->tables[number];
    for (int i = 0; i < SLOTS; i++)
        to->slots[i] = from->slots[i]; /* @effect */
    pm_persist(to, sizeof *to);
#ifdef BUG
    pm_window();
    pm_persist_it(pool->table_new);
#endif
    pool->table = number;
    pm_persist_it(pool->table);
    pm_store(&pool->table_new, 0);
    pm_persist_it(pool->table_new);
}

static void insert(struct pool *pool, uint64_t key)
{
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < SLOTS && pool->tables[pool->table].slots[at] && pool->tables[pool->table].slots[at] != key)
        at++;
    if (at > 0 && at % FIRST == 0 && at < SLOTS && pool->table < (uint64_t)at / FIRST)
        rehash(pool);
    if (at < SLOTS) {
        struct table *table = &pool->tables[pool->table];
        table->slots[at] = key;
        pm_persist_it(table->slots[at]);
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
    insert(pool, 3);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < SLOTS; i++) {
        if (pool->tables[pool->table].slots[i])
            pm_print("%lu\n", pool->tables[pool->table].slots[i]);
    }
    pm_print("table %lu\n", pool->table);
}

RACE_MAIN

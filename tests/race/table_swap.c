/* A hash table that grows: the items are copied to a table four times as large, and the pool's word that says which
 * table is in use is swapped. (P-CLHT, bug 1 of PMRace.)
 *
 * Wrong: whoever swaps the word releases the lock first and makes it durable afterwards. In between, another thread
 * inserts a key into the new table and makes that durable. After a crash the old table is in use, and the key is
 * lost.
 * Right: the word is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 */
#include "race.h"

enum { TABLES = 2, FIRST = 4, LAST = 16, THREADS = 2, KEYS = 5 };

struct table {
    PM_ALIGNED uint64_t slots[LAST]; /* 0: free */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t current; /* the table in use; the first has FIRST slots, the other LAST */
    struct table tables[TABLES];
};

static pthread_mutex_t writers = PTHREAD_MUTEX_INITIALIZER;

static bool contains(const struct table *table, uint64_t key)
{
    for (int i = 0; i < LAST; i++) {
        if (table->slots[i] == key)
            return true;
    }
    return false;
}

/* A larger table than the one in use may hold copies: it was being filled. It cannot hold anything else. */
static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    for (uint64_t n = pool->current + 1; n < TABLES; n++) {
        for (int i = 0; i < LAST; i++) {
            uint64_t key = pool->tables[n].slots[i];
            if (key && !contains(&pool->tables[pool->current], key))
                pm_fail("key %lu is only in table %lu, and table %lu is in use", key, n, pool->current);
        }
    }
    for (uint64_t n = pool->current + 1; n < TABLES; n++) {
        memset(&pool->tables[n], 0, sizeof pool->tables[n]);
        pm_persist_it(pool->tables[n]);
    }
}

/* Called with the lock, returns with it. */
static void grow(struct pool *pool, uint64_t from)
{
    struct table *to = &pool->tables[from + 1];
    for (int i = 0; i < FIRST; i++)
        to->slots[i] = pool->tables[from].slots[i];
    pm_persist(to, sizeof *to);
    pool->current = from + 1; /* @store */
#ifdef BUG
    pthread_mutex_unlock(&writers);
    pm_window();
    pm_persist_it(pool->current);
    pthread_mutex_lock(&writers);
#else
    pm_persist_it(pool->current);
#endif
}

static void insert(struct pool *pool, uint64_t key)
{
    pthread_mutex_lock(&writers);
    for (;;) {
        uint64_t current = pool->current; /* @read */
        struct table *table = &pool->tables[current];
        int at = 0, size = current ? LAST : FIRST;
        while (at < size && table->slots[at] && table->slots[at] != key)
            at++;
        if (at < size) {
            if (table->slots[at] != key) {
                table->slots[at] = key; /* @effect */
                pm_persist_it(table->slots[at]);
            }
            break;
        }
        if (current + 1 == TABLES)
            break;
        grow(pool, current);
    }
    pthread_mutex_unlock(&writers);
}

static void inserter(struct pool *pool, int index)
{
    for (int i = 0; i < KEYS; i++)
        insert(pool, (uint64_t)(100 * (index + 1) + i));
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, inserter);
}

static void more(struct pool *pool)
{
    for (uint64_t key = 1; key <= 3; key++)
        insert(pool, key);
}

static void check(struct pool *pool)
{
    struct table *table = &pool->tables[pool->current];
    for (int i = 0; i < LAST; i++) {
        for (int j = 0; j < i; j++) {
            if (table->slots[i] && table->slots[i] == table->slots[j])
                pm_fail("key %lu is there twice", table->slots[i]);
        }
        if (table->slots[i])
            pm_print("%lu\n", table->slots[i]);
    }
}

RACE_MAIN

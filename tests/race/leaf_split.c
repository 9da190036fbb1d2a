/* The leaves of a B+-tree, under one spin lock. A full leaf is split: the upper half of its keys moves to a new leaf, and
 * the old one points to that. Each split is counted in a histogram in the pool, before the lock is given back.
 *
 * Wrong: what points to the new leaf is made durable after the lock is given back. Another thread comes by it, inserts a key
 * into the new leaf, and makes that durable. After a crash nothing points to the new leaf, and the key is lost.
 * Right: the pointer is durable before the lock is given back.
 *
 * Who waits for the lock spins, and whoever has it comes to hundreds of accesses after the store: the schedule that shows the
 * bug has it go on to where it gives the lock back, and no further.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 */
#include "race.h"

enum { LEAVES = 16, KEYS = 3, THREADS = 3, INSERTS = 4, BUCKETS = 64, ROUNDS = 300 };

/* Keys from `limit` on, if there is a limit, are the next leaf's; those that are still here count as gone. */
struct leaf {
    PM_ALIGNED uint64_t next;
    uint64_t limit;
    PM_ALIGNED uint64_t keys[KEYS]; /* 0: free */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t used; /* how many leaves were given out */
    struct leaf leaves[LEAVES];
    PM_ALIGNED uint64_t histogram[BUCKETS];
};

static pthread_spinlock_t lock;

static bool holds(const struct leaf *leaf, uint64_t key)
{
    for (int i = 0; i < KEYS; i++) {
        if (leaf->keys[i] == key)
            return !leaf->limit || key < leaf->limit;
    }
    return false;
}

static struct leaf *leaf_of(struct pool *pool, uint64_t key)
{
    struct leaf *leaf = &pool->leaves[0];
    while (leaf->limit && key >= leaf->limit)
        leaf = &pool->leaves[leaf->next]; /* @read */
    return leaf;
}

/* A leaf that nobody points to holds copies: a leaf was being split. It cannot hold anything else. */
static void open_pool(struct pool *pool)
{
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    if (pool->magic != PM_MAGIC) {
        pool->used = 1;
        pm_persist_it(pool->used);
        pm_create(&pool->magic);
    }
    for (uint64_t n = 0; n < pool->used; n++) {
        for (int i = 0; i < KEYS; i++) {
            uint64_t key = pool->leaves[n].keys[i];
            if (key && !holds(leaf_of(pool, key), key))
                pm_fail("key %lu is in leaf %lu, and cannot be found", key, n);
        }
    }
}

static uint64_t middle_of(const struct leaf *leaf)
{
    for (int i = 0; i < KEYS; i++) {
        int smaller = 0;
        for (int j = 0; j < KEYS; j++)
            smaller += leaf->keys[j] < leaf->keys[i];
        if (smaller == KEYS / 2)
            return leaf->keys[i];
    }
    return 0;
}

static void count(struct pool *pool, uint64_t middle)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        pool->histogram[(middle + i) % BUCKETS]++;
    pm_persist_it(pool->histogram);
}

/* False if there is no more room. */
static bool split(struct pool *pool, struct leaf *leaf)
{
    if (pool->used == LEAVES)
        return false;
    uint64_t made = pool->used, middle = middle_of(leaf);
    struct leaf *next = &pool->leaves[made];
    for (int i = 0; i < KEYS; i++)
        next->keys[i] = leaf->keys[i] >= middle ? leaf->keys[i] : 0;
    next->limit = leaf->limit;
    next->next = leaf->next;
    pm_persist(next, sizeof *next);
    pool->used = made + 1;
    pm_persist_it(pool->used);
    leaf->next = made; /* @store */
    pm_barrier();
    leaf->limit = middle; /* @store */
#ifndef BUG
    pm_persist(leaf, PM_LINE);
#endif
    count(pool, middle);
    return true;
}

/* Called with the lock. A key that has moved is overwritten only when that is durable. False if there is no room. */
static bool place(struct leaf *leaf, uint64_t key)
{
    for (int i = 0; i < KEYS; i++) {
        uint64_t there = leaf->keys[i];
        if (there && (!leaf->limit || there < leaf->limit))
            continue;
        if (there)
            pm_persist(leaf, PM_LINE);
        leaf->keys[i] = key; /* @effect */
        pm_persist_it(leaf->keys[i]);
        return true;
    }
    return false;
}

static void insert(struct pool *pool, uint64_t key)
{
    for (bool done = false; !done;) {
        struct leaf *late = NULL;
        pthread_spin_lock(&lock);
        struct leaf *leaf = leaf_of(pool, key);
        done = holds(leaf, key) || place(leaf, key);
        if (!done) {
            late = leaf;
            done = !split(pool, leaf);
        }
        pthread_spin_unlock(&lock);
        if (late) {
            pm_window();
            pm_persist(late, PM_LINE);
        }
    }
}

static void inserter(struct pool *pool, int index)
{
    for (int i = 0; i < INSERTS; i++)
        insert(pool, (uint64_t)(10 + 10 * i + index));
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, inserter);
}

static void more(struct pool *pool)
{
    insert(pool, 5);
    insert(pool, 99);
}

static void check(struct pool *pool)
{
    for (uint64_t key = 1; key <= 100; key++) {
        if (holds(leaf_of(pool, key), key))
            pm_print("%lu\n", key);
    }
}

RACE_MAIN

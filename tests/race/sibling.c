/* A list of nodes with sorted ranges of keys, as the leaves of a B-link tree: a full node is split, and points to its
 * new sibling. (FAST_FAIR, bug 8 of PMRace.)
 *
 * Wrong: the pointer to the sibling is stored under the node's lock and made durable after it is released. Another
 * thread follows it in between, inserts a key into the sibling, and makes that durable. After a crash nothing points
 * to the sibling, and the key is lost.
 * Right: the pointer is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 */
#include "race.h"

enum { NODES = 12, KEYS = 4, THREADS = 2, INSERTS = 6 };

/* Keys from `limit` on, if there is a limit, are the sibling's; what is left of them here counts as free. */
struct node {
    PM_ALIGNED uint64_t limit;
    uint64_t sibling;
    PM_ALIGNED uint64_t keys[KEYS]; /* 0: free */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t used; /* how many nodes were given out */
    struct node nodes[NODES];
};

static pthread_mutex_t locks[NODES], allocator = PTHREAD_MUTEX_INITIALIZER;

static bool holds(const struct node *node, uint64_t key)
{
    for (int i = 0; i < KEYS; i++) {
        if (node->keys[i] == key)
            return !node->limit || key < node->limit;
    }
    return false;
}

static bool find(struct pool *pool, uint64_t key)
{
    uint64_t at = 0;
    while (pool->nodes[at].limit && key >= pool->nodes[at].limit)
        at = pool->nodes[at].sibling;
    return holds(&pool->nodes[at], key);
}

/* A node that nobody points to may hold copies: a node was being split. It cannot hold anything else. */
static void open_pool(struct pool *pool)
{
    for (int i = 0; i < NODES; i++)
        pthread_mutex_init(&locks[i], NULL);
    if (pool->magic != PM_MAGIC) {
        pool->used = 1;
        pm_persist_it(pool->used);
        pm_create(&pool->magic);
    }
    for (uint64_t n = 0; n < pool->used; n++) {
        for (int i = 0; i < KEYS; i++) {
            uint64_t key = pool->nodes[n].keys[i];
            if (key && !find(pool, key))
                pm_fail("key %lu is in node %lu, and cannot be found", key, n);
        }
    }
}

/* 0 if there is none. */
static uint64_t new_node(struct pool *pool)
{
    pthread_mutex_lock(&allocator);
    uint64_t made = pool->used < NODES ? pool->used : 0;
    if (made) {
        pool->used = made + 1;
        pm_persist_it(pool->used);
    }
    pthread_mutex_unlock(&allocator);
    return made;
}

/* Called with the node's lock, returns with it. All keys of the node count. */
static bool split(struct pool *pool, uint64_t at)
{
    struct node *node = &pool->nodes[at];
    uint64_t made = new_node(pool), middle = 0;
    if (!made)
        return false;
    struct node *sibling = &pool->nodes[made];
    for (int i = 0; i < KEYS; i++) {
        int smaller = 0;
        for (int j = 0; j < KEYS; j++)
            smaller += node->keys[j] < node->keys[i];
        if (smaller == KEYS / 2)
            middle = node->keys[i];
    }
    for (int i = 0; i < KEYS; i++)
        sibling->keys[i] = node->keys[i] >= middle ? node->keys[i] : 0;
    sibling->limit = node->limit;
    sibling->sibling = node->sibling;
    pm_persist(sibling, sizeof *sibling);
    node->sibling = made; /* @store */
    pm_barrier();
    node->limit = middle;
#ifdef BUG
    pthread_mutex_unlock(&locks[at]);
    pm_window();
    pm_persist(node, PM_LINE);
    pthread_mutex_lock(&locks[at]);
#else
    pm_persist(node, PM_LINE);
#endif
    return true;
}

static void insert(struct pool *pool, uint64_t key)
{
    uint64_t at = 0;
    pthread_mutex_lock(&locks[0]);
    for (;;) {
        struct node *node = &pool->nodes[at];
        if (node->limit && key >= node->limit) {
            uint64_t next = node->sibling; /* @read */
            pthread_mutex_unlock(&locks[at]);
            pthread_mutex_lock(&locks[next]);
            at = next;
            continue;
        }
        int slot = 0;
        while (slot < KEYS && node->keys[slot] != key && node->keys[slot] &&
               (!node->limit || node->keys[slot] < node->limit))
            slot++;
        if (slot < KEYS) {
            if (!holds(node, key)) {
                node->keys[slot] = key; /* @effect */
                pm_persist_it(node->keys[slot]);
            }
            break;
        }
        if (!split(pool, at))
            break;
    }
    pthread_mutex_unlock(&locks[at]);
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
    uint64_t last = 0;
    for (uint64_t at = 0;;) {
        struct node *node = &pool->nodes[at];
        for (uint64_t key = last ? last : 1; key <= 100; key++) {
            if (holds(node, key))
                pm_print("%lu in %lu\n", key, at);
        }
        if (!node->limit)
            break;
        if (node->limit <= last || node->sibling >= pool->used)
            pm_fail("node %lu points to %lu", at, node->sibling);
        last = node->limit;
        at = node->sibling;
    }
}

RACE_MAIN

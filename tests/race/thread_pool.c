/* A pool of threads that take jobs from a queue in ordinary memory; each job computes a node of a tree in persistent
 * memory, and whoever completes the second child of a node puts the node itself into the queue.
 *
 * Clean: a node is durable before its parent's job can begin.
 *
 * clean
 */
#include "race.h"

enum { WORKERS = 3, LEAVES = 4, NODES = 2 * LEAVES };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t sum; /* 0: not computed yet */
    } nodes[NODES]; /* 1 is the root; the children of n are 2n and 2n + 1 */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int queue[NODES], queued, taken, complete[NODES];
static bool ended;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void compute(struct pool *pool, int node)
{
    uint64_t sum = (uint64_t)node * 11;
    if (node < LEAVES)
        sum = pool->nodes[2 * node].sum + pool->nodes[2 * node + 1].sum;
    pool->nodes[node].sum = sum;
    pm_persist_it(pool->nodes[node]);
}

static void worker(struct pool *pool, int index)
{
    (void)index;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (taken == queued && !ended)
            pthread_cond_wait(&changed, &mutex);
        if (taken == queued)
            break;
        int node = queue[taken++];
        pthread_mutex_unlock(&mutex);
        compute(pool, node);
        pthread_mutex_lock(&mutex);
        if (node > 1 && ++complete[node / 2] == 2)
            queue[queued++] = node / 2;
        ended = node == 1;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
}

static void work(struct pool *pool)
{
    for (int node = LEAVES; node < NODES; node++)
        queue[queued++] = node;
    pm_threads(pool, WORKERS, worker);
}

static void more(struct pool *pool)
{
    for (int node = NODES - 1; node > 0; node--)
        compute(pool, node);
}

static void check(struct pool *pool)
{
    for (int node = 1; node < LEAVES; node++) {
        if (pool->nodes[node].sum && pool->nodes[node].sum != pool->nodes[2 * node].sum + pool->nodes[2 * node + 1].sum)
            pm_fail("node %d is not the sum of its children", node);
    }
    pm_print("%lu\n", pool->nodes[1].sum);
}

RACE_MAIN

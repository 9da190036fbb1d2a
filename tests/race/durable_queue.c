/* The durable queue of Friedman and others: lock-free, with helping write-backs, and a place in the pool for what
 * each thread has dequeued last.
 *
 * Clean: links, marks and results are durable before anybody relies on them. Both ends are volatile.
 *
 * clean
 * published
 */
#include "race.h"

enum { PRODUCERS = 2, CONSUMERS = 2, NODES = 3, ALL = PRODUCERS * NODES + 1 };

struct node {
    PM_ALIGNED uint64_t value;
    uint32_t next;
    PM_ALIGNED uint32_t dequeuer; /* 0: still in the queue */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct node nodes[ALL + 1]; /* node 0 has no value */
    struct {
        PM_ALIGNED uint64_t value;
    } results[CONSUMERS][NODES];
};

static uint32_t head, tail;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    head = 0;
    while (pool->nodes[head].next && pool->nodes[pool->nodes[head].next].dequeuer)
        head = pool->nodes[head].next;
    for (tail = head; pool->nodes[tail].next; tail = pool->nodes[tail].next) {
        if (pool->nodes[pool->nodes[tail].next].dequeuer)
            pm_fail("node %u is dequeued before the one in front of it", pool->nodes[tail].next);
    }
}

static void enqueue(struct pool *pool, uint32_t at, uint64_t value)
{
    struct node *node = &pool->nodes[at];
    if (node->value)
        return;
    node->value = value;
    pm_persist(node, PM_LINE);
    for (;;) {
        uint32_t last = pm_load(&tail);
        uint32_t next = pm_load(&pool->nodes[last].next);
        if (next) {
            pm_persist(&pool->nodes[last], PM_LINE);
            pm_swap_if(&tail, last, next);
        } else if (pm_swap_if(&pool->nodes[last].next, 0, at)) {
            pm_persist(&pool->nodes[last], PM_LINE);
            pm_swap_if(&tail, last, at);
            return;
        }
    }
}

static bool dequeue(struct pool *pool, int consumer, int result)
{
    for (;;) {
        uint32_t first = pm_load(&head);
        uint32_t next = pm_load(&pool->nodes[first].next);
        if (!next)
            return false;
        pm_persist(&pool->nodes[first], PM_LINE);
        bool mine = pm_swap_if(&pool->nodes[next].dequeuer, 0, (uint32_t)consumer + 1);
        pm_persist_it(pool->nodes[next].dequeuer);
        if (mine) {
            pool->results[consumer][result].value = pool->nodes[next].value;
            pm_persist_it(pool->results[consumer][result]);
        }
        pm_swap_if(&head, first, next);
        if (mine)
            return true;
    }
}

static void thread(struct pool *pool, int index)
{
    int results = 0;
    for (int i = 0; i < NODES; i++) {
        if (index < PRODUCERS)
            enqueue(pool, (uint32_t)(index * NODES + i + 1), (uint64_t)(100 * (index + 1) + i));
        else
            results += dequeue(pool, index - PRODUCERS, results);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, PRODUCERS + CONSUMERS, thread);
}

static void more(struct pool *pool)
{
    enqueue(pool, ALL, 999);
    dequeue(pool, 0, 0);
}

static void check(struct pool *pool)
{
    for (uint32_t at = pool->nodes[0].next; at; at = pool->nodes[at].next)
        pm_print("%lu %u\n", pool->nodes[at].value, pool->nodes[at].dequeuer);
}

RACE_MAIN

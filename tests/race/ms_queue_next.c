/* A lock-free queue (Michael's and Scott's) whose nodes are in the pool. Both ends are volatile: recovery starts at
 * the first node and passes over those that are marked as dequeued.
 *
 * Wrong: the link to a new node is set by compare-and-exchange, and written back only when all is done. A thread that
 * dequeues follows it, marks the node, and makes the mark durable. After a crash the node is dequeued, and was never
 * in the queue.
 * Right: whoever sets or follows a link makes it durable before anything that relies on it.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 * published
 */
#include "race.h"

enum { PRODUCERS = 2, NODES = 3, ALL = PRODUCERS * NODES + 1 };

struct node {
    PM_ALIGNED uint64_t value; /* 0: never used */
    uint32_t next;
    PM_ALIGNED uint32_t dequeued;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct node nodes[ALL + 1]; /* node 0 is there from the beginning, and has no value */
};

static uint32_t head, tail;

/* All that is marked stands at the beginning. */
static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    uint32_t marked = 0, passed = 0, at = 0;
    for (int i = 1; i <= ALL; i++)
        marked += pool->nodes[i].dequeued != 0;
    head = 0;
    for (int i = 0; i <= ALL; i++) {
        uint32_t next = pool->nodes[at].next;
        if (next > ALL)
            pm_fail("node %u points to %u", at, next);
        if (next && pool->nodes[next].dequeued && head == at) {
            head = next;
            passed++;
        }
        if (!next)
            break;
        at = next;
    }
    tail = at;
    if (passed != marked)
        pm_fail("%u nodes are dequeued, %u of them were in the queue", marked, passed);
}

static void persist_next(struct node *node)
{
#ifndef BUG
    pm_persist(node, sizeof node->value + sizeof node->next);
#else
    (void)node;
#endif
}

static void enqueue(struct pool *pool, uint32_t at, uint64_t value)
{
    struct node *node = &pool->nodes[at];
    if (node->value)
        return;
    node->value = value;
    pm_persist(node, sizeof node->value);
    for (;;) {
        uint32_t last = pm_load(&tail);
        uint32_t next = pm_load(&pool->nodes[last].next);
        if (next == 0 && pm_swap_if(&pool->nodes[last].next, 0, at)) { /* @store */
            persist_next(&pool->nodes[last]);
            pm_swap_if(&tail, last, at);
            return;
        }
        persist_next(&pool->nodes[last]);
        if (next)
            pm_swap_if(&tail, last, next);
    }
}

/* The value, or 0 if there is none. */
static uint64_t dequeue(struct pool *pool)
{
    for (;;) {
        uint32_t first = pm_load(&head);
        uint32_t next = pm_load(&pool->nodes[first].next); /* @read */
        if (next == 0)
            return 0;
        persist_next(&pool->nodes[first]);
        struct node *node = &pool->nodes[next];
        bool mine = pm_swap_if(&node->dequeued, 0, 1); /* @effect */
        pm_persist_it(node->dequeued);
        pm_swap_if(&head, first, next);
        if (mine) {
            pm_window();
            return node->value;
        }
    }
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < NODES; i++) {
        if (index < PRODUCERS)
            enqueue(pool, (uint32_t)(index * NODES + i + 1), (uint64_t)(100 * (index + 1) + i));
        else
            dequeue(pool);
    }
}

static void persist_links(struct pool *pool)
{
    for (int i = 0; i <= ALL; i++)
        pm_flush(&pool->nodes[i], PM_LINE);
    pm_fence();
}

static void work(struct pool *pool)
{
    pm_threads(pool, PRODUCERS + 1, thread);
    persist_links(pool);
}

static void more(struct pool *pool)
{
    enqueue(pool, ALL, 999);
    dequeue(pool);
    persist_links(pool);
}

static void check(struct pool *pool)
{
    for (uint32_t at = pool->nodes[0].next; at; at = pool->nodes[at].next)
        pm_print("%lu%s\n", pool->nodes[at].value, pool->nodes[at].dequeued ? " gone" : "");
}

RACE_MAIN

/* A queue of linked nodes with a tail that may lag behind: whoever meets a node after the tail moves the tail on.
 *
 * Clean: node, link and only then the tail are stored; node and link are durable one after the other, the tail is
 * never written back. A tail that survived names a node whose link was durable before, so the walk from it reaches the
 * end. A stale one costs a longer walk.
 *
 * clean
 * allow: missing-flush @ tail
 * allow: transient-data @ tail
 */
#include "../pm.h"

enum { NODES = 5 };

struct node {
    PM_ALIGNED uint64_t value;
    uint64_t next; /* number of a node; 0: last */
};

struct pool {
    PM_ALIGNED uint64_t tail;        /* number of a node; node 0 is an empty head */
    struct node nodes[NODES + 1];
};

static void open_pool(struct pool *pool)
{
    PM_EXCLUDE(&pool->tail, sizeof pool->tail);
}

static uint64_t last(struct pool *pool)
{
    while (pool->nodes[pool->tail].next != 0)
        pool->tail = pool->nodes[pool->tail].next; /* @tail */
    return pool->tail;
}

static void operation(struct pool *pool, int i)
{
    uint64_t at = (uint64_t)i + 1, before = last(pool);
    pool->nodes[at].value = 20 + at;
    pm_persist(&pool->nodes[at], sizeof(struct node));
    pool->nodes[before].next = at;
    pm_persist(&pool->nodes[before].next, sizeof(uint64_t));
    /* Every second insertion leaves the tail to the next reader. */
    if (i % 2 == 0)
        pool->tail = at; /* @tail */
    pm_ack(i);
}

static void check(struct pool *pool)
{
    uint64_t end = 0;
    for (uint64_t at = pool->nodes[0].next; at != 0; at = pool->nodes[at].next) {
        if (at > NODES || at <= end || pool->nodes[at].value != 20 + at)
            pm_fail("node %lu is damaged", at);
        pm_print("%lu\n", pool->nodes[at].value);
        end = at;
    }
    if (pool->tail > end)
        pm_fail("the tail is ahead of the queue");
    if (last(pool) != end)
        pm_fail("the tail does not lead to the end");
}

PM_MAIN(NODES)

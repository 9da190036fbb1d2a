/* A linked queue: a node is durable, then its link from the last one, then the tail. A crash may leave the tail one
 * node behind; recovery lets it catch up.
 *
 * case 1: ordering, not-ordered @ link
 * case 2: writeback, not-persisted @ link
 * case 3: redundant writeback, double-flush @ link-flush
 *
 * 1: the tail is stored before the link is fenced. 2: the link is not written back: the node's line is, once more. 3:
 * the link's line is written back twice.
 * needs: clflushopt
 */
#include "cases.h"

enum { NODES = 4 };

struct node {
    PM_ALIGNED uint64_t value;
    uint64_t next;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t tail; /* number of the last node; node 0 is an empty head */
    struct node nodes[NODES + 1];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    uint64_t next = pool->nodes[pool->tail].next;
    if (next != 0) {
        pool->tail = next;
        pm_persist(&pool->tail, sizeof pool->tail);
    }
}

static void operation(struct pool *pool, int i)
{
    uint64_t at = (uint64_t)i + 1;
    struct node *node = &pool->nodes[at], *last = &pool->nodes[pool->tail];
    node->value = 60 + at;
    pm_persist(node, sizeof *node);
    brownout_is_persisted(node, sizeof *node);
    last->next = at; /* @link */
    if (BUGGY(2))
        pm_flush(node, sizeof *node);
    else
        pm_flush(&last->next, sizeof last->next);
    if (BUGGY(3))
        pm_flush(last, sizeof *last); /* @link-flush */
    if (!BUGGY(1)) {
        pm_fence();
        brownout_is_persisted(&last->next, sizeof last->next);
    }
    pool->tail = at;
    if (!BUGGY(2))
        brownout_is_ordered_before(&last->next, sizeof last->next, &pool->tail, sizeof pool->tail);
    pm_persist(&pool->tail, sizeof pool->tail);
}

static void check(struct pool *pool)
{
    uint64_t last = 0;
    for (uint64_t at = pool->nodes[0].next; at != 0; at = pool->nodes[at].next) {
        if (at > NODES || pool->nodes[at].value != 60 + at)
            pm_fail("node %lu is damaged", at);
        pm_print("%lu\n", pool->nodes[at].value);
        last = at;
    }
    if (pool->tail != last)
        pm_fail("the tail is %lu, the last node %lu", pool->tail, last);
}

PM_CASES_MAIN(NODES)

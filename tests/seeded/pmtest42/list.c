/* A linked list with insertion at its head.
 *
 * case 1: ordering, not-ordered @ node
 * case 2: writeback, not-persisted @ node
 * case 3: writeback, not-persisted @ node
 * case 4: redundant writeback, clean-flush @ again
 *
 * 1: node and head are made durable by one fence. 2: the write-back is given the variable that holds the node's
 * address. 3: the write-back comes before the store. 4: the node is written back again after it was linked.
 * needs: clflushopt
 */
#include "cases.h"

enum { NODES = 4 };

struct node {
    PM_ALIGNED uint64_t value;
    uint64_t next; /* number of a node, from 1 */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t head;
    struct node nodes[NODES];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct node *node = &pool->nodes[i];
    if (BUGGY(3))
        pm_flush(node, sizeof *node);
    *node = (struct node){.value = 30 + (uint64_t)i, .next = pool->head}; /* @node */
    if (BUGGY(2))
        pm_flush(&node, sizeof node);
    else if (!BUGGY(3))
        pm_flush(node, sizeof *node);
    if (!BUGGY(1)) {
        pm_fence();
        brownout_is_persisted(node, sizeof *node);
    }
    pool->head = (uint64_t)i + 1;
    if (BUGGY(1))
        brownout_is_ordered_before(node, sizeof *node, &pool->head, sizeof pool->head);
    if (BUGGY(4))
        pm_flush(node, sizeof *node); /* @again */
    pm_persist(&pool->head, sizeof pool->head);
    brownout_is_persisted(&pool->head, sizeof pool->head);
}

static void check(struct pool *pool)
{
    for (uint64_t at = pool->head; at != 0; at = pool->nodes[at - 1].next) {
        if (at > NODES || pool->nodes[at - 1].value != 29 + at)
            pm_fail("node %lu is damaged", at);
        pm_print("%lu\n", pool->nodes[at - 1].value);
    }
}

PM_CASES_MAIN(NODES)

/* A linked list. A node is filled, made durable, and then linked by the head.
 *
 * Wrong: the write-back is given the address of the local variable that holds the node's address. That line is on the
 * stack; the node stays in the cache. The head, which is durable, then leads to a node of zeros.
 * Right: the node itself is written back.
 *
 * bug: missing-flush @ node-store
 * bug: flush-outside-pm @ stack-flush
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ node-store
 */
#include "../pm.h"

enum { NODES = 4 };

struct node {
    PM_ALIGNED uint64_t value;
    uint64_t next; /* number of a node, from 1; 0 ends the list */
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
    *node = (struct node){.value = 1000 + (uint64_t)i, .next = pool->head}; /* @node-store */
#ifdef BUG
    pm_flush(&node, sizeof node); /* @stack-flush */
#else
    pm_flush(node, sizeof *node);
#endif
    pm_fence();
    pool->head = (uint64_t)i + 1;
    pm_persist(&pool->head, sizeof pool->head);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t at = pool->head; at != 0; at = pool->nodes[at - 1].next) {
        if (at > NODES || pool->nodes[at - 1].value != 1000 + at - 1)
            pm_fail("node %lu is linked and not there", at);
        if (pool->nodes[at - 1].next >= at)
            pm_fail("node %lu links forward", at);
        pm_print("%lu\n", pool->nodes[at - 1].value);
    }
}

PM_MAIN(NODES)

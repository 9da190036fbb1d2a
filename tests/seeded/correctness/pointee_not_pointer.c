/* A stack of nodes: push fills a node, makes it durable, and swings the top to it.
 *
 * Wrong: after the swing the line that the top *leads to* is written back, a second time, instead of the line that
 * *holds* the top. The pushes are acknowledged and the top was never made durable: a crash may lose all of them. Every
 * crash state is a shorter stack, so nothing but the acknowledgements shows it.
 * Right: the top itself is persisted.
 *
 * bug: missing-flush @ publish
 * explore: yes
 * symptom: ops
 * explored: not-atomic @ publish
 */
#include "../pm.h"

enum { NODES = 4 };

struct node {
    PM_ALIGNED uint64_t value;
    uint64_t below; /* number of a node, from 1; 0 is the bottom */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t top;
    struct node nodes[NODES];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct node *node = &pool->nodes[i];
    *node = (struct node){.value = 7 * (uint64_t)i + 1, .below = pool->top};
    pm_persist(node, sizeof *node);
    pool->top = (uint64_t)i + 1; /* @publish */
#ifdef BUG
    pm_persist(&pool->nodes[pool->top - 1], sizeof(struct node));
#else
    pm_persist(&pool->top, sizeof pool->top);
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t at = pool->top; at != 0; at = pool->nodes[at - 1].below) {
        if (at > NODES || pool->nodes[at - 1].value != 7 * (at - 1) + 1 || pool->nodes[at - 1].below >= at)
            pm_fail("node %lu is damaged", at);
        pm_print("%lu\n", pool->nodes[at - 1].value);
    }
}

PM_MAIN(NODES)

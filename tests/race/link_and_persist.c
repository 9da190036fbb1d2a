/* A lock-free list to which three threads add in front; the lowest bit of a link says that it may not be durable yet.
 *
 * Clean (link-and-persist): whoever reads a link with this bit makes it durable and clears the bit before it relies
 * on it. Recovery takes links as they are, with the bit or without.
 *
 * clean
 * allow: missing-flush @ mark
 * allow: overwritten-unpersisted @ mark
 * published
 */
#include "race.h"

enum { THREADS = 3, NODES = 3, ALL = THREADS * NODES + 1 };

struct node {
    PM_ALIGNED uint64_t value; /* 0: never used */
    uint64_t next;             /* twice the number of a node, from 1, and the mark */
    PM_ALIGNED uint64_t seen;  /* the value that was in front when this one was added, times 1000 */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t head; /* as `next` */
    struct node nodes[ALL + 1];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

/* What is in front, durable. */
static uint64_t front(struct pool *pool)
{
    uint64_t head = pm_load(&pool->head);
    if (head & 1) {
        pm_persist_it(pool->head);
        pm_swap_if(&pool->head, head, head & ~1ULL); /* @mark */
    }
    return head & ~1ULL;
}

static void add(struct pool *pool, uint64_t at, uint64_t value)
{
    struct node *node = &pool->nodes[at];
    if (node->value)
        return;
    for (;;) {
        uint64_t head = front(pool);
        node->seen = 1000 * pool->nodes[head / 2].value;
        pm_persist_it(node->seen);
        node->next = head;
        pm_barrier();
        node->value = value;
        pm_persist(node, PM_LINE);
        if (pm_swap_if(&pool->head, head, 2 * at | 1))
            break;
    }
    front(pool);
}

static void adder(struct pool *pool, int index)
{
    for (int i = 0; i < NODES; i++)
        add(pool, (uint64_t)(index * NODES + i + 1), (uint64_t)(100 * (index + 1) + i));
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, adder);
}

static void more(struct pool *pool)
{
    add(pool, ALL, 999);
}

static void check(struct pool *pool)
{
    int length = 0;
    for (uint64_t at = pool->head / 2; at; at = pool->nodes[at].next / 2) {
        const struct node *node = &pool->nodes[at];
        if (at > ALL || ++length > ALL || !node->value)
            pm_fail("node %lu is not one of the list", at);
        if (node->seen != 1000 * pool->nodes[node->next / 2].value)
            pm_fail("node %lu was not added in front of %lu", at, node->next / 2);
        pm_print("%lu\n", node->value);
    }
}

RACE_MAIN

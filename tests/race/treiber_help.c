/* A lock-free stack (Treiber's) in the pool: two threads push, and a third looks at what is on top and notes it.
 *
 * Wrong: whoever pushes makes the top durable, right after its compare-and-exchange. But whoever only looks relies on
 * that, and may come in between. Its note becomes durable first. After a crash it has seen a node on a stack that
 * never had it.
 * Right: whoever relies on the top makes it durable, too (a helping write-back).
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 * published
 */
#include "race.h"

enum { PUSHERS = 2, NODES = 4, LOOKS = 6, ALL = PUSHERS * NODES + 1 };

struct node {
    PM_ALIGNED uint64_t value; /* 0: never used */
    uint32_t next;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t head; /* version << 32 | number of the node on top, from 1 */
    struct node nodes[ALL + 1];
    struct {
        PM_ALIGNED uint64_t head;
    } notes[LOOKS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void push(struct pool *pool, uint32_t at, uint64_t value)
{
    struct node *node = &pool->nodes[at];
    if (node->value)
        return;
    for (;;) {
        uint64_t head = pm_load(&pool->head);
        pm_persist_it(pool->head);
        node->next = (uint32_t)head;
        pm_barrier();
        node->value = value;
        pm_persist(node, sizeof *node);
        uint64_t next = ((head >> 32) + 1) << 32 | at;
        if (pm_swap_if(&pool->head, head, next)) /* @store */
            break;
    }
    pm_window();
    pm_persist_it(pool->head);
}

static void look(struct pool *pool, int note)
{
    uint64_t head = pm_load(&pool->head); /* @read */
#ifndef BUG
    pm_persist_it(pool->head);
#endif
    pool->notes[note].head = head; /* @effect */
    pm_persist_it(pool->notes[note]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < NODES && index < PUSHERS; i++)
        push(pool, (uint32_t)(index * NODES + i + 1), (uint64_t)(100 * (index + 1) + i));
    for (int i = 0; i < LOOKS && index == PUSHERS; i++)
        look(pool, i);
}

static void work(struct pool *pool)
{
    pm_threads(pool, PUSHERS + 1, thread);
}

static void more(struct pool *pool)
{
    push(pool, ALL, 999);
    look(pool, 0);
}

static void check(struct pool *pool)
{
    int depth = 0;
    for (int i = 0; i < LOOKS; i++) {
        if (pool->notes[i].head >> 32 > pool->head >> 32)
            pm_fail("version %lu was seen, the stack is at %lu", pool->notes[i].head >> 32, pool->head >> 32);
    }
    for (uint32_t at = (uint32_t)pool->head; at; at = pool->nodes[at].next) {
        if (at > ALL || ++depth > ALL || !pool->nodes[at].value)
            pm_fail("node %u is not one of the stack", at);
        pm_print("%lu\n", pool->nodes[at].value);
    }
}

RACE_MAIN

/* A lock-free stack (Treiber's) in the pool: one thread pushes, another pops and notes what it got.
 *
 * Wrong: the word that says which node is on top is changed by compare-and-exchange and written back only when all is
 * done. A pop notes the value and the version of the word, and makes that durable. After a crash there are notes of
 * pops that the stack has never seen: their values will be popped again.
 * Right: whoever changes the word, or relies on what another has put there, makes it durable first.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 * published
 */
#include "race.h"

enum { THREADS = 2, NODES = 6, ALL = THREADS * NODES };

struct node {
    PM_ALIGNED uint64_t value; /* 0: never used */
    uint32_t next;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t head; /* version << 32 | number of the node on top, from 1 */
    struct node nodes[ALL + 1];
    struct {
        PM_ALIGNED uint64_t version;
        uint64_t value;
    } notes[NODES];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void persist_head(struct pool *pool)
{
#ifndef BUG
    pm_persist_it(pool->head);
#else
    (void)pool;
#endif
}

static void push(struct pool *pool, uint32_t at, uint64_t value)
{
    struct node *node = &pool->nodes[at];
    if (node->value)
        return;
    for (;;) {
        uint64_t head = pm_load(&pool->head);
        persist_head(pool);
        node->next = (uint32_t)head;
        pm_barrier();
        node->value = value;
        pm_persist(node, sizeof *node);
        uint64_t next = ((head >> 32) + 1) << 32 | at;
        if (pm_swap_if(&pool->head, head, next)) /* @store */
            break;
    }
    persist_head(pool);
}

/* False if there is none. */
static bool pop(struct pool *pool, int note)
{
    uint64_t head, next;
    do {
        head = pm_load(&pool->head); /* @read */
        if ((uint32_t)head == 0)
            return false;
        persist_head(pool);
        next = ((head >> 32) + 1) << 32 | pool->nodes[(uint32_t)head].next;
    } while (!pm_swap_if(&pool->head, head, next)); /* @store */
    persist_head(pool);
    pool->notes[note].value = pool->nodes[(uint32_t)head].value; /* @effect */
    pm_barrier();
    pool->notes[note].version = next >> 32; /* @effect */
    pm_persist_it(pool->notes[note]);
    pm_window();
    return true;
}

static void thread(struct pool *pool, int index)
{
    int notes = 0;
    for (int i = 0; i < NODES; i++) {
        if (index == 0)
            push(pool, (uint32_t)i + 1, (uint64_t)i + 100);
        else
            notes += pop(pool, notes);
    }
}

static void work(struct pool *pool)
{
    for (uint32_t i = 0; i < 2; i++)
        push(pool, NODES + 1 + i, 50 + i);
    pm_threads(pool, THREADS, thread);
    pm_persist_it(pool->head);
}

static void more(struct pool *pool)
{
    push(pool, ALL, 999);
    pop(pool, NODES - 1);
    pm_persist_it(pool->head);
}

static void check(struct pool *pool)
{
    uint64_t version = pool->head >> 32;
    int depth = 0;
    for (int i = 0; i < NODES; i++) {
        if (pool->notes[i].version > version)
            pm_fail("pop %lu is noted, and the stack is at version %lu", pool->notes[i].version, version);
        if (pool->notes[i].version)
            pm_print("popped %lu\n", pool->notes[i].value);
    }
    for (uint32_t at = (uint32_t)pool->head; at; at = pool->nodes[at].next) {
        if (at > ALL || ++depth > ALL || !pool->nodes[at].value)
            pm_fail("node %u is not one of the stack", at);
        pm_print("%lu\n", pool->nodes[at].value);
    }
}

RACE_MAIN

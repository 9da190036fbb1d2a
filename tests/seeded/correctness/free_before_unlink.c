/* A list whose nodes come from a small allocator: a bitmap of used nodes in one word.
 *
 * Wrong: removing frees the node, durably, and only then unlinks it. A crash in between leaves a list that reads well
 * but whose first node is free. The next insertion is given that node and links it to itself.
 * Right: unlink durably, then free. A crash in between leaks one node, which the structure tolerates.
 *
 * Insertion marks the node, fills it, links it, each durable before the next. `check` reads the list, inserts a node
 * for itself, reads the list again and removes it. It does not show its own node, so it can be repeated.
 *
 * check: none
 * assert: not-ordered @ unlink
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ free|unlink
 */
#include "../pm.h"

enum { NODES = 16, OPERATIONS = 5, PROBE = 999 };

struct node {
    PM_ALIGNED uint64_t value;
    uint64_t next; /* number of a node, from 1; 0 ends the list */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t used; /* bit n: node n + 1 is taken */
    PM_ALIGNED uint64_t head;
    struct node nodes[NODES];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void set(uint64_t *word, uint64_t value)
{
    *word = value;
    pm_persist(word, sizeof *word);
}

static void insert(struct pool *pool, uint64_t value)
{
    uint64_t at = 1;
    while (at <= NODES && pool->used >> (at - 1) & 1)
        at++;
    if (at > NODES)
        pm_fail("no free node is left");
    set(&pool->used, pool->used | 1ULL << (at - 1));
    pool->nodes[at - 1] = (struct node){.value = value, .next = pool->head};
    pm_persist(&pool->nodes[at - 1], sizeof(struct node));
    set(&pool->head, at);
}

static void remove_first(struct pool *pool)
{
    uint64_t at = pool->head;
#ifdef BUG
    set(&pool->used, pool->used & ~(1ULL << (at - 1))); /* @free */
    set(&pool->head, pool->nodes[at - 1].next); /* @unlink */
#else
    set(&pool->head, pool->nodes[at - 1].next);
    set(&pool->used, pool->used & ~(1ULL << (at - 1)));
#endif
    PM_ASSERT_ORDERED(&pool->head, sizeof(uint64_t), &pool->used, sizeof(uint64_t));
}

static void operation(struct pool *pool, int i)
{
    if (i == 2 || i == 4)
        remove_first(pool);
    else
        insert(pool, 100 + (uint64_t)i);
    pm_ack(i);
}

static void read_list(struct pool *pool, bool show)
{
    int steps = 0;
    for (uint64_t at = pool->head; at != 0; at = pool->nodes[at - 1].next) {
        if (at > NODES || ++steps > NODES)
            pm_fail("the list has no end");
        if (show && pool->nodes[at - 1].value != PROBE)
            pm_print("%lu\n", pool->nodes[at - 1].value);
    }
}

static void check(struct pool *pool)
{
    read_list(pool, true);
    insert(pool, PROBE);
    read_list(pool, false);
    remove_first(pool);
}

PM_MAIN(OPERATIONS)

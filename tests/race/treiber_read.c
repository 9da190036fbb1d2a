/* A stack whose pushes, and whoever looks at its head, write the head back before they make anything of it.
 *
 * The head is read and written back in the next instructions, between which others may push: what is then made of what
 * was read depends on that, and not on what has been pushed since.
 *
 * clean
 * published
 * allow: clean-flush @ head
 */
#include "race.h"

enum { NODES = 12, PUSHERS = 2, LOOKS = 6 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t head;
    struct {
        PM_ALIGNED uint64_t value;
        uint64_t next;
    } nodes[NODES + 1];
    struct {
        PM_ALIGNED uint64_t node;
    } seen[LOOKS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

/* The write-back and the fence are the next instructions. */
static uint64_t read_head(struct pool *pool)
{
    uint64_t head;
    __asm__ volatile("mov (%1), %0\n\tclflush (%1)\n\tsfence" : "=&r"(head) : "r"(&pool->head) : "memory"); /* @head */
    return head;
}

static void push(struct pool *pool, uint64_t node)
{
    uint64_t head;
    pool->nodes[node].value = node;
    do {
        head = read_head(pool);
        pool->nodes[node].next = head;
        pm_persist_it(pool->nodes[node]);
    } while (!pm_swap_if(&pool->head, head, node));
    pm_persist_it(pool->head); /* @head */
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < NODES / PUSHERS && index < PUSHERS; i++)
        push(pool, (uint64_t)(index * (NODES / PUSHERS) + i + 1));
    for (int i = 0; i < LOOKS && index == PUSHERS; i++) {
        pool->seen[i].node = read_head(pool);
        pm_persist_it(pool->seen[i].node);
    }
}

static void work(struct pool *pool)
{
    if (!pool->head)
        pm_threads(pool, PUSHERS + 1, thread);
}

static void more(struct pool *pool)
{
    (void)pool;
}

static void check(struct pool *pool)
{
    for (int i = 0; i < LOOKS; i++) {
        uint64_t node = pool->seen[i].node, at = pool->head;
        while (node && at && at != node)
            at = pool->nodes[at].next;
        if (node && !at)
            pm_fail("node %lu was seen, and is not there", node);
        pm_print("%lu ", node);
    }
    pm_print("\n");
}

RACE_MAIN

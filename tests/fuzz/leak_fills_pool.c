/* A list of at most three keys, each in a block of its own.
 *
 *     i KEY   insert     r KEY   remove     p   print     q   end
 *
 * Wrong: a crash after a block was taken and before it is linked loses it for good, and so does one between unlinking and giving back. When all three are lost,
 * the pool is empty and nothing fits into it, which the program takes for impossible.
 * Right: opening gives back every block that the list does not reach.
 *
 * seed: i 1, r 1, p
 * trigger: i 1 !2 | i 1 !1 | i 1 !1 | i 1
 * shows: signal
 */
#include "pm.h"

enum { BLOCKS = 3 };

struct block {
    PM_ALIGNED uint64_t used;
    uint64_t key;
    uint64_t next; /* number of a block, from 1; 0: last */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t head;
    struct block blocks[BLOCKS];
};

static void set_used(struct block *block, uint64_t used)
{
    block->used = used;
    pm_persist(&block->used, sizeof block->used);
}

static void open_pool(struct pool *pool)
{
    if (pm_is_new(&pool->magic)) {
        pm_created(&pool->magic);
        return;
    }
#ifndef BUG
    bool reached[BLOCKS] = {false};
    for (uint64_t at = pool->head; at != 0; at = pool->blocks[at - 1].next)
        reached[at - 1] = true;
    for (int i = 0; i < BLOCKS; i++) {
        if (pool->blocks[i].used && !reached[i])
            set_used(&pool->blocks[i], 0);
    }
#endif
}

/* Where the number of this key's block stands; of the last one's successor, if it is not there. */
static uint64_t *find(struct pool *pool, uint64_t key)
{
    uint64_t *link = &pool->head;
    while (*link != 0 && pool->blocks[*link - 1].key != key)
        link = &pool->blocks[*link - 1].next;
    return link;
}

static void insert(struct pool *pool, uint64_t key)
{
    if (*find(pool, key) != 0) {
        pm_print("there\n");
        return;
    }
    int at = 0;
    while (at < BLOCKS && pool->blocks[at].used)
        at++;
    if (at == BLOCKS) {
        if (pool->head == 0)
            abort();
        pm_print("full\n");
        return;
    }
    struct block *block = &pool->blocks[at];
    set_used(block, 1);
    block->key = key;
    block->next = pool->head;
    pm_persist(block, sizeof *block);
    pool->head = (uint64_t)at + 1;
    pm_persist(&pool->head, sizeof pool->head);
}

static void removal(struct pool *pool, uint64_t key)
{
    uint64_t *link = find(pool, key);
    if (*link == 0) {
        pm_print("none\n");
        return;
    }
    struct block *block = &pool->blocks[*link - 1];
    *link = block->next;
    pm_persist(link, sizeof *link);
    set_used(block, 0);
}

static void command(struct pool *pool, char letter, char *rest)
{
    uint64_t key;
    if (letter == 'p') {
        for (uint64_t at = pool->head; at != 0; at = pool->blocks[at - 1].next)
            pm_print("%lu\n", pool->blocks[at - 1].key);
    } else if ((letter == 'i' || letter == 'r') && pm_number(&rest, &key)) {
        if (letter == 'i')
            insert(pool, key);
        else
            removal(pool, key);
    } else {
        pm_print("?\n");
    }
}

PM_MAIN

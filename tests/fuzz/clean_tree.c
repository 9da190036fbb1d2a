/* A binary search tree under an undo log, whose nodes come from a list of free ones.
 *
 *     i KEY   insert     r KEY   remove     c KEY   check     p   print     q   end
 *
 * Clean: every operation logs the lines that it changes, first. Whatever commands come and wherever they are cut short, recovery included, the tree is that before
 * the operation or that after it, and no node is lost: opening counts them.
 *
 * clean
 * seed: i 5, r 5, p
 */
#include "pm.h"

enum { NODES = 64 };

struct node {
    PM_ALIGNED uint64_t key;
    uint64_t left, right; /* numbers of nodes, from 1; `left` of a free one is the next free one */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct pm_undo undo;
    PM_ALIGNED uint64_t root;
    uint64_t free;  /* given back */
    uint64_t fresh; /* so many were taken for the first time */
    struct node nodes[NODES];
};

static struct node *node(struct pool *pool, uint64_t number)
{
    return &pool->nodes[number - 1];
}

/* How many nodes are below this; keys must lie between these. */
static uint64_t count(struct pool *pool, uint64_t at, uint64_t low, uint64_t high)
{
    if (at == 0)
        return 0;
    struct node *here = node(pool, at);
    if (at > pool->fresh || here->key < low || here->key > high)
        pm_fail("node %lu is out of place", at);
    uint64_t below = here->key == low ? 0 : count(pool, here->left, low, here->key - 1);
    return 1 + below + (here->key == high ? 0 : count(pool, here->right, here->key + 1, high));
}

static void open_pool(struct pool *pool)
{
    if (pm_is_new(&pool->magic)) {
        pm_created(&pool->magic);
        return;
    }
    pm_undo_recover(&pool->undo);
    uint64_t nodes = count(pool, pool->root, 0, UINT64_MAX);
    for (uint64_t at = pool->free; at != 0; at = node(pool, at)->left)
        nodes++;
    if (nodes != pool->fresh)
        pm_fail("%lu nodes of %lu are left", nodes, pool->fresh);
}

static uint64_t *find(struct pool *pool, uint64_t key)
{
    uint64_t *link = &pool->root;
    while (*link != 0 && node(pool, *link)->key != key)
        link = key < node(pool, *link)->key ? &node(pool, *link)->left : &node(pool, *link)->right;
    return link;
}

static void log_root(struct pool *pool)
{
    pm_undo_add(&pool->undo, &pool->root, 3 * sizeof pool->root);
}

static void insert(struct pool *pool, uint64_t key)
{
    uint64_t *link = find(pool, key);
    if (*link != 0 || (pool->free == 0 && pool->fresh == NODES)) {
        pm_print(*link ? "there\n" : "full\n");
        return;
    }
    log_root(pool);
    pm_undo_add(&pool->undo, link, sizeof *link);
    uint64_t taken = pool->free ? pool->free : pool->fresh + 1;
    pm_undo_add(&pool->undo, node(pool, taken), sizeof(struct node));
    if (pool->free)
        pool->free = node(pool, taken)->left;
    else
        pool->fresh++;
    *node(pool, taken) = (struct node){.key = key};
    *link = taken;
    pm_undo_commit(&pool->undo);
}

static void removal(struct pool *pool, uint64_t key)
{
    uint64_t *link = find(pool, key);
    if (*link == 0) {
        pm_print("none\n");
        return;
    }
    log_root(pool);
    uint64_t gone = *link;
    if (node(pool, gone)->left && node(pool, gone)->right) {
        /* The next larger key takes its place. */
        uint64_t *next = &node(pool, gone)->right;
        while (node(pool, *next)->left)
            next = &node(pool, *next)->left;
        uint64_t moved = *next;
        pm_undo_add(&pool->undo, node(pool, gone), sizeof(struct node));
        pm_undo_add(&pool->undo, next, sizeof *next);
        node(pool, gone)->key = node(pool, moved)->key;
        *next = node(pool, moved)->right;
        gone = moved;
    } else {
        pm_undo_add(&pool->undo, link, sizeof *link);
        *link = node(pool, gone)->left ? node(pool, gone)->left : node(pool, gone)->right;
    }
    pm_undo_add(&pool->undo, node(pool, gone), sizeof(struct node));
    node(pool, gone)->left = pool->free;
    pool->free = gone;
    pm_undo_commit(&pool->undo);
}

static void print(struct pool *pool, uint64_t at)
{
    if (at == 0)
        return;
    print(pool, node(pool, at)->left);
    pm_print("%lu\n", node(pool, at)->key);
    print(pool, node(pool, at)->right);
}

static void command(struct pool *pool, char letter, char *rest)
{
    uint64_t key;
    if (letter == 'p')
        print(pool, pool->root);
    else if (letter == 'i' && pm_number(&rest, &key))
        insert(pool, key);
    else if (letter == 'r' && pm_number(&rest, &key))
        removal(pool, key);
    else if (letter == 'c' && pm_number(&rest, &key))
        pm_print("%d\n", *find(pool, key) != 0);
    else
        pm_print("?\n");
}

PM_MAIN

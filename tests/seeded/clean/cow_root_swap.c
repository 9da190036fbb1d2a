/* A sorted set as a binary tree that is never changed in place: an insertion copies the path from the root and swings
 * the root, one aligned word.
 *
 * Clean: the new nodes are durable before the root is. A crash before the swing leaves orphans: which nodes are in use
 * is not stored but found at opening by walking the tree, so they are free again.
 *
 * clean
 */
#include "../pm.h"

enum { NODES = 16, KEYS = 5 };

struct node {
    PM_ALIGNED uint64_t key;
    uint64_t left; /* number of a node, from 1; 0: none */
    uint64_t right;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t root;
    struct node nodes[NODES];
};

static const uint64_t keys[KEYS] = {40, 20, 60, 30, 50};
static bool in_use[NODES + 1];

static void mark(struct pool *pool, uint64_t at)
{
    if (at == 0)
        return;
    if (at > NODES || in_use[at])
        pm_fail("node %lu is met twice", at);
    in_use[at] = true;
    mark(pool, pool->nodes[at - 1].left);
    mark(pool, pool->nodes[at - 1].right);
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    mark(pool, pool->root);
}

static uint64_t make(struct pool *pool, const struct node *content)
{
    uint64_t at = 1;
    while (at <= NODES && in_use[at])
        at++;
    if (at > NODES)
        pm_fail("no free node is left");
    in_use[at] = true;
    pool->nodes[at - 1] = *content;
    pm_flush(&pool->nodes[at - 1], sizeof *content);
    return at;
}

/* The number of a copy of the subtree with the key in it; only the path is copied. */
static uint64_t insert(struct pool *pool, uint64_t at, uint64_t key, uint64_t *replaced, int *count)
{
    if (at == 0)
        return make(pool, &(struct node){.key = key});
    struct node copy = pool->nodes[at - 1];
    replaced[(*count)++] = at;
    if (key < copy.key)
        copy.left = insert(pool, copy.left, key, replaced, count);
    else
        copy.right = insert(pool, copy.right, key, replaced, count);
    return make(pool, &copy);
}

static void operation(struct pool *pool, int i)
{
    uint64_t replaced[KEYS];
    int count = 0;
    uint64_t root = insert(pool, pool->root, keys[i], replaced, &count);
    pm_fence();
    pool->root = root;
    pm_persist(&pool->root, sizeof pool->root);
    while (count > 0)
        in_use[replaced[--count]] = false;
    pm_ack(i);
}

static void show(struct pool *pool, uint64_t at, uint64_t low, uint64_t high)
{
    if (at == 0)
        return;
    struct node *node = &pool->nodes[at - 1];
    if (node->key <= low || node->key >= high)
        pm_fail("key %lu is out of place", node->key);
    show(pool, node->left, low, node->key);
    pm_print("%lu\n", node->key);
    show(pool, node->right, node->key, high);
}

static void check(struct pool *pool)
{
    show(pool, pool->root, 0, UINT64_MAX);
}

PM_MAIN(KEYS)

/* A chain of nodes in the pool: each has the offset of the next one, in bytes from the beginning, and a value. Recovery walks along it. With -DBUG it follows
 * every offset that is aligned; without, only those that lie in the pool. With an argument behind the pool, it makes the chain instead.
 */
#include "symex.h"

#define FIRST 128
#define SIZE 4096

struct node {
    uint64_t next;
    uint64_t value;
};

static struct node *node_at(struct pool *pool, uint64_t offset)
{
    if (offset % sizeof(struct node) != 0)
        return NULL;
#ifndef BUG
    if (offset > SIZE - sizeof(struct node))
        return NULL;
#endif
    return (struct node *)((char *)pool + offset);
}

static void make(struct pool *pool)
{
    for (uint64_t n = 0; n < 3; n++) {
        struct node *node = node_at(pool, FIRST + 64 * n);
        node->value = n + 1;
        node->next = n < 2 ? FIRST + 64 * (n + 1) : 0;
        persist(node);
    }
    pool->last = FIRST;
    persist(&pool->last);
}

static uint64_t recover(struct pool *pool)
{
    uint64_t sum = 0;
    uint64_t offset = pool->last;
    for (int steps = 0; offset != 0 && steps < 8; steps++) {
        struct node *node = node_at(pool, offset);
        if (node == NULL)
            break;
        sum += node->value; /* @bug */
        offset = node->next;
    }
    return sum;
}

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[1]);
    if (argc > 2)
        make(pool);
    else {
        pool->total = recover(pool);
        persist(&pool->total);
    }
    return 0;
}

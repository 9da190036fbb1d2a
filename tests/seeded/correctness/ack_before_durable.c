/* A key-value table that puts its write-backs off: the line of a put is written back by the next put, the last one
 * when the pool is closed.
 *
 * Wrong: a put is acknowledged at once. Every crash state is a consistent table, and all is durable in the end; but a
 * crash after "done" may lose what was done.
 * Right: each put is durable before it is acknowledged.
 *
 * check: none
 * assert: not-persisted @ put
 * explore: yes
 * symptom: ops
 * explored: not-atomic @ put
 * needs: clflushopt
 */
#include "../pm.h"

enum { KEYS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t value; /* 0: none */
    } table[KEYS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
#ifdef BUG
    if (i > 0)
        pm_persist(&pool->table[i - 1], sizeof(uint64_t));
    pool->table[i].value = 31 + (uint64_t)i; /* @put */
#else
    pool->table[i].value = 31 + (uint64_t)i;
    pm_persist(&pool->table[i], sizeof(uint64_t));
#endif
    PM_ASSERT_PERSISTED(&pool->table[i], sizeof(uint64_t));
    pm_ack(i);
#ifdef BUG
    if (i == pm_job.operations - 1)
        pm_persist(&pool->table[i], sizeof(uint64_t));
#endif
}

static void check(struct pool *pool)
{
    for (int i = 0; i < KEYS; i++)
        if (pool->table[i].value != 0)
            pm_print("key %d: %lu\n", i, pool->table[i].value);
}

PM_MAIN(KEYS)

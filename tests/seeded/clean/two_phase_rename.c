/* A record is moved from one directory entry to another: the new entry is made first, with a mark, then the old one goes.
 *
 * Clean: each step is one store, durable before the next. Recovery completes a move that it finds marked.
 *
 * clean
 */
#include "../pm.h"

enum { NAMES = 4, OPERATIONS = 3 };
#define MOVING 0x100

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t record;
    } names[NAMES];
    PM_ALIGNED uint64_t from;
};

static void set(uint64_t *to, uint64_t value)
{
    *to = value;
    pm_persist(to, sizeof *to);
}

static void finish(struct pool *pool, int to)
{
    set(&pool->names[pool->from].record, 0);
    set(&pool->names[to].record, pool->names[to].record & ~(uint64_t)MOVING);
}

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC) {
        set(&pool->names[0].record, 7);
        set(&pool->magic, PM_MAGIC);
    }
    for (int i = 0; i < NAMES; i++)
        if (pool->names[i].record & MOVING)
            finish(pool, i);
}

static void operation(struct pool *pool, int i)
{
    set(&pool->from, (uint64_t)i);
    set(&pool->names[i + 1].record, pool->names[i].record | MOVING);
    finish(pool, i + 1);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    int found = 0;
    for (int i = 0; i < NAMES; i++)
        if (pool->names[i].record) {
            pm_print("name %d: record %d\n", i, (int)pool->names[i].record);
            found++;
        }
    if (found != 1)
        pm_fail("the record has %d names", found);
}

PM_MAIN(OPERATIONS)

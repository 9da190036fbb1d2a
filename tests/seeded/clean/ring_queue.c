/* A ring: elements are put at the tail and taken at the head, and the ring wraps around.
 *
 * Clean: an element is durable before the tail that publishes it; taking one moves the head, nothing else. A slot is written
 * again only after the head that frees it is durable.
 *
 * clean
 */
#include "../pm.h"

enum { SLOTS = 5, OPERATIONS = 8 };

struct pool {
    PM_ALIGNED uint64_t head;
    PM_ALIGNED uint64_t tail;
    struct {
        PM_ALIGNED uint64_t value;
    } slots[SLOTS];
};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void put(struct pool *pool, uint64_t value)
{
    uint64_t *slot = &pool->slots[pool->tail % SLOTS].value;
    *slot = value;
    pm_persist(slot, sizeof *slot);
    pool->tail++;
    pm_persist(&pool->tail, sizeof pool->tail);
}

static void take(struct pool *pool)
{
    pool->head++;
    pm_persist(&pool->head, sizeof pool->head);
}

static void operation(struct pool *pool, int i)
{
    if (i % 3 == 2)
        take(pool);
    else
        put(pool, (uint64_t)i + 20);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->tail - pool->head > SLOTS)
        pm_fail("more than fits");
    for (uint64_t n = pool->head; n < pool->tail; n++)
        pm_print("%d ", (int)pool->slots[n % SLOTS].value);
    pm_print("\n");
}

PM_MAIN(OPERATIONS)

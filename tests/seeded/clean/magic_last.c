/* A pool with a header that takes several lines to create.
 *
 * Clean: nothing counts before the magic, which is stored when all else is durable. Whoever finds no magic creates
 * anew, from whatever a cut-short creation left behind.
 *
 * clean
 */
#include "../pm.h"

enum { SLOTS = 4, FREE = 0x46524545 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t version;
    uint64_t slot_count;
    struct {
        PM_ALIGNED uint64_t value; /* FREE, or what it holds */
    } slots[SLOTS];
};

static void open_pool(struct pool *pool)
{
    if (pool->magic == PM_MAGIC)
        return;
    pool->version = 3;
    pool->slot_count = SLOTS;
    for (int i = 0; i < SLOTS; i++)
        pool->slots[i].value = FREE;
    pm_flush(&pool->version, 2 * sizeof(uint64_t));
    pm_flush(pool->slots, sizeof pool->slots);
    pm_fence();
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    pool->slots[i].value = 33 * ((uint64_t)i + 1);
    pm_persist(&pool->slots[i], sizeof(uint64_t));
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->version != 3 || pool->slot_count != SLOTS)
        pm_fail("version %lu, %lu slots", pool->version, pool->slot_count);
    for (int i = 0; i < SLOTS; i++) {
        if (pool->slots[i].value == FREE)
            continue;
        if (pool->slots[i].value != 33 * ((uint64_t)i + 1))
            pm_fail("slot %d is damaged", i);
        pm_print("%lu\n", pool->slots[i].value);
    }
}

PM_MAIN(SLOTS)

/* Slots with a value of three words and a valid bit in the same line: values first, bit last, one write-back, one
 * fence.
 *
 * Clean: a line survives as a prefix of the stores to it, so a set bit comes with the values that were stored before
 * it. No fence is needed between them, only the order of the stores.
 *
 * clean
 */
#include "../pm.h"

enum { SLOTS = 4 };

struct slot {
    PM_ALIGNED uint64_t value[3];
    uint64_t valid;
};

struct pool {
    struct slot slots[SLOTS];
};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    struct slot *slot = &pool->slots[i];
    for (uint64_t n = 0; n < 3; n++)
        slot->value[n] = (uint64_t)i * 3 + n + 1;
    pm_compiler_barrier();
    slot->valid = 1;
    pm_persist(slot, sizeof *slot);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < SLOTS; i++) {
        if (!pool->slots[i].valid)
            continue;
        for (uint64_t n = 0; n < 3; n++)
            if (pool->slots[i].value[n] != i * 3 + n + 1)
                pm_fail("slot %lu is valid and incomplete", i);
        pm_print("slot %lu\n", i);
    }
}

PM_MAIN(SLOTS)

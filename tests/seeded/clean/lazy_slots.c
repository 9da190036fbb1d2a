/* Slots that are initialised when they are first used: an epoch says whether a slot belongs to this life of the pool.
 *
 * Clean: slot and epoch share a line, the value is stored first. A slot of another epoch counts as empty, whatever it
 * holds. Emptying all slots is one store of the pool's epoch.
 *
 * clean
 */
#include "../pm.h"

enum { SLOTS = 3, OPERATIONS = 7 };

struct pool {
    PM_ALIGNED uint64_t epoch;
    struct {
        PM_ALIGNED uint64_t value;
        uint64_t epoch;
    } slots[SLOTS];
};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    if (i == 3) {
        pool->epoch++;
        pm_persist(&pool->epoch, sizeof pool->epoch);
    } else {
        int n = i % SLOTS;
        pool->slots[n].value = (uint64_t)i + 50;
        pm_compiler_barrier();
        pool->slots[n].epoch = pool->epoch + 1;
        pm_persist(&pool->slots[n], sizeof pool->slots[n]);
    }
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (int n = 0; n < SLOTS; n++)
        if (pool->slots[n].epoch == pool->epoch + 1)
            pm_print("slot %d: %d\n", n, (int)pool->slots[n].value);
}

PM_MAIN(OPERATIONS)

/* Slots are claimed by a locked addition to a counter in the pool, and filled.
 *
 * Wrong: the counter is made durable after the slot. What a thread claims follows from additions of others that are not durable: after a
 * crash a slot is filled that was never claimed. What is read too early is read by the locked instruction, which stores there, too; and it
 * decides only where something is stored.
 * Right: the counter is durable before the slot is filled.
 */
#include "../race.h"

enum { THREADS = 3, CLAIMS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t used;
    struct {
        PM_ALIGNED uint64_t owner; /* 0: empty */
    } slots[THREADS * CLAIMS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void claim(struct pool *pool, uint64_t owner)
{
    uint64_t slot = __atomic_fetch_add(&pool->used, 1, __ATOMIC_SEQ_CST); /* @store @read */
    if (slot >= THREADS * CLAIMS)
        return;
#ifndef BUG
    pm_persist_it(pool->used);
#endif
    pool->slots[slot].owner = owner; /* @effect */
    pm_persist_it(pool->slots[slot].owner);
#ifdef BUG
    pm_persist_it(pool->used);
#endif
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < CLAIMS; i++)
        claim(pool, (uint64_t)index + 1);
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, thread);
}

static void more(struct pool *pool)
{
    claim(pool, 9);
}

static void check(struct pool *pool)
{
    for (uint64_t slot = 0; slot < THREADS * CLAIMS; slot++) {
        if (slot >= pool->used && pool->slots[slot].owner)
            pm_fail("slot %lu has an owner, and %lu are used", slot, pool->used);
        pm_print("%lu ", pool->slots[slot].owner);
    }
    pm_print("\n");
}

RACE_MAIN

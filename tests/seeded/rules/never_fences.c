/* A guest book: a name is stored and written back, then acknowledged.
 *
 * Wrong: there is no fence in the whole program, so nothing is sure to be durable when it is acknowledged. It does not unmap its
 * memory, so that a locked instruction of exit() completes everything at last, and nothing is left unfenced.
 * Right: a fence after each write-back.
 *
 * bug: no-fence @ first-flush
 * explore: yes
 * symptom: ops
 * explored: not-atomic @ name-store
 * needs: clflushopt
 */
#include "../pm.h"

enum { NAMES = 3 };

struct pool {
    struct {
        PM_ALIGNED uint64_t name; /* 0: none */
    } guests[NAMES];
};

static void operation(struct pool *pool, int i)
{
    pool->guests[i].name = 500 + (uint64_t)i;                     /* @name-store */
    pm_flush(&pool->guests[i].name, sizeof pool->guests[i].name); /* @first-flush */
#ifndef BUG
    pm_fence();
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < NAMES; i++) {
        if (pool->guests[i].name != 0 && pool->guests[i].name != 500 + i)
            pm_fail("name %lu is %lu", i, pool->guests[i].name);
        if (pool->guests[i].name != 0)
            pm_print("%lu\n", pool->guests[i].name);
    }
}

int main(int argc, char **argv)
{
    struct pool *pool = pm_map(argc, argv, sizeof *pool, NAMES);
    if (pm_job.check)
        check(pool);
    for (int i = 0; !pm_job.check && i < pm_job.operations; i++)
        operation(pool, i);
    return 0;
}

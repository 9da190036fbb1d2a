/* A guest book: a name is stored and written back, then the number of names.
 *
 * Wrong: there is no fence in the whole program. The number may be durable before the name, and neither is when it is acknowledged. It
 * does not unmap its memory, so that a locked instruction of exit() completes everything at last, and nothing is left unfenced.
 * Right: a fence after each write-back.
 *
 * bug: no-fence @ first-flush
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ name-store
 * needs: clflushopt
 */
#include "../pm.h"

enum { NAMES = 3 };

struct pool {
    PM_ALIGNED uint64_t count;
    struct {
        PM_ALIGNED uint64_t name;
    } guests[NAMES];
};

static void fence(void)
{
#ifndef BUG
    pm_fence();
#endif
}

static void operation(struct pool *pool, int i)
{
    pool->guests[i].name = 500 + (uint64_t)i;                        /* @name-store */
    pm_flush(&pool->guests[i].name, sizeof pool->guests[i].name);    /* @first-flush */
    fence();
    pool->count = (uint64_t)i + 1;
    pm_flush(&pool->count, sizeof pool->count);
    fence();
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count > NAMES)
        pm_fail("%lu names", pool->count);
    for (uint64_t i = 0; i < pool->count; i++) {
        if (pool->guests[i].name != 500 + i)
            pm_fail("name %lu is counted and not there", i);
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

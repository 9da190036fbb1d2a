/* A table whose header (capacity, step) is written at creation, the magic last.
 *
 * Wrong: only a file that is not there, or empty, is created; one with a size and no magic is refused. A crash inside
 * creation leaves just that, and the program never starts again.
 * Right: no magic means that creation did not complete and nothing was ever stored: create again.
 *
 * check: none
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ create
 */
#include "../pm.h"

enum { CAPACITY = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t capacity;
    uint64_t step;
    PM_ALIGNED uint64_t values[CAPACITY]; /* 0: free */
};

static void open_pool(struct pool *pool)
{
#ifdef BUG
    if (!pm_job.created && pool->magic != PM_MAGIC)
        pm_fail("not a pool");
#endif
    if (pool->magic != PM_MAGIC) {
        pool->capacity = CAPACITY; /* @create */
        pool->step = 5;
        pm_persist(&pool->capacity, 2 * sizeof(uint64_t)); /* @create */
        pm_create(&pool->magic); /* @create */
    }
}

static void operation(struct pool *pool, int i)
{
    pool->values[i] = pool->step * ((uint64_t)i + 1);
    pm_persist(&pool->values[i], sizeof(uint64_t));
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->capacity != CAPACITY || pool->step != 5)
        pm_fail("capacity %lu, step %lu", pool->capacity, pool->step);
    for (uint64_t i = 0; i < pool->capacity && pool->values[i] != 0; i++)
        pm_print("%lu\n", pool->values[i]);
}

PM_MAIN(CAPACITY)

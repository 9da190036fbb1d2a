/* A queue: `push` persists the element, then the tail.
 *
 * Wasteful: `push` ends with one more fence "to be sure". Nothing was written back since the last.
 * Right: without it.
 * Both are crash consistent.
 *
 * bug: empty-fence @ extra-fence
 * explore: no
 */
#include "../pm.h"

enum { ELEMENTS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t tail;
    PM_ALIGNED uint64_t elements[ELEMENTS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    pool->elements[i] = 70 + (uint64_t)i;
    pm_persist(&pool->elements[i], sizeof(uint64_t));
    pool->tail = (uint64_t)i + 1;
    pm_persist(&pool->tail, sizeof pool->tail);
#ifdef BUG
    pm_fence(); /* @extra-fence */
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->tail > ELEMENTS)
        pm_fail("the tail is %lu", pool->tail);
    for (uint64_t i = 0; i < pool->tail; i++) {
        if (pool->elements[i] != 70 + i)
            pm_fail("element %lu is not there", i);
        pm_print("%lu\n", pool->elements[i]);
    }
}

PM_MAIN(ELEMENTS)

/* An array of two-line elements, and their number.
 *
 * case 1: ordering, not-ordered @ body
 * case 2: writeback, not-persisted @ body
 * case 3: writeback, not-persisted @ stamp
 * case 4: redundant writeback, double-flush @ second-flush
 *
 * 1: no fence between the element's write-back and the number. 2: the element is not written back. 3: the length given
 * is one line's. 4: the element's first line is written back twice before the fence.
 * needs: clflushopt
 */
#include "cases.h"

enum { ELEMENTS = 4 };

struct element {
    PM_ALIGNED uint64_t body;
    PM_ALIGNED uint64_t stamp;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t count;
    struct element elements[ELEMENTS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct element *element = &pool->elements[i];
    element->body = 10 + (uint64_t)i; /* @body */
    element->stamp = ~element->body;  /* @stamp */
    if (BUGGY(2))
        pm_flush(&element->stamp, sizeof element->stamp);
    else if (BUGGY(3))
        pm_flush(element, PM_LINE);
    else
        pm_flush(element, sizeof *element);
    if (BUGGY(4))
        pm_flush(&element->body, sizeof element->body); /* @second-flush */
    if (!BUGGY(1)) {
        pm_fence();
        brownout_is_persisted(element, sizeof *element);
    }
    pool->count = (uint64_t)i + 1;
    pm_persist(&pool->count, sizeof pool->count);
    if (!BUGGY(2) && !BUGGY(3))
        brownout_is_ordered_before(element, sizeof *element, &pool->count, sizeof pool->count);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < pool->count; i++) {
        if (i >= ELEMENTS || pool->elements[i].body != 10 + i || pool->elements[i].stamp != ~(10 + i))
            pm_fail("element %lu is damaged", i);
        pm_print("%lu\n", pool->elements[i].body);
    }
}

PM_CASES_MAIN(ELEMENTS)

/* A ring of four places: pushes and pops, head and tail in lines of their own.
 *
 * case 1: ordering, not-ordered @ value
 * case 2: ordering, not-ordered @ value
 * case 3: writeback, not-persisted @ tail
 * case 4: redundant writeback, clean-flush @ both-flush
 *
 * 1: the head is persisted before the value is written back. 2: the fence stands before the write-back instead of
 * after it. 3: a pop does not write the tail back. 4: a push writes back head and tail, and has only moved the head.
 * needs: clflushopt
 */
#include "cases.h"

enum { PLACES = 4, OPERATIONS = 7 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t head; /* pushed so far */
    PM_ALIGNED uint64_t tail; /* popped so far */
    struct {
        PM_ALIGNED uint64_t value;
    } places[PLACES];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void push(struct pool *pool)
{
    uint64_t *value = &pool->places[pool->head % PLACES].value;
    *value = 100 + pool->head; /* @value */
    if (BUGGY(2))
        pm_fence();
    if (!BUGGY(1))
        pm_flush(value, sizeof *value);
    if (!BUGGY(1) && !BUGGY(2))
        pm_fence();
    pool->head++;
    if (BUGGY(4))
        pm_flush(&pool->head, 2 * PM_LINE); /* @both-flush */
    else
        pm_flush(&pool->head, sizeof pool->head);
    pm_fence();
    if (BUGGY(1))
        pm_persist(value, sizeof *value);
    brownout_is_ordered_before(value, sizeof *value, &pool->head, sizeof pool->head);
}

static void pop(struct pool *pool)
{
    pool->tail++; /* @tail */
    if (!BUGGY(3))
        pm_persist(&pool->tail, sizeof pool->tail);
    brownout_is_persisted(&pool->tail, sizeof pool->tail);
}

static void operation(struct pool *pool, int i)
{
    if (i % 3 == 2)
        pop(pool);
    else
        push(pool);
}

static void check(struct pool *pool)
{
    if (pool->tail > pool->head || pool->head - pool->tail > PLACES)
        pm_fail("head %lu, tail %lu", pool->head, pool->tail);
    for (uint64_t at = pool->tail; at < pool->head; at++) {
        if (pool->places[at % PLACES].value != 100 + at)
            pm_fail("value %lu is damaged", at);
        pm_print("%lu\n", 100 + at);
    }
}

PM_CASES_MAIN(OPERATIONS)

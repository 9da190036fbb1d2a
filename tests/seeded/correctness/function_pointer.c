/* Shapes of different kinds, each with the way to compute its area.
 *
 * Wrong: a shape holds the address of a function (as an object with virtual functions holds that of their table). The program is
 * position-independent: in the next process the function is elsewhere.
 * Right: a shape holds a number, and a table of the program has the functions.
 *
 * check: none
 * explore: yes
 * symptom: signal
 * explored: recovery-crash @ kind
 * normal: signal
 * flags: -fPIE -pie
 */
#include "../pm.h"

enum { SHAPES = 3 };

struct shape {
    PM_ALIGNED uint64_t a;
    uint64_t b;
    uint64_t kind; /* number of a function, from 0; wrong: its address */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t count;
    struct shape shapes[SHAPES];
};

typedef uint64_t area_function(const struct shape *);

static uint64_t rectangle(const struct shape *shape)
{
    return shape->a * shape->b;
}

static uint64_t triangle(const struct shape *shape)
{
    return shape->a * shape->b / 2;
}

static area_function *const functions[] = {rectangle, triangle};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct shape *shape = &pool->shapes[i];
    shape->a = 4 + (uint64_t)i;
    shape->b = 6;
#ifdef BUG
    shape->kind = (uint64_t)functions[i % 2];
#else
    shape->kind = (uint64_t)i % 2;
#endif
    pm_persist(shape, sizeof *shape); /* @kind */
    pool->count = (uint64_t)i + 1; /* @kind */
    pm_persist(&pool->count, sizeof pool->count); /* @kind */
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count > SHAPES)
        pm_fail("%lu shapes", pool->count);
    for (uint64_t i = 0; i < pool->count; i++) {
        const struct shape *shape = &pool->shapes[i];
#ifdef BUG
        area_function *area = (area_function *)shape->kind;
#else
        area_function *area = functions[shape->kind % 2];
#endif
        pm_print("%lu\n", area(shape));
    }
}

PM_MAIN(SHAPES)

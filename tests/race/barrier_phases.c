/* A simulation in phases: each thread computes its cell from its neighbours' of the phase before.
 *
 * Clean: cells are durable before the barrier between two phases. Recovery drops a phase that is not complete.
 *
 * clean
 */
#include "race.h"

enum { THREADS = 4, PHASES = 5 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t value; /* 0: not computed yet */
    } cells[PHASES][THREADS];
};

static pthread_barrier_t barrier;

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC) {
        for (int i = 0; i < THREADS; i++) {
            pool->cells[0][i].value = (uint64_t)i + 1;
            pm_persist_it(pool->cells[0][i]);
        }
        pm_create(&pool->magic);
    }
}

static uint64_t next(struct pool *pool, int phase, int i)
{
    uint64_t left = pool->cells[phase - 1][(i + THREADS - 1) % THREADS].value;
    uint64_t right = pool->cells[phase - 1][(i + 1) % THREADS].value;
    return left + 2 * right;
}

static void thread(struct pool *pool, int index)
{
    for (int phase = 1; phase < PHASES; phase++) {
        pool->cells[phase][index].value = next(pool, phase, index);
        pm_persist_it(pool->cells[phase][index]);
        pthread_barrier_wait(&barrier);
    }
}

static void work(struct pool *pool)
{
    pthread_barrier_init(&barrier, NULL, THREADS);
    pm_threads(pool, THREADS, thread);
    pthread_barrier_destroy(&barrier);
}

static void more(struct pool *pool)
{
    for (int phase = 1; phase < PHASES; phase++) {
        for (int i = 0; i < THREADS; i++) {
            pool->cells[phase][i].value = next(pool, phase, i);
            pm_persist_it(pool->cells[phase][i]);
        }
    }
}

static void check(struct pool *pool)
{
    for (int phase = 1; phase < PHASES; phase++) {
        for (int i = 0; i < THREADS; i++) {
            uint64_t value = pool->cells[phase][i].value;
            if (value && value != next(pool, phase, i))
                pm_fail("cell %d of phase %d is %lu", i, phase, value);
            pm_print("%lu ", value);
        }
        pm_print("\n");
    }
}

RACE_MAIN

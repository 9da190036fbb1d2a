/* Cells that threads claim by compare-and-exchange; each notes what it has seen in its neighbour's.
 *
 * Clean (flush on read): whoever reads a cell writes it back before anything that it computes from it becomes
 * durable.
 *
 * clean
 * published
 */
#include "race.h"

enum { THREADS = 3, CELLS = 6 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t owner; /* thread and round; 0: free */
    } cells[CELLS];
    struct {
        PM_ALIGNED uint64_t seen;
    } notes[THREADS][CELLS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static uint64_t read_cell(struct pool *pool, int i)
{
    uint64_t owner = pm_load(&pool->cells[i].owner);
    pm_persist_it(pool->cells[i]);
    return owner;
}

static void claim(struct pool *pool, int index, int i)
{
    pm_swap_if(&pool->cells[i].owner, 0, (uint64_t)(index + 1));
    pm_persist_it(pool->cells[i]);
    pool->notes[index][i].seen = read_cell(pool, (i + 1) % CELLS);
    pm_persist_it(pool->notes[index][i]);
}

static void claimer(struct pool *pool, int index)
{
    for (int i = 0; i < CELLS; i++)
        claim(pool, index, (i * (index + 1)) % CELLS);
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, claimer);
}

static void more(struct pool *pool)
{
    claim(pool, 0, 0);
}

static void check(struct pool *pool)
{
    for (int index = 0; index < THREADS; index++) {
        for (int i = 0; i < CELLS; i++) {
            uint64_t seen = pool->notes[index][i].seen;
            if (seen && seen != pool->cells[(i + 1) % CELLS].owner)
                pm_fail("thread %d has seen %lu in cell %d", index, seen, (i + 1) % CELLS);
        }
    }
    for (int i = 0; i < CELLS; i++)
        pm_print("%lu ", pool->cells[i].owner);
    pm_print("\n");
}

RACE_MAIN

/* A chain of three threads: each takes what the one before it has made, by a condition variable, and makes something
 * of it.
 *
 * Clean: what is handed over is durable before anybody is told of it.
 *
 * clean
 */
#include "race.h"

enum { STAGES = 3, ITEMS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t value;
    } items[STAGES][ITEMS];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int made[STAGES];

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void make(struct pool *pool, int stage, int i)
{
    uint64_t input = 10 + (uint64_t)i;
    if (stage > 0) {
        pthread_mutex_lock(&mutex);
        while (made[stage - 1] <= i)
            pthread_cond_wait(&changed, &mutex);
        pthread_mutex_unlock(&mutex);
        input = pool->items[stage - 1][i].value;
    }
    pool->items[stage][i].value = 3 * input + 1;
    pm_persist_it(pool->items[stage][i]);
    pthread_mutex_lock(&mutex);
    made[stage] = i + 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void maker(struct pool *pool, int index)
{
    for (int i = 0; i < ITEMS; i++)
        make(pool, index, i);
}

static void work(struct pool *pool)
{
    pm_threads(pool, STAGES, maker);
}

static void more(struct pool *pool)
{
    for (int stage = 0; stage < STAGES; stage++)
        maker(pool, stage);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < ITEMS; i++) {
        for (int stage = 1; stage < STAGES; stage++) {
            if (pool->items[stage][i].value && pool->items[stage][i].value != 3 * pool->items[stage - 1][i].value + 1)
                pm_fail("item %d of stage %d has no origin", i, stage);
        }
        pm_print("%lu\n", pool->items[STAGES - 1][i].value);
    }
}

RACE_MAIN

/* A table under a read-write lock in ordinary memory: one thread changes it, others read it and note what they saw.
 *
 * Clean: what the writer stores is durable before it releases the lock.
 *
 * clean
 */
#include "race.h"

enum { ROWS = 3, READERS = 3, CHANGES = 4, READS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t value;
    } rows[ROWS];
    struct {
        PM_ALIGNED uint64_t sum;
    } notes[READERS][READS];
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void change(struct pool *pool, int i)
{
    pthread_rwlock_wrlock(&lock);
    pool->rows[i % ROWS].value++;
    pm_persist_it(pool->rows[i % ROWS]);
    pthread_rwlock_unlock(&lock);
}

static uint64_t sum(struct pool *pool)
{
    uint64_t sum = 0;
    pthread_rwlock_rdlock(&lock);
    for (int i = 0; i < ROWS; i++)
        sum += pool->rows[i].value;
    pthread_rwlock_unlock(&lock);
    return sum;
}

static void note(struct pool *pool, int reader, int i)
{
    pool->notes[reader][i].sum = sum(pool);
    pm_persist_it(pool->notes[reader][i]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < CHANGES && index == READERS; i++)
        change(pool, i);
    for (int i = 0; i < READS && index < READERS; i++)
        note(pool, index, i);
}

static void work(struct pool *pool)
{
    pm_threads(pool, READERS + 1, thread);
}

static void more(struct pool *pool)
{
    change(pool, 0);
    note(pool, 0, 0);
}

static void check(struct pool *pool)
{
    for (int reader = 0; reader < READERS; reader++) {
        for (int i = 0; i < READS; i++) {
            if (pool->notes[reader][i].sum > sum(pool))
                pm_fail("reader %d saw %lu", reader, pool->notes[reader][i].sum);
        }
    }
    pm_print("%lu\n", sum(pool));
}

RACE_MAIN

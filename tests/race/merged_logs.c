/* Each thread writes a log of its own; at the end they are merged into one, sorted by time stamps from a shared clock
 * in ordinary memory.
 *
 * Clean: a record is durable before the next, and all are before they are merged; the merged log counts once its
 * length is durable.
 *
 * clean
 */
#include "race.h"

enum { THREADS = 4, RECORDS = 3, ALL = THREADS * RECORDS };

struct record {
    PM_ALIGNED uint64_t time; /* from 1 */
    uint64_t what;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct record logs[THREADS][RECORDS];
    PM_ALIGNED uint64_t merged_count;
    struct record merged[ALL];
};

static uint64_t now;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    for (int i = 0; i < ALL; i++) {
        if (pool->logs[i / RECORDS][i % RECORDS].time > now)
            now = pool->logs[i / RECORDS][i % RECORDS].time;
    }
}

static void writer(struct pool *pool, int index)
{
    for (int i = 0; i < RECORDS; i++) {
        struct record *record = &pool->logs[index][i];
        if (record->time)
            continue;
        record->what = (uint64_t)(100 * (index + 1) + i);
        pm_barrier();
        record->time = __atomic_add_fetch(&now, 1, __ATOMIC_SEQ_CST);
        pm_persist(record, sizeof *record);
    }
}

static void merge(struct pool *pool)
{
    int at[THREADS] = {0};
    pool->merged_count = 0;
    pm_persist_it(pool->merged_count);
    for (int count = 0; count < ALL; count++) {
        int first = -1;
        for (int i = 0; i < THREADS; i++) {
            if (at[i] < RECORDS && pool->logs[i][at[i]].time &&
                (first < 0 || pool->logs[i][at[i]].time < pool->logs[first][at[first]].time))
                first = i;
        }
        if (first < 0)
            break;
        pool->merged[count] = pool->logs[first][at[first]++];
        pm_flush(&pool->merged[count], sizeof pool->merged[count]);
        pm_fence();
        pool->merged_count = (uint64_t)count + 1;
        pm_persist_it(pool->merged_count);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, writer);
    merge(pool);
}

static void more(struct pool *pool)
{
    merge(pool);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < pool->merged_count; i++) {
        if (!pool->merged[i].what || (i && pool->merged[i].time <= pool->merged[i - 1].time))
            pm_fail("record %lu is not in its place", i);
        pm_print("%lu\n", pool->merged[i].what);
    }
}

RACE_MAIN

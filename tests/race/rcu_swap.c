/* A configuration of several words that is replaced as a whole: a new version is written beside the old one, and a
 * word is swapped. Readers take no lock and note what they saw.
 *
 * Clean: version, then word, are durable before the new version is published, which happens in ordinary memory.
 *
 * clean
 */
#include "race.h"

enum { VERSIONS = 12, WORDS = 4, READERS = 2, CHANGES = 4, READS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t current;
    struct {
        PM_ALIGNED uint64_t words[WORDS];
    } versions[VERSIONS];
    struct {
        PM_ALIGNED uint64_t sum;
        uint64_t version;
    } notes[READERS][READS];
};

static uint64_t published;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    published = pool->current;
}

static void change(struct pool *pool)
{
    pthread_mutex_lock(&changing);
    uint64_t next = published + 1;
    if (next < VERSIONS) {
        for (int i = 0; i < WORDS; i++)
            pool->versions[next].words[i] = 10 * next + (uint64_t)i;
        pm_persist_it(pool->versions[next]);
        pool->current = next;
        pm_persist_it(pool->current);
        pm_store(&published, next);
    }
    pthread_mutex_unlock(&changing);
}

static void note(struct pool *pool, int reader, int i)
{
    uint64_t version = pm_load(&published), sum = 0;
    for (int word = 0; word < WORDS; word++)
        sum += pool->versions[version].words[word];
    pool->notes[reader][i].sum = sum;
    pm_barrier();
    pool->notes[reader][i].version = version;
    pm_persist_it(pool->notes[reader][i]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < CHANGES && index >= READERS; i++)
        change(pool);
    for (int i = 0; i < READS && index < READERS; i++)
        note(pool, index, i);
}

static void work(struct pool *pool)
{
    pm_threads(pool, READERS + 2, thread);
}

static void more(struct pool *pool)
{
    change(pool);
    note(pool, 0, 0);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < READERS * READS; i++) {
        if (pool->notes[i / READS][i % READS].version > pool->current)
            pm_fail("version %lu was seen, %lu is there", pool->notes[i / READS][i % READS].version, pool->current);
    }
    for (int i = 0; i < WORDS && pool->current; i++) {
        if (pool->versions[pool->current].words[i] != 10 * pool->current + (uint64_t)i)
            pm_fail("version %lu is not whole", pool->current);
    }
    pm_print("version %lu\n", pool->current);
}

RACE_MAIN

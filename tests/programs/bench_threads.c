// Benchmark: two threads change their own records in the pool, with an undo log each; every eighth
// change also adds to a total that both share, under a mutex.
// build: dynamic
// args: POOL 10000
#include "pm_pool.h"
#include <pthread.h>

enum { THREADS = 2, RECORDS = 1 << 14, FIELDS = 7, SHARED_EVERY = 8 };

struct record {
    uint64_t fields[FIELDS], changes;
};

struct undo_log {
    uint64_t valid;
    uint64_t index;
    uint64_t unused[6]; // the copy has a line of its own
    struct record copy;
};

struct layout {
    struct undo_log logs[THREADS];
    struct {
        uint64_t total, unused[7];
    } shared;
    struct record records[THREADS][RECORDS];
};

static struct layout *layout;
static uint64_t changes;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void persist(void *line)
{
    PM_CLWB(line);
    PM_SFENCE();
}

static void change(struct undo_log *log, struct record *record, uint64_t index, uint64_t number)
{
    log->copy = *record;
    log->index = index;
    PM_CLWB(&log->copy);
    persist(log);
    PM_STORE64(&log->valid, 1);
    persist(log);
    for (unsigned k = 0; k < FIELDS; k++)
        record->fields[k] += number + k;
    record->changes++;
    persist(record);
    PM_STORE64(&log->valid, 0);
    persist(log);
}

static void *worker(void *argument)
{
    unsigned id = (unsigned)(uintptr_t)argument;
    uint64_t s = id + 1;
    for (uint64_t i = 0; i < changes; i++) {
        uint64_t index = next_random(&s) % RECORDS;
        change(&layout->logs[id], &layout->records[id][index], index, i);
        if (i % SHARED_EVERY == 0) {
            pthread_mutex_lock(&mutex);
            layout->shared.total += SHARED_EVERY;
            persist(&layout->shared);
            pthread_mutex_unlock(&mutex);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    changes = argc > 2 ? strtoull(argv[2], NULL, 10) : 200000;
    struct pool pool = pool_create(argc, argv, sizeof(struct layout));
    layout = (struct layout *)pool.base;
    pthread_t threads[THREADS];
    for (uintptr_t id = 0; id < THREADS; id++)
        CHECK(pthread_create(&threads[id], NULL, worker, (void *)id) == 0);
    for (unsigned id = 0; id < THREADS; id++)
        CHECK(pthread_join(threads[id], NULL) == 0);
    uint64_t counted = 0, sum = 0;
    for (unsigned id = 0; id < THREADS; id++)
        for (unsigned i = 0; i < RECORDS; i++) {
            counted += layout->records[id][i].changes;
            for (unsigned k = 0; k < FIELDS; k++)
                sum += layout->records[id][i].fields[k] * (k + 1);
        }
    CHECK_EQ(counted, changes * THREADS);
    CHECK_EQ(layout->shared.total, (changes + SHARED_EVERY - 1) / SHARED_EVERY * SHARED_EVERY * THREADS);
    printf("%lu changes, sum %lx\n", counted, sum);
    return 0;
}

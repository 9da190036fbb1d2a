/* A name in the pool, and records of it that went through the string functions of the C library.
 *
 * Wrong: the source is made durable after the lock is released. In between the other thread reads it, and what
 * becomes durable first was computed from it through strdup, strtok, strcat and realloc. After a crash it is ahead of
 * its source.
 * Right: the source is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 */
#include "race.h"

enum { CHANGES = 4, READS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED char source[32];
    struct {
        PM_ALIGNED char value[32];
    } records[READS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void change(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    size_t length = strlen(pool->source);
    if (length + 3 < sizeof pool->source) {
        pm_store(&pool->source[length + 1], ' '); /* @store */
        pm_store(&pool->source[length], (char)('a' + length / 2)); /* @store */
    }
#ifndef BUG
    pm_persist_it(pool->source);
#endif
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_window();
    pm_persist_it(pool->source);
#endif
}

static void take(struct pool *pool, int i)
{
    pthread_mutex_lock(&lock);
    char *copy = strdup(pool->source); /* @read */
    pthread_mutex_unlock(&lock);
    char *joined = calloc(1, 1), *state;
    for (char *word = strtok_r(copy, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
        joined = realloc(joined, strlen(joined) + strlen(word) + 1);
        strcat(joined, word);
    }
    memcpy(pool->records[i].value, joined, strlen(joined) + 1); /* @effect */
    pm_persist_it(pool->records[i]);
    free(joined);
    free(copy);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < CHANGES; i++) {
        if (index == 0)
            change(pool);
        else
            take(pool, i);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    change(pool);
    take(pool, 0);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < READS; i++) {
        if (2 * strlen(pool->records[i].value) > strlen(pool->source))
            pm_fail("record %d is %s, and its source is %s", i, pool->records[i].value, pool->source);
        pm_print("%s ", pool->records[i].value);
    }
    pm_print("of %lu\n", strlen(pool->source));
}

RACE_MAIN

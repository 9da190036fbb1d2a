/* A block of 256 bytes in the pool, and copies of it.
 *
 * Wrong: the source is made durable after the lock is released. In between the other thread reads it, and what
 * becomes durable first was computed from it by the C library's memcpy, which moves it through vector registers, over
 * a buffer on the stack. After a crash it is ahead of its source.
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
    PM_ALIGNED uint64_t source[32];
    struct {
        PM_ALIGNED uint64_t value[32];
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
    uint64_t next = pool->source[31] + 1, block[32];
    for (int i = 0; i < 32; i++)
        block[i] = next;
    memcpy(pool->source, block, sizeof block); /* @store */
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
    uint64_t block[32];
    pthread_mutex_lock(&lock);
    memcpy(block, pool->source, sizeof block); /* @read */
    pthread_mutex_unlock(&lock);
    pm_barrier();
    memcpy(pool->records[i].value, block, sizeof block); /* @effect */
    pm_persist_it(pool->records[i]);
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
        for (int word = 0; word < 32; word++) {
            if (pool->records[i].value[word] > pool->source[word])
                pm_fail("word %d of record %d is ahead of its source", word, i);
        }
        pm_print("%lu ", pool->records[i].value[0]);
    }
    pm_print("of %lu\n", pool->source[0]);
}

RACE_MAIN

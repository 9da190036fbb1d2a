/* Four numbers in the pool, and records of their sums.
 *
 * Wrong: the source is made durable after the lock is released. In between the other thread reads it, and what
 * becomes durable first was computed from it in vector registers: added, shuffled and packed there. After a crash it
 * is ahead of its source.
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
    PM_ALIGNED uint32_t source[4];
    struct {
        PM_ALIGNED uint32_t value[4];
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
    for (int i = 0; i < 4; i++)
        pool->source[i] += 1; /* @store */
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
    __m128i all = _mm_load_si128((const __m128i *)pool->source); /* @read */
    pthread_mutex_unlock(&lock);
    __m128i turned = _mm_shuffle_epi32(all, _MM_SHUFFLE(0, 3, 2, 1));
    __m128i sums = _mm_srli_epi32(_mm_add_epi32(all, turned), 1);
    _mm_store_si128((__m128i *)pool->records[i].value, sums); /* @effect */
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
        for (int word = 0; word < 4; word++) {
            uint32_t value = pool->records[i].value[word];
            if (value > pool->source[word] && value > pool->source[(word + 1) % 4])
                pm_fail("word %d of record %d is ahead of its source", word, i);
        }
        pm_print("%u ", pool->records[i].value[0]);
    }
    pm_print("of %lu\n", (uint64_t)pool->source[0]);
}

RACE_MAIN

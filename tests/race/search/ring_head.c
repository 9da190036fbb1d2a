/* A ring in the pool, with copies of its ends in ordinary memory: one thread puts in, another takes out.
 *
 * Wrong: the tail is made durable after the lock is given back. The other thread reads what is in the slot, decides by the copy of the tail that there is
 * something, and makes the head durable; no data flows from the tail to the head. After a crash the head is past the tail.
 * Right: slot and tail are durable before the lock is given back.
 */
#include "../race.h"

enum { ITEMS = 6 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t tail;
    PM_ALIGNED uint64_t head;
    struct {
        PM_ALIGNED uint64_t value;
    } slots[ITEMS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static uint64_t tail, head;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    tail = pool->tail;
    head = pool->head;
}

static void put(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    uint64_t at = tail++;
    pool->slots[at].value = at + 100; /* @store */
    pool->tail = tail; /* @store */
#ifndef BUG
    pm_persist_it(pool->slots[at].value);
    pm_persist_it(pool->tail);
#endif
    pthread_cond_signal(&filled);
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_persist_it(pool->slots[at].value);
    pm_persist_it(pool->tail);
#endif
}

static uint64_t take(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    while (head == tail)
        pthread_cond_wait(&filled, &lock);
    uint64_t value = pm_load(&pool->slots[head].value); /* @read */
    pool->head = ++head; /* @effect */
    pm_persist_it(pool->head);
    pthread_mutex_unlock(&lock);
    return value;
}

static void thread(struct pool *pool, int index)
{
    uint64_t sum = 0;
    for (uint64_t i = pool->head; i < ITEMS; i++) {
        if (index == 1)
            sum += take(pool);
        else if (tail < ITEMS)
            put(pool);
    }
    pm_barrier();
    (void)sum;
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    (void)pool;
}

static void check(struct pool *pool)
{
    if (pool->head > pool->tail)
        pm_fail("the head is at %lu, and the tail at %lu", pool->head, pool->tail);
    for (uint64_t i = pool->head; i < pool->tail; i++)
        if (pool->slots[i].value != i + 100)
            pm_fail("slot %lu holds %lu", i, pool->slots[i].value);
    pm_print("%lu to %lu\n", pool->head, pool->tail);
}

RACE_MAIN

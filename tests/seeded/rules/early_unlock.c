/* Two threads: one hands out numbers, the other writes tickets with them. A mutex guards the number.
 *
 * Wrong: the first thread gives the mutex back before the number is durable. The second may have read it by then, and made a durable
 * ticket of it. In this run it has not: it comes when the number is durable, so each crash state is right.
 * Right: the number is durable before the mutex is given back.
 *
 * They take turns by plain loads and stores, which prove nothing, so each run is the same.
 *
 * bug: unpersisted-publication @ number-store
 * explore: no
 * options: --threads
 * flags: -pthread
 */
#include "../pm.h"
#include <pthread.h>

enum { TICKETS = 3 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t last_number;
    struct {
        PM_ALIGNED uint64_t number; /* 0: none */
    } tickets[TICKETS];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int handed_out;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void *hand_out(void *argument)
{
    struct pool *pool = argument;
    pthread_mutex_lock(&mutex);
    pool->last_number++; /* @number-store */
#ifndef BUG
    pm_persist(&pool->last_number, sizeof pool->last_number);
#endif
    pthread_mutex_unlock(&mutex);
#ifdef BUG
    pm_persist(&pool->last_number, sizeof pool->last_number);
#endif
    handed_out = 1;
    return NULL;
}

static void *write_ticket(void *argument)
{
    struct pool *pool = argument;
    while (!handed_out)
        ;
    pthread_mutex_lock(&mutex);
    uint64_t number = pool->last_number;
    pthread_mutex_unlock(&mutex);
    pool->tickets[number - 1].number = number;
    pm_persist(&pool->tickets[number - 1], sizeof(uint64_t));
    return NULL;
}

static void operation(struct pool *pool, int i)
{
    pthread_t threads[2];
    handed_out = 0;
    if (pthread_create(&threads[0], NULL, hand_out, pool) != 0 || pthread_create(&threads[1], NULL, write_ticket, pool) != 0)
        _exit(2);
    for (int n = 0; n < 2; n++)
        if (pthread_join(threads[n], NULL) != 0)
            _exit(2);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->last_number > TICKETS)
        pm_fail("number %lu", pool->last_number);
    for (uint64_t i = 0; i < TICKETS; i++) {
        uint64_t number = pool->tickets[i].number;
        if (number == 0)
            continue;
        if (number > pool->last_number)
            pm_fail("ticket %lu has a number that was never handed out", number);
        pm_print("ticket %lu\n", number);
    }
}

PM_MAIN(TICKETS)

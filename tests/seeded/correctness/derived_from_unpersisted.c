/* Two threads: one hands out numbers, the other writes tickets with them.
 *
 * Wrong: the first thread stores the number and lets the second one read it before it is durable. The second makes a
 * ticket from it and persists that. A crash before the first thread's write-back leaves a ticket with a number that
 * was never handed out. In the end everything is flushed and fenced.
 * Right: the number is durable before anyone may read it.
 *
 * The second thread is started and joined for each ticket, so the order of events is the same on every run.
 *
 * check: none
 * assert: not-persisted @ number-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ number-store
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

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void *write_ticket(void *argument)
{
    struct pool *pool = argument;
    uint64_t number = pool->last_number;
    PM_ASSERT_PERSISTED(&pool->last_number, sizeof pool->last_number);
    pool->tickets[number - 1].number = number;
    pm_persist(&pool->tickets[number - 1], sizeof(uint64_t));
    return NULL;
}

static void operation(struct pool *pool, int i)
{
    pthread_t writer;
    pool->last_number = (uint64_t)i + 1; /* @number-store */
#ifndef BUG
    pm_persist(&pool->last_number, sizeof pool->last_number);
#endif
    if (pthread_create(&writer, NULL, write_ticket, pool) != 0 || pthread_join(writer, NULL) != 0)
        _exit(2);
#ifdef BUG
    pm_persist(&pool->last_number, sizeof pool->last_number);
#endif
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

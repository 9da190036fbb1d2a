/* Orders: one thread writes them into the pool, another tells a client about each, through a pipe whose other end is
 * in this very process.
 *
 * Wrong: an order is made durable after the lock is released. In between the other thread reads its number and sends
 * it. After a crash the client knows of an order that does not exist. What was sent cannot be taken back.
 * Right: an order is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: unrepaired
 * predicted: yes
 */
#include "race.h"

enum { ORDERS = 5 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t number;
    } orders[ORDERS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ends[2]; /* of the pipe */

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void accept_order(struct pool *pool, int i)
{
    pthread_mutex_lock(&lock);
    pool->orders[i].number = 1000 + (uint64_t)i; /* @store */
#ifndef BUG
    pm_persist_it(pool->orders[i]);
#endif
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_window();
    pm_persist_it(pool->orders[i]);
#endif
}

static void announce(struct pool *pool, int i)
{
    pthread_mutex_lock(&lock);
    uint64_t number = pool->orders[i].number; /* @read */
    pthread_mutex_unlock(&lock);
    if (number && write(ends[1], &number, sizeof number) != sizeof number) /* @effect */
        _exit(2);
}

static uint64_t known; /* what the client knows: the sum of all numbers */

static void client(void)
{
    uint64_t number;
    while (read(ends[0], &number, sizeof number) == sizeof number)
        known += number;
}

static void thread(struct pool *pool, int index)
{
    if (index == 2)
        client();
    for (int i = 0; i < ORDERS && index < 2; i++) {
        if (index == 0)
            accept_order(pool, i);
        else
            announce(pool, i);
    }
    if (index == 1)
        close(ends[1]);
}

static void connect_client(void)
{
    if (pipe(ends) != 0)
        _exit(2);
}

static void work(struct pool *pool)
{
    connect_client();
    pm_threads(pool, 3, thread);
    close(ends[0]);
    pm_print("told %lu\n", known);
}

static void more(struct pool *pool)
{
    connect_client();
    accept_order(pool, 0);
    announce(pool, 0);
    close(ends[1]);
    client();
    close(ends[0]);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < ORDERS; i++)
        pm_print("%lu\n", pool->orders[i].number);
}

RACE_MAIN

/* Orders: one thread writes them into the pool, another tells the world about each.
 *
 * Wrong: an order is made durable after the lock is released. In between the other thread reads its number and prints
 * it. After a crash the world knows of an order that does not exist. What was printed cannot be taken back.
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
    char text[] = "order 0000\n";
    for (int digit = 9; digit >= 6; digit--, number /= 10)
        text[digit] = (char)('0' + number % 10);
    if (strcmp(text, "order 0000\n") != 0 && write(1, text, sizeof text - 1) < 0) /* @effect */
        _exit(2);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < ORDERS; i++) {
        if (index == 0)
            accept_order(pool, i);
        else
            announce(pool, i);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    accept_order(pool, 0);
    announce(pool, 0);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < ORDERS; i++)
        pm_print("%lu\n", pool->orders[i].number);
}

RACE_MAIN

/* A queue like a message broker's, with two workers and two producers, each with a connection of its own: a worker puts
 * what comes over its connection into the queue and acknowledges it, and the producer sends the next. The lock of the
 * queue and the counters of the workers lie in the pool.
 *
 * Clean: a message is durable before the counter that makes it count, and that is before the lock is released and before
 * it is acknowledged. Opening initialises the lock.
 *
 * clean
 * allow: missing-flush @ lock|unlock
 * allow: transient-data @ lock|unlock
 * published
 */
#include "race.h"
#include <sys/socket.h>

enum { WORKERS = 2, MESSAGES = 3, SLOTS = 64 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint32_t lock;
    PM_ALIGNED uint64_t count; /* of the slots that are taken */
    struct {
        PM_ALIGNED uint64_t message;
        uint64_t worker;
    } slots[SLOTS];
    struct {
        PM_ALIGNED uint64_t received;
    } workers[WORKERS];
};

static int connections[WORKERS][2]; /* the worker's end, the producer's end */

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    pool->lock = 0;
    pm_persist_it(pool->lock);
    /* A message that is in the queue counts as received, though the power may have failed before that was noted. */
    uint64_t received[WORKERS] = {0};
    for (uint64_t i = 0; i < pool->count; i++)
        received[pool->slots[i].worker % WORKERS]++;
    for (int i = 0; i < WORKERS; i++) {
        if (pool->workers[i].received > received[i])
            pm_fail("worker %d has received %lu messages, and %lu are there", i, pool->workers[i].received, received[i]);
        pool->workers[i].received = received[i];
        pm_persist_it(pool->workers[i]);
    }
}

static void lock(struct pool *pool)
{
    while (__atomic_exchange_n(&pool->lock, 1, __ATOMIC_ACQUIRE)) /* @lock */
        sched_yield();
}

static void unlock(struct pool *pool)
{
    pm_store(&pool->lock, 0); /* @unlock */
}

/* False if there is no room. */
static bool put(struct pool *pool, int worker, uint64_t message)
{
    lock(pool);
    uint64_t count = pool->count;
    bool has_room = count < SLOTS;
    if (has_room) {
        pool->slots[count].message = message;
        pool->slots[count].worker = (uint64_t)worker;
        pm_persist_it(pool->slots[count]);
        pool->count = count + 1;
        pm_persist_it(pool->count);
    }
    unlock(pool);
    if (has_room) {
        pool->workers[worker].received++;
        pm_persist_it(pool->workers[worker]);
    }
    return has_room;
}

static void serve(struct pool *pool, int worker, int fd)
{
    uint64_t message;
    while (recv(fd, &message, sizeof message, 0) == sizeof message) {
        uint64_t answer = put(pool, worker, message) ? message : 0;
        if (send(fd, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer)
            _exit(2);
    }
}

static void produce(int worker, int fd)
{
    for (uint64_t i = 1; i <= MESSAGES; i++) {
        uint64_t message = 100 * (uint64_t)(worker + 1) + i, answer;
        if (send(fd, &message, sizeof message, MSG_NOSIGNAL) != sizeof message)
            _exit(2);
        if (recv(fd, &answer, sizeof answer, 0) != sizeof answer)
            _exit(2);
        if (answer && answer != message)
            pm_fail("%lu was acknowledged in the place of %lu", answer, message);
    }
    shutdown(fd, SHUT_WR);
}

static void thread(struct pool *pool, int index)
{
    if (index < WORKERS)
        serve(pool, index, connections[index][0]);
    else
        produce(index - WORKERS, connections[index - WORKERS][1]);
}

static void work(struct pool *pool)
{
    for (int i = 0; i < WORKERS; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, connections[i]) != 0)
            _exit(2);
    }
    pm_threads(pool, 2 * WORKERS, thread);
}

static void more(struct pool *pool)
{
    put(pool, 0, 1);
    put(pool, 1, 2);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < pool->count; i++) {
        if (i >= SLOTS || !pool->slots[i].message)
            pm_fail("slot %lu is empty", i);
        pm_print("%lu\n", pool->slots[i].message);
    }
}

RACE_MAIN

/* Two threads: the main thread stores a value and starts its write-back; the other one marks the value as valid.
 *
 * Wrong: the only fence after the write-back is the other thread's. A fence completes the write-backs of its own
 * thread, so the value may still be missing when its mark is durable.
 * Right: the thread that wrote back fences, before it hands over.
 *
 * They take turns by plain loads and stores: a locked instruction of the main thread would complete its write-backs.
 *
 * bug: missing-fence @ value-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ value-store
 * flags: -pthread
 * needs: clflushopt
 */
#include "../pm.h"
#include <pthread.h>
#include <sched.h>

enum { VALUES = 3 };

struct value {
    PM_ALIGNED uint64_t value;
    PM_ALIGNED uint64_t valid;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct value values[VALUES];
};

static struct pool *shared;
static int written, marked; /* how many */

static void wait_for(int *turn, int number)
{
    while (__atomic_load_n(turn, __ATOMIC_ACQUIRE) < number)
        sched_yield();
}

static void *mark(void *unused)
{
    for (int i = 0; i < pm_job.operations; i++) {
        wait_for(&written, i + 1);
#ifdef BUG
        pm_fence();
#endif
        shared->values[i].valid = 1;
        pm_persist(&shared->values[i].valid, sizeof(uint64_t));
        pm_ack(i);
        __atomic_store_n(&marked, i + 1, __ATOMIC_RELEASE);
    }
    return unused;
}

static void open_pool(struct pool *pool)
{
    pthread_t marker;
    pm_create(&pool->magic);
    shared = pool;
    if (!pm_job.check && pthread_create(&marker, NULL, mark, NULL) != 0)
        _exit(2);
}

static void operation(struct pool *pool, int i)
{
    pool->values[i].value = 40 + (uint64_t)i; /* @value-store */
    pm_flush(&pool->values[i].value, sizeof(uint64_t));
#ifndef BUG
    pm_fence();
#endif
    __atomic_store_n(&written, i + 1, __ATOMIC_RELEASE);
    wait_for(&marked, i + 1);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < VALUES; i++) {
        if (!pool->values[i].valid)
            continue;
        if (pool->values[i].value != 40 + i)
            pm_fail("value %lu is valid and not there", i);
        pm_print("%lu\n", pool->values[i].value);
    }
}

PM_MAIN(VALUES)

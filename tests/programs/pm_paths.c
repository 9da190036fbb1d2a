// Stores to the pool from many calling paths, in random order: which path it was is written in the address.
// build: dynamic
// args: POOL
// flags: -O1 -g -fno-optimize-sibling-calls
//
// Four steps, each by one of three functions, lead to one of the leaves; a leaf stores to the slot of its path. Nothing
// is ever written back, so `check` has a finding for every store of every path, and its stack must say the path that
// its address says.
//
// With a further argument there was another thread before: then every record is made under a lock.
#include "pm_pool.h"
#include <pthread.h>

enum { STEPS = 3, PATHS = 81, LEAVES = 5, SLOT = 128, CALLS = 40000 };

static uint64_t counter;

/* One store: the first of its block. */
__attribute__((noinline)) static void leaf_0(volatile uint64_t *slot, uint64_t i)
{
    slot[0] = i;
}

/* Two stores: the second knows the context from the first. */
__attribute__((noinline)) static void leaf_1(volatile uint64_t *slot, uint64_t i)
{
    slot[0] = i;
    slot[8] = i;
}

/* A locked instruction on ordinary memory comes first in the block. */
__attribute__((noinline)) static void leaf_2(volatile uint64_t *slot, uint64_t i)
{
    __atomic_fetch_add(&counter, i, __ATOMIC_SEQ_CST);
    slot[0] = i;
}

/* The first store of the block hits the pool only now and then. */
__attribute__((noinline)) static void leaf_3(volatile uint64_t *slot, uint64_t i)
{
    volatile uint64_t *other = i & 1 ? &counter : slot;
    other[0] = i;
    slot[8] = i;
}

/* Its frame is found by the frame pointer. */
__attribute__((noinline)) static void leaf_4(volatile uint64_t *slot, uint64_t i)
{
    volatile char *room = __builtin_alloca(16 + i % 64);
    room[0] = 1;
    slot[0] = i;
    slot[8] = i + (uint64_t)room[0];
}

typedef void leaf(volatile uint64_t *, uint64_t);
static leaf *const leaves[LEAVES] = {leaf_0, leaf_1, leaf_2, leaf_3, leaf_4};

#define CALL_LEAF leaves[leaf]((volatile uint64_t *)(void *)(base + (leaf * PATHS + path) * SLOT), i)
#define CHOOSE(level)                                          \
    switch (rest % STEPS) {                                    \
    case 0: step_##level##_0(base, leaf, path, rest / STEPS, i); break; \
    case 1: step_##level##_1(base, leaf, path, rest / STEPS, i); break; \
    default: step_##level##_2(base, leaf, path, rest / STEPS, i);       \
    }
#define STEP(level, digit, next)                                                                                   \
    __attribute__((noinline)) static void step_##level##_##digit(unsigned char *base, int leaf, int path, int rest, \
                                                                 uint64_t i)                                       \
    {                                                                                                              \
        volatile char room[16 + 32 * digit];                                                                       \
        room[0] = 1;                                                                                               \
        i += (uint64_t)room[0] - 1;                                                                                \
        next                                                                                                       \
    }
#define STEPS_OF(level, next) STEP(level, 0, next) STEP(level, 1, next) STEP(level, 2, next)
STEPS_OF(3, (void)rest; CALL_LEAF;)
STEPS_OF(2, CHOOSE(3))
STEPS_OF(1, CHOOSE(2))
STEPS_OF(0, CHOOSE(1))

static void *nothing(void *unused)
{
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t other;
    if (argc > 2)
        CHECK(pthread_create(&other, NULL, nothing, NULL) == 0 && pthread_join(other, NULL) == 0);
    struct pool pool = pool_create(argc, argv, LEAVES * PATHS * SLOT);
    uint64_t s = 88172645463325252UL;
    for (uint64_t i = 0; i < CALLS; i++) {
        uint64_t r = next_random(&s);
        int path = (int)(r % PATHS), rest = path, leaf = (int)(r / PATHS % LEAVES);
        unsigned char *base = pool.base;
        CHOOSE(0)
    }
    printf("%lu\n", counter);
    return 0;
}

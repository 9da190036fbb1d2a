// Benchmark: work on a hash table in ordinary memory; every twentieth access goes to a table in the pool.
// build: dynamic
// args: POOL 400000
//
// Both tables have open addressing and the same slots. An access looks a key up and, three times out of
// four, changes its value. A change in the pool is written back and fenced.
#include "pm_pool.h"

struct slot {
    uint64_t key, value;
};

enum { SLOTS = 1 << 20, KEYS = SLOTS / 2, PM_EVERY = 20 };

__attribute__((noinline)) static struct slot *find(struct slot *table, uint64_t key)
{
    uint64_t at = key * 0x9E3779B97F4A7C15UL >> 44;
    while (table[at].key != 0 && table[at].key != key)
        at = (at + 1) & (SLOTS - 1);
    return &table[at];
}

int main(int argc, char **argv)
{
    uint64_t accesses = argc > 2 ? strtoull(argv[2], NULL, 10) : 20000000;
    struct pool pool = pool_create(argc, argv, SLOTS * sizeof(struct slot));
    struct slot *persistent = (struct slot *)pool.base;
    struct slot *ordinary = calloc(SLOTS, sizeof *ordinary);
    CHECK(ordinary != NULL);
    uint64_t s = 88172645463325252UL, sum = 0;
    for (uint64_t i = 0; i < accesses; i++) {
        uint64_t r = next_random(&s), key = r % KEYS + 1;
        int in_pool = i % PM_EVERY == 0;
        struct slot *slot = find(in_pool ? persistent : ordinary, key);
        sum += slot->value;
        if (r >> 62 == 0)
            continue;
        slot->value = i;
        slot->key = key;
        if (in_pool) {
            PM_CLWB(slot);
            PM_SFENCE();
        }
    }
    printf("%lu accesses, sum %lx\n", accesses, sum);
    free(ordinary);
    return 0;
}

// Benchmark: reads and changes of ordinary memory; every twentieth access stores 8 bytes to a random place in 4 MiB of the pool, and persists
// them.
// build: dynamic
// args: POOL 200000
#include "pm_pool.h"

enum { WORDS = 4 << 20 >> 3, ORDINARY = 1 << 20, PM_EVERY = 20 };

int main(int argc, char **argv)
{
    uint64_t accesses = argc > 2 ? strtoull(argv[2], NULL, 10) : 20000000;
    struct pool pool = pool_create(argc, argv, WORDS * sizeof(uint64_t));
    uint64_t *words = (uint64_t *)pool.base;
    uint64_t *ordinary = calloc(ORDINARY, sizeof *ordinary);
    CHECK(ordinary != NULL);
    uint64_t s = 88172645463325252UL, sum = 0;
    for (uint64_t i = 0; i < accesses; i++) {
        uint64_t r = next_random(&s);
        if (i % PM_EVERY == 0) {
            uint64_t *at = &words[r % WORDS];
            PM_STORE64(at, i);
            PM_CLWB(at);
            PM_SFENCE();
        } else if (r >> 63) {
            ordinary[r % ORDINARY] += i;
        } else {
            sum += ordinary[r % ORDINARY];
        }
    }
    for (uint64_t i = 0; i < WORDS; i++)
        sum = sum * 31 + words[i];
    printf("%lu accesses, sum %lx\n", accesses, sum);
    free(ordinary);
    return 0;
}

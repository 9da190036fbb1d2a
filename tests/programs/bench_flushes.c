// Benchmark: 8-byte stores, each flushed by libpmem, drained by eights.
// build: dynamic
// libs: -lpmem
// args: POOL 50000
#include "pm_pool.h"
#include <libpmem.h>

enum { WORDS = 8 << 20 >> 3, BATCH = 8 };

int main(int argc, char **argv)
{
    uint64_t stores = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000000;
    struct pool pool = pool_create(argc, argv, WORDS * sizeof(uint64_t));
    uint64_t *words = (uint64_t *)pool.base;
    for (uint64_t i = 0; i < stores; i++) {
        uint64_t *at = &words[i * 8 % WORDS + i / (WORDS / 8) % 8];
        PM_STORE64(at, i + 1);
        pmem_flush(at, sizeof *at);
        if (i % BATCH == BATCH - 1)
            pmem_drain();
    }
    pmem_drain();
    uint64_t sum = 0;
    for (uint64_t i = 0; i < WORDS; i++)
        sum = sum * 31 + words[i];
    printf("%lu stores, sum %lx\n", stores, sum);
    return 0;
}

// Benchmark: 8-byte stores, each followed by clwb, with a fence after every BATCH write-backs.
// build: dynamic
// args: POOL 50000 1
//
// Eight lines are a group. The stores walk through a group line by line, so that the write-backs of a
// batch of eight concern eight lines, and each line is written back eight times. The addresses do not
// depend on BATCH.
#include "pm_pool.h"

enum { GROUPS = 1 << 14, LINES = 8, WORDS = 8 };

int main(int argc, char **argv)
{
    uint64_t stores = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
    uint64_t batch = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    CHECK(batch > 0);
    struct pool pool = pool_create(argc, argv, sizeof(uint64_t) * GROUPS * LINES * WORDS);
    uint64_t(*groups)[LINES][WORDS] = (uint64_t(*)[LINES][WORDS])pool.base;
    uint64_t unfenced = 0;
    for (uint64_t i = 0; i < stores; i++) {
        uint64_t *at = &groups[i / (LINES * WORDS) % GROUPS][i % LINES][i / LINES % WORDS];
        PM_STORE64(at, i + 1);
        PM_CLWB(at);
        if (++unfenced == batch) {
            PM_SFENCE();
            unfenced = 0;
        }
    }
    PM_SFENCE();
    uint64_t sum = 0;
    for (uint64_t i = 0; i < GROUPS * LINES * WORDS; i++)
        sum += ((uint64_t *)pool.base)[i];
    printf("%lu stores, sum %lx\n", stores, sum);
    return 0;
}

// Benchmark: at least EVENTS stores, write-backs and fences at random places of 64 MiB.
// build: dynamic
// args: POOL 100000
//
// Two stores, two write-backs and a fence make a step. One step in eight leaves a store behind that is
// written back only by chance, so that lines remain in every state.
#include "pm_pool.h"

enum { WORDS = 64 << 20 >> 3, WORDS_A_LINE = 8, STEP_EVENTS = 5 };

int main(int argc, char **argv)
{
    uint64_t events = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000000;
    struct pool pool = pool_create(argc, argv, (size_t)WORDS * sizeof(uint64_t));
    uint64_t *words = (uint64_t *)pool.base;
    uint64_t s = 1;
    for (uint64_t i = 0; i < (events + STEP_EVENTS - 1) / STEP_EVENTS; i++) {
        uint64_t r = next_random(&s);
        uint64_t *first = &words[r % WORDS], *second = &words[(r >> 32) % WORDS];
        PM_STORE64(first, i);
        PM_STORE64(second, r);
        PM_CLWB(i % 8 == 0 ? words + (r >> 16) % (WORDS / WORDS_A_LINE) * WORDS_A_LINE : first);
        PM_CLWB(second);
        PM_SFENCE();
    }
    uint64_t sum = 0;
    for (uint64_t i = 0; i < WORDS; i++)
        sum = sum * 31 + words[i];
    printf("sum %lx\n", sum);
    return 0;
}

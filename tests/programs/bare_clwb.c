// Stores and writes back with clwb, whatever the processor has: most programs do not ask either.
// build: dynamic
// requires: clwb
// args: POOL
#include "pm_pool.h"

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 4096);
    CHECK(write(1, "before\n", 7) == 7);
    PM_STORE64(pool.base, 1);
    __asm__ volatile(".byte 0x66,0x0f,0xae,0x30" ::"a"(pool.base) : "memory"); // clwb (%rax)
    PM_SFENCE();
    CHECK(write(1, "after\n", 6) == 6);
    return 0;
}

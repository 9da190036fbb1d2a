// Flushes, fences and non-temporal stores in known numbers; the numbers are printed as
// `expect KIND COUNT` for comparison with a recording.
// build: dynamic
// args: POOL
//
// A locked instruction on ordinary memory is a fence event only while the thread has unfenced flushes
// or non-temporal stores; one on the pool is an rmw. Nothing else in this program flushes or fences
// with something pending, and it does not use the pool otherwise.
#include "pm_pool.h"

static int clwb, clflushopt, clflush, sfence, mfence, locked, rmw, store, nt_store;
static volatile long ordinary;

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 1 << 20);
    unsigned char *b = pool.base;
    int *second = pm_has(23, "clflushopt") ? &clflushopt : &clflush, *best = pm_has(24, "clwb") ? &clwb : second;
    for (int i = 0; i < 100; i++) {
        unsigned char *line = b + i * 64;
        PM_STORE64(line, i); store++;
        PM_CLWB(line + i % 64); ++*best;
        PM_SFENCE(); sfence++;
        PM_STORE64(line + 8, i); store++;
        PM_CLFLUSHOPT(line); ++*second;
        PM_MFENCE(); mfence++;
        PM_STORE64(line + 16, i); store++;
        PM_CLFLUSH(line); clflush++;
        PM_STORE64(line + 24, i); store++;
        PM_CLWB(line); ++*best;
        __asm__ volatile("lock addq $1,%0" : "+m"(ordinary)); locked++;
        __asm__ volatile("movnti %1,%0" : "=m"(*(uint64_t *)(line + 32)) : "r"((long)i)); nt_store++;
        __asm__ volatile("movntdq %%xmm0,%0" : "=m"(*(char(*)[16])(line + 48))); nt_store++;
        PM_SFENCE(); sfence++;
        uint64_t one = 1;
        __asm__ volatile("lock xaddq %1,%0" : "+m"(*(uint64_t *)(b + 65536)), "+r"(one)); rmw++;
        __asm__ volatile("xchgq %1,%0" : "+m"(*(uint64_t *)(b + 65544)), "+r"(one)); rmw++;
        __asm__ volatile("lock addq $1,%0" : "+m"(ordinary)); // nothing pending: no event
        PM_SFENCE(); sfence++;                                // an empty fence is still an event
    }
    printf("expect store %d\nexpect nt_store %d\nexpect rmw %d\nexpect clwb %d\nexpect clflushopt %d\nexpect clflush %d\n"
           "expect sfence %d\nexpect mfence %d\nexpect locked %d\n",
           store, nt_store, rmw, clwb, clflushopt, clflush, sfence, mfence, locked);
    return 0;
}

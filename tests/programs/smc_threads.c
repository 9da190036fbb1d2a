// One thread patches functions while others call them: whoever has seen that a patch is done must execute it.
// build: dynamic
//
// As a JIT patches call sites: an aligned store of the new immediate, then a number says that it is done; readers
// serialise between reading that number and calling. Two of the functions cross a page boundary with an instruction,
// one is long, so that translating it takes a while.
#include "harness.h"
#include <cpuid.h>
#include <pthread.h>
#include <sys/mman.h>

enum { FUNCTIONS = 4, READERS = 3, ROUNDS = 20000 };

static uint32_t *immediate[FUNCTIONS];
static uint32_t (*function[FUNCTIONS])(void);
static uint32_t done[FUNCTIONS];
static int ended;

static unsigned char *emit(unsigned char *at, const void *bytes, size_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

/* Something long; mov eax, imm32 ending at `immediate_end`; something long again; ret. */
static void make(int i, unsigned char *immediate_end, int before, int after)
{
    static const unsigned char harmless[] = {0x48, 0x8D, 0x89, 0, 0, 0, 0}; /* lea rcx, [rcx + 0] */
    unsigned char *at = immediate_end - 5 - before * (int)sizeof harmless;
    function[i] = (uint32_t(*)(void))(uintptr_t)at;
    for (int k = 0; k < before; k++)
        at = emit(at, harmless, sizeof harmless);
    at = emit(at, "\xB8\0\0\0\0", 5);
    immediate[i] = (uint32_t *)(void *)(at - 4);
    CHECK(((uintptr_t)immediate[i] & 3) == 0);
    for (int k = 0; k < after; k++)
        at = emit(at, harmless, sizeof harmless);
    emit(at, "\xC3", 1);
}

static void *reads(void *unused)
{
    (void)unused;
    uint64_t stale = 0;
    while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
        for (int i = 0; i < FUNCTIONS; i++) {
            uint32_t at_least = __atomic_load_n(&done[i], __ATOMIC_ACQUIRE);
            unsigned a, b, c, d;
            __cpuid(0, a, b, c, d);
            uint32_t got = function[i]();
            if (got < at_least)
                stale++;
        }
    return (void *)stale;
}

int main(void)
{
    unsigned char *code = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    make(0, code + 256, 1, 1);
    make(1, code + 2048, 20, 30);
    make(2, code + 2 * 4096 + 4, 10, 10); /* its immediate is in the next page */
    make(3, code + 3 * 4096, 3, 3);       /* the next instruction is */
    pthread_t readers[READERS];
    for (int i = 0; i < READERS; i++)
        CHECK(pthread_create(&readers[i], NULL, reads, NULL) == 0);
    for (uint32_t round = 1; round <= ROUNDS; round++)
        for (int i = 0; i < FUNCTIONS; i++) {
            __atomic_store_n(immediate[i], round, __ATOMIC_RELEASE);
            __atomic_store_n(&done[i], round, __ATOMIC_RELEASE);
            /* Patches come in bursts: what a burst leaves is what is executed for a while. */
            if (round % 8 == 0)
                for (int k = 0; k < 300; k++)
                    __builtin_ia32_pause();
        }
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    uint64_t stale = 0;
    for (int i = 0; i < READERS; i++) {
        void *result;
        CHECK(pthread_join(readers[i], &result) == 0);
        stale += (uint64_t)(uintptr_t)result;
    }
    printf("%lu stale calls\n", (unsigned long)stale);
    return stale != 0;
}

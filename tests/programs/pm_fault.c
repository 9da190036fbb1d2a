// Faults on the pool that are the program's own: beyond the end of the file, on pages it protected.
// build: dynamic
// args: POOL
//
// The handler must see the address in the program's mapping, never an alias, and the right code.
#include "pm_pool.h"
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

static sigjmp_buf back;
static volatile int last_sig, last_code;
static void *volatile last_addr;
static volatile greg_t last_err;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    last_sig = sig;
    last_code = info->si_code;
    last_addr = info->si_addr;
    last_err = ((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR];
    siglongjmp(back, 1);
}

#define EXPECT(sig, code, addr, write, body)                                                       \
    do {                                                                                           \
        last_sig = 0;                                                                              \
        if (sigsetjmp(back, 1) == 0) {                                                             \
            body;                                                                                  \
            FAIL("line %d: no signal", __LINE__);                                                  \
        }                                                                                          \
        CHECK_EQ(last_sig, sig);                                                                   \
        CHECK_EQ(last_code, code);                                                                 \
        CHECK_EQ((uintptr_t)last_addr, (uintptr_t)(addr));                                         \
        CHECK_EQ(last_err >> 1 & 1, write);                                                        \
    } while (0)

static volatile int commits;
static void on_write(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    commits++;
    CHECK_EQ(info->si_code, SEGV_ACCERR);
    CHECK(mprotect((void *)((uintptr_t)info->si_addr & ~4095UL), 4096, PROT_READ | PROT_WRITE) == 0);
}

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 16 * 4096);
    volatile unsigned char *b = pool.base;
    struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0 && sigaction(SIGBUS, &sa, NULL) == 0);
    for (int round = 0; round < 30; round++) {
        b[0]++;
        // Protected by the program.
        CHECK(mprotect(pool.base + 4096, 4096, PROT_READ) == 0);
        EXPECT(SIGSEGV, SEGV_ACCERR, b + 4096 + 7, 1, b[4096 + 7] = 1);
        EXPECT(SIGSEGV, SEGV_ACCERR, b + 4096 + 64, 1, __atomic_add_fetch((uint64_t *)(pool.base + 4096 + 64), 1, __ATOMIC_SEQ_CST));
        (void)b[4096 + 7];
        CHECK(mprotect(pool.base + 4096, 4096, PROT_NONE) == 0);
        EXPECT(SIGSEGV, SEGV_ACCERR, b + 4096 + 9, 0, (void)b[4096 + 9]);
        EXPECT(SIGSEGV, SEGV_ACCERR, b + 4096, 1, b[4096] = 1);
        // A store that begins on a good page and ends on a bad one changes nothing.
        uint64_t before = *(volatile uint64_t *)(b + 4096 - 4 - 8);
        EXPECT(SIGSEGV, SEGV_ACCERR, b + 4096, 1, *(volatile uint64_t *)(b + 4096 - 4) = ~0UL);
        CHECK_EQ(*(volatile uint64_t *)(b + 4096 - 4 - 8), before);
        CHECK_EQ(*(volatile uint32_t *)(b + 4096 - 4), 0);
        CHECK(mprotect(pool.base + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
        b[4096]++;
        // Beyond the end of the file.
        CHECK(ftruncate(pool.fd, 8 * 4096 + 10) == 0);
        EXPECT(SIGBUS, BUS_ADRERR, b + 9 * 4096 + 3, 1, b[9 * 4096 + 3] = 1);
        EXPECT(SIGBUS, BUS_ADRERR, b + 15 * 4096, 0, (void)b[15 * 4096]);
        b[8 * 4096 + 11] = 5; // same page as the end: allowed, lost
        CHECK(ftruncate(pool.fd, 16 * 4096) == 0);
        b[9 * 4096 + 3] = 6;
        // Unmapped.
        unsigned char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pool.fd, 0);
        m[1] = (unsigned char)round;
        CHECK(munmap(m, 4096) == 0);
        EXPECT(SIGSEGV, SEGV_MAPERR, m + 5, 1, ((volatile unsigned char *)m)[5] = 1);
        // A read-only mapping of a file opened for writing.
        unsigned char *r = mmap(NULL, 4096, PROT_READ, MAP_SHARED, pool.fd, 0);
        CHECK_EQ(r[1], round);
        EXPECT(SIGSEGV, SEGV_ACCERR, r + 2, 1, ((volatile unsigned char *)r)[2] = 1);
        CHECK(munmap(r, 4096) == 0);
    }
    // The program's own copy-on-write scheme: protect, fault, unprotect, go on.
    sa.sa_sigaction = on_write;
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
    for (int round = 0; round < 20; round++) {
        CHECK(mprotect(pool.base, 16 * 4096, PROT_READ) == 0);
        commits = 0;
        for (int page = 0; page < 16; page++)
            for (int i = 0; i < 4096; i += 512)
                b[page * 4096 + i] = (unsigned char)(round + page);
        CHECK_EQ(commits, 16);
    }
    // String instruction across protected pages, restarted in the middle.
    CHECK(mprotect(pool.base, 16 * 4096, PROT_READ) == 0);
    commits = 0;
    void *to = pool.base + 100;
    size_t count = 15 * 4096;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0x77) : "memory");
    CHECK(count == 0 && commits == 16);
    pool_check_file(pool);
    printf("faults ok %016lx\n", hash_bytes(1, pool.base, pool.size));
    return 0;
}

// Faults that programs recover from: SIGSEGV of every kind, SIGBUS, SIGFPE, SIGILL, SIGTRAP.
// build: dynamic static nopie
#include "harness.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

static sigjmp_buf back;
static volatile int last_sig, last_code;
static void *volatile last_addr;
static volatile uintptr_t last_rip;

static void leave(int sig, siginfo_t *info, void *context)
{
    last_sig = sig;
    last_code = info->si_code;
    last_addr = info->si_addr;
    last_rip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    siglongjmp(back, 1);
}

#define EXPECT(what, sig, code, addr, body)                                                        \
    do {                                                                                           \
        last_sig = 0;                                                                              \
        if (sigsetjmp(back, 1) == 0) {                                                             \
            body;                                                                                  \
            FAIL("%s: no signal", what);                                                           \
        }                                                                                          \
        CHECK_EQ(last_sig, sig);                                                                   \
        CHECK_EQ(last_code, code);                                                                 \
        CHECK_EQ((uintptr_t)last_addr, (uintptr_t)(addr));                                         \
        if (round == 0)                                                                            \
            printf("%s\n", what);                                                                  \
    } while (0)

static const int rodata[4] = {1, 2, 3, 4};
static char *page;

extern char div_at[], ud2_at[], int3_next[], hlt_at[], sse_at[], ud1_at[];

static volatile int commits;
static void commit_on_fault(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    commits++;
    CHECK_EQ(info->si_code, SEGV_ACCERR);
    uintptr_t at = (uintptr_t)info->si_addr & ~4095UL;
    CHECK(mprotect((void *)at, 4096, PROT_READ | PROT_WRITE) == 0);
}

int main(void)
{
    struct sigaction sa = {.sa_sigaction = leave, .sa_flags = SA_SIGINFO};
    int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (int i = 0; i < 5; i++)
        CHECK(sigaction(sigs[i], &sa, NULL) == 0);
    page = mmap(NULL, 4096 * 4, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    char *readable = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(data, 0xc3, 4096);
    char file[] = "/tmp/sig_faults.XXXXXX";
    int fd = mkstemp(file);
    CHECK(fd >= 0 && unlink(file) == 0 && ftruncate(fd, 5000) == 0);
    char *mapped = mmap(NULL, 4096 * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    volatile int zero = 0;

    for (int round = 0; round < 50; round++) {
        EXPECT("load from nothing", SIGSEGV, SEGV_MAPERR, 0x18, (void)*(volatile int *)0x18);
        EXPECT("store to nothing", SIGSEGV, SEGV_MAPERR, 0x20, *(volatile int *)0x20 = 1);
        EXPECT("load from PROT_NONE", SIGSEGV, SEGV_ACCERR, page + 100, (void)*(volatile char *)(page + 100));
        EXPECT("store to PROT_READ", SIGSEGV, SEGV_ACCERR, readable + 9, *(volatile char *)(readable + 9) = 1);
        EXPECT("store to constants", SIGSEGV, SEGV_ACCERR, &rodata[2],
               __asm__ volatile("movl $1,(%0)" ::"r"(&rodata[2]) : "memory"));
        EXPECT("non-canonical load", SIGSEGV, SI_KERNEL, 0, (void)*(volatile int *)0x8000000000000000UL);
        EXPECT("call to null", SIGSEGV, SEGV_MAPERR, 0, ((void (*)(void))0)());
        CHECK_EQ(last_rip, 0);
        EXPECT("call to nowhere", SIGSEGV, SEGV_MAPERR, 0x1234560, ((void (*)(void))0x1234560)());
        CHECK_EQ(last_rip, 0x1234560);
        EXPECT("call to data", SIGSEGV, SEGV_ACCERR, data, ((void (*)(void))data)());
        CHECK_EQ(last_rip, (uintptr_t)data);
        EXPECT("return to nowhere", SIGSEGV, SEGV_MAPERR, 0x777000,
               __asm__ volatile("sub $256,%%rsp\n pushq $0x777000\n ret\n" ::: "memory"));
        EXPECT("load beyond end of file", SIGBUS, BUS_ADRERR, mapped + 8192 + 5, (void)*(volatile char *)(mapped + 8192 + 5));
        EXPECT("store beyond end of file", SIGBUS, BUS_ADRERR, mapped + 12288, *(volatile char *)(mapped + 12288) = 1);
        EXPECT("divide by zero", SIGFPE, FPE_INTDIV, div_at,
               __asm__ volatile("mov $7,%%eax\n cltd\n mov %0,%%ecx\n .globl div_at\ndiv_at: idivl %%ecx\n" ::"m"(zero)
                                : "eax", "edx", "ecx"));
        CHECK_EQ(last_rip, (uintptr_t)div_at);
        EXPECT("ud2", SIGILL, ILL_ILLOPN, ud2_at, __asm__ volatile(".globl ud2_at\nud2_at: ud2\n"));
        CHECK_EQ(last_rip, (uintptr_t)ud2_at);
        EXPECT("undefined opcode", SIGILL, ILL_ILLOPN, ud1_at, __asm__ volatile(".globl ud1_at\nud1_at: .byte 0x06\n"));
        CHECK_EQ(last_rip, (uintptr_t)ud1_at);
        EXPECT("int3", SIGTRAP, SI_KERNEL, 0, __asm__ volatile("int3\n .globl int3_next\nint3_next: nop\n"));
        CHECK_EQ(last_rip, (uintptr_t)int3_next);
        EXPECT("hlt", SIGSEGV, SI_KERNEL, 0, __asm__ volatile(".globl hlt_at\nhlt_at: hlt\n"));
        CHECK_EQ(last_rip, (uintptr_t)hlt_at);
        unsigned mxcsr = 0x1f80 & ~0x200u; // unmask divide by zero
        EXPECT("sse divide by zero", SIGFPE, FPE_FLTDIV, sse_at,
               __asm__ volatile("ldmxcsr %0\n mov $0x3f800000,%%eax\n movd %%eax,%%xmm0\n xorps %%xmm1,%%xmm1\n"
                                ".globl sse_at\nsse_at: divss %%xmm1,%%xmm0\n" ::"m"(mxcsr)
                                : "eax", "xmm0", "xmm1"));
        mxcsr = 0x1f80;
        __asm__ volatile("ldmxcsr %0" ::"m"(mxcsr));
    }

    // Recover by making the page accessible: the instruction must run again, whole.
    sa.sa_sigaction = commit_on_fault;
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
    enum { PAGES = 300 };
    char *arena = mmap(NULL, PAGES * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < PAGES; i++)
        arena[i * 4096 + i] += (char)i;
    CHECK_EQ(commits, PAGES);
    for (int i = 0; i < PAGES; i++)
        CHECK_EQ(arena[i * 4096 + i], (char)i);
    // A string instruction that faults again and again in the middle.
    CHECK(mprotect(arena, PAGES * 4096, PROT_NONE) == 0);
    commits = 0;
    void *to = arena + 100;
    size_t count = PAGES * 4096 - 200;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0x5a) : "memory");
    CHECK_EQ(count, 0);
    CHECK_EQ(commits, PAGES);
    for (int i = 100; i < PAGES * 4096 - 100; i++)
        CHECK_EQ(arena[i], 0x5a);
    // The mapped file shrinks and grows under the program.
    CHECK(ftruncate(fd, 16384) == 0);
    mapped[12288] = 3;
    CHECK_EQ(mapped[12288], 3);
    printf("recovered\n");
    return 0;
}

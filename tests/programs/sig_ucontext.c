// The machine state a handler sees at a fault is exact, and what it writes there takes effect.
// build: dynamic static nopie
//
// Faults are placed in the middle of straight-line code, so a translator that reorders, keeps
// registers in spill slots or computes flags late is caught.
#include "harness.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

extern char fault_here[], fault_after[];
extern uint64_t run_fault(uint64_t *out);
extern uint64_t state_out[16];
uint64_t state_out[16];
// clang-format off
__asm__(".text\n.globl run_fault\nrun_fault:\n"
        "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rdi\n"
        "mov $0x101,%rax\n mov $0x202,%rbx\n mov $0x303,%rcx\n mov $0x404,%rdx\n mov $0x505,%rsi\n"
        "mov $0x606,%rdi\n mov $0x707,%rbp\n mov $0x808,%r8\n mov $0x909,%r9\n mov $0xa0a,%r10\n"
        "mov $0xb0b,%r11\n mov $0xc0c,%r12\n mov $0xd0d,%r13\n mov $0xe0e,%r14\n mov $0xf0f,%r15\n"
        "add %rax,%rbx\n"
        "cmp %rbx,%rax\n"           // 0x101 - 0x303: CF, AF and SF set
        ".globl fault_here\nfault_here:\n"
        "mov %r9,0x10(%r15)\n"      // 0xf1f: the first page is never mapped
        ".globl fault_after\nfault_after:\n"
        "mov %rax,state_out(%rip)\n mov %rbx,state_out+8(%rip)\n mov %rcx,state_out+16(%rip)\n"
        "mov %r15,state_out+24(%rip)\n mov %rsi,state_out+40(%rip)\n mov %r8,state_out+48(%rip)\n"
        "movq %xmm5,state_out+56(%rip)\n"
        "pushfq\n popq state_out+32(%rip)\n cld\n"
        "pop %rdi\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");
// clang-format on

static volatile int faults;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    greg_t *g = uc->uc_mcontext.gregs;
    faults++;
    CHECK_EQ(sig, SIGSEGV);
    CHECK_EQ((uintptr_t)info->si_addr, 0xf1f);
    CHECK_EQ(info->si_code, SEGV_MAPERR);
    CHECK_EQ(g[REG_RIP], (uintptr_t)fault_here);
    CHECK_EQ(g[REG_RAX], 0x101);
    CHECK_EQ(g[REG_RBX], 0x303);
    CHECK_EQ(g[REG_RCX], 0x303);
    CHECK_EQ(g[REG_RDX], 0x404);
    CHECK_EQ(g[REG_RSI], 0x505);
    CHECK_EQ(g[REG_RDI], 0x606);
    CHECK_EQ(g[REG_RBP], 0x707);
    CHECK_EQ(g[REG_R8], 0x808);
    CHECK_EQ(g[REG_R9], 0x909);
    CHECK_EQ(g[REG_R10], 0xa0a);
    CHECK_EQ(g[REG_R11], 0xb0b);
    CHECK_EQ(g[REG_R12], 0xc0c);
    CHECK_EQ(g[REG_R13], 0xd0d);
    CHECK_EQ(g[REG_R14], 0xe0e);
    CHECK_EQ(g[REG_R15], 0xf0f);
    CHECK_EQ(g[REG_EFL] & 0x8d5, 0x91); // CF, AF and SF; not PF, ZF, OF
    CHECK_EQ(g[REG_TRAPNO], 14);
    CHECK_EQ(g[REG_CR2], 0xf1f);
    CHECK_EQ(g[REG_ERR] & 7, 6); // user, write, not present
    char here;
    CHECK(g[REG_RSP] > (greg_t)&here && g[REG_RSP] < (greg_t)&here + (1 << 20));

    g[REG_RIP] = (greg_t)fault_after;
    g[REG_RAX] = 0x1234;
    g[REG_RCX] = (greg_t)0xfedcba9876543210;
    g[REG_R15] = faults;
    g[REG_RSI] = 77;
    g[REG_R8] = 88;
    g[REG_EFL] = (g[REG_EFL] & ~0x8d5) | 0x840; // ZF and OF instead
    uc->uc_mcontext.fpregs->_xmm[5].element[0] = 0xabcd;
    uc->uc_mcontext.fpregs->_xmm[5].element[1] = 0xef01;
}

// The handler can also replace the signal mask that returning installs.
static void on_mask(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    sigaddset(&((ucontext_t *)context)->uc_sigmask, SIGWINCH);
}

static volatile int skipped;
static void on_skip(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    ucontext_t *uc = context;
    skipped++;
    uc->uc_mcontext.gregs[REG_RIP] += 2; // the faulting instruction below is two bytes long
    uc->uc_mcontext.gregs[REG_RAX] = skipped;
}

static volatile uint64_t redirected;
static sigjmp_buf home;
static void landing(uint64_t a, uint64_t b)
{
    redirected = a * 1000 + b;
    siglongjmp(home, 1);
}
static void on_redirect(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    g[REG_RIP] = (greg_t)landing;
    g[REG_RDI] = 12;
    g[REG_RSI] = 34;
    g[REG_RSP] = ((g[REG_RSP] - 256) & ~15L) - 8; // as after a call
}

int main(void)
{
    struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
    for (int i = 1; i <= 300; i++) {
        memset(state_out, 0, sizeof state_out);
        run_fault(NULL);
        CHECK_EQ(faults, i);
        CHECK_EQ(state_out[0], 0x1234);
        CHECK_EQ(state_out[1], 0x303);
        CHECK_EQ(state_out[2], 0xfedcba9876543210);
        CHECK_EQ(state_out[3], i);
        CHECK_EQ(state_out[4] & 0x8d5, 0x840);
        CHECK_EQ(state_out[5], 77);
        CHECK_EQ(state_out[6], 88);
        CHECK_EQ(state_out[7], 0xef010000abcdULL);
    }

    sa.sa_sigaction = on_mask;
    CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
    raise(SIGUSR1);
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    CHECK(sigismember(&mask, SIGWINCH) == 1);
    CHECK(sigismember(&mask, SIGUSR1) == 0);

    // Step over a load of an unmapped page, two bytes: mov (%rdx),%eax.
    sa.sa_sigaction = on_skip;
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
    for (int i = 1; i <= 300; i++) {
        uint64_t rax = 5, rdx = 16;
        __asm__ volatile("mov (%%rdx),%%eax" : "+a"(rax) : "d"(rdx) : "memory");
        CHECK_EQ(rax, i);
    }

    sa.sa_sigaction = on_redirect;
    sa.sa_flags |= SA_NODEFER;
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        redirected = 0;
        if (sigsetjmp(home, 1) == 0) {
            *(volatile char *)24 = 1;
            CHECK(!"came back");
        }
        CHECK_EQ(redirected, 12034);
    }
    printf("fault states exact, edits took effect\n");
    return 0;
}

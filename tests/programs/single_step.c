// A program that single-steps itself: TF by popf and by a signal frame, over straight code, branches, calls, memory accesses, system
// calls. Each step is a SIGTRAP at the next instruction.
// build: dynamic static
#include "harness.h"
#include <signal.h>
#include <ucontext.h>

#define TF 0x100L
enum { MAX = 4000 };

static volatile int steps, wanted;
static unsigned long trail[MAX];
static int codes[MAX];
static unsigned long flags_seen[MAX];

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    ucontext_t *uc = context;
    CHECK(steps < MAX);
    trail[steps] = (unsigned long)uc->uc_mcontext.gregs[REG_RIP];
    codes[steps] = info->si_code;
    flags_seen[steps] = (unsigned long)uc->uc_mcontext.gregs[REG_EFL] & (unsigned long)TF;
    CHECK(info->si_addr == (void *)trail[steps]);
    steps++;
    if (wanted && steps == wanted)
        uc->uc_mcontext.gregs[REG_EFL] &= ~TF;
}

static void on_usr(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TF;
}

static void show(const char *what, unsigned long from)
{
    printf("%s: %d steps:", what, steps);
    for (int i = 0; i < steps && i < 60; i++) {
        // What is outside of the sequence is somebody else's code.
        long at = (long)(trail[i] - from);
        if (at >= 0 && at < 200)
            printf(" %ld", at);
        else
            printf(" -");
        CHECK_EQ(codes[i], TRAP_TRACE);
        // The popf that ends it is a step of its own, with the flag gone already.
        CHECK_EQ(flags_seen[i], i == steps - 1 ? 0 : TF);
    }
    puts("");
    steps = 0;
}

// clang-format off
#define BEGIN "sub $128,%%rsp\n pushfq\n orq $0x100,(%%rsp)\n popfq\n"
#define END "pushfq\n andq $~0x100,(%%rsp)\n popfq\n nop\n add $128,%%rsp\n"

static long cell;

static void straight(void)
{
    unsigned long from;
    __asm__ volatile("lea 1f(%%rip),%0\n" BEGIN "1: nop\n mov $5,%%eax\n 2: dec %%eax\n jnz 2b\n"
                     "push %%rax\n pop %%rax\n cld\n xor %%eax,%%eax\n mov $3,%%ecx\n rep movsb\n" END
                     : "=&r"(from), "+S"((void *){(void *)&cell}), "+D"((void *){(void *)&cell})
                     :: "rax", "rcx", "memory", "cc");
    show("straight", from);
}

static void branches(void)
{
    unsigned long from, cells[2] = {0, 0};
    __asm__ volatile("lea 1f(%%rip),%0\n" BEGIN
                     "1: jmp 3f\n 2: ret\n"
                     "3: mov $3,%%ecx\n"
                     "4: call 2b\n lea 2b(%%rip),%%rax\n call *%%rax\n mov %%rax,(%1)\n call *(%1)\n"
                     "lea 5f(%%rip),%%rax\n jmp *%%rax\n ud2\n"
                     "5: dec %%ecx\n jnz 4b\n jrcxz 6f\n ud2\n"
                     "6: loop 7f\n 7: incl 8(%1)\n lock incl 8(%1)\n" END
                     : "=&r"(from) : "r"(cells) : "rax", "rcx", "memory", "cc");
    CHECK_EQ(cells[1], 2);
    show("branches", from);
}

static void calls(void)
{
    unsigned long from;
    long pid;
    __asm__ volatile("lea 1f(%%rip),%0\n" BEGIN
                     "1: nop\n mov %2,%%eax\n syscall\n mov %%rax,%1\n nop\n mov %2,%%eax\n syscall\n nop\n" END
                     : "=&r"(from), "=&r"(pid) : "i"(SYS_getpid) : "rax", "rcx", "r11", "memory", "cc");
    CHECK_EQ(pid, getpid());
    show("system calls", from);
}
// clang-format on

static int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int main(void)
{
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &trap, NULL);
    for (int i = 0; i < 2; i++) {
        straight();
        branches();
        calls();
    }
    // Begun and ended by signal frames; compiled code in between.
    struct sigaction usr = {.sa_sigaction = on_usr, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &usr, NULL);
    wanted = 500;
    raise(SIGUSR1);
    volatile int result = fib(12);
    CHECK_EQ(steps, 500);
    CHECK_EQ(result, 144);
    unsigned long changes = 0;
    for (int i = 1; i < steps; i++)
        changes += trail[i] != trail[i - 1];
    CHECK(changes > 450); // repeated string instructions stay where they are
    puts("by signal frames ok");
    return 0;
}

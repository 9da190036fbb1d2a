// Functions that write nothing to memory, so that a translator may be tempted to know where they return.
// build: dynamic static nopie
// libs: -pthread
//
// Called from many places, entered without a call, and with the return address changed behind their back: by a handler of a
// fault in them, by a handler of an asynchronous signal, by another thread that they wait for. Flags pass through.
#include "harness.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

uint64_t from_64_places(uint64_t x), with_arguments(uint64_t x), without_call(uint64_t x), in_the_middle(uint64_t x),
    jumps_ahead(uint64_t x), carry_after(uint64_t a, uint64_t b), found_at(uint64_t *table, uint64_t key),
    guarded_load(uint64_t *from), storm_round(uint64_t x), waits(volatile uint64_t *gate);
extern char plus_one[], load[], load_end[], load_back[], load_other[], storm[], storm_end[], storm_other[], wait_other[];
// clang-format off
__asm__(".text\n"
        "plus_one: lea 1(%rax),%rax\n ret\n"
        "from_64_places: mov %rdi,%rax\n .rept 64\n call plus_one\n .endr\n ret\n"
        "pop_two: lea 2(%rdi),%rax\n ret $16\n"
        "with_arguments: push $1\n push $2\n call pop_two\n ret\n"
        "without_call: mov %rdi,%rax\n lea 1f(%rip),%rdx\n push %rdx\n jmp plus_one\n 1: lea 10(%rax),%rax\n ret\n"
        "two_steps: lea 100(%rax),%rax\n two_steps_second: lea 1(%rax),%rax\n ret\n"
        "in_the_middle: mov %rdi,%rax\n call two_steps\n call two_steps_second\n ret\n"
        "ahead: test %rdi,%rdi\n je 2f\n jmp 3f\n 2: lea 1000(%rax),%rax\n ret\n .p2align 4\n 3: lea 3(%rax),%rax\n ret\n"
        "jumps_ahead: mov %rdi,%rax\n call ahead\n ret\n"
        "compare: cmp %rsi,%rdi\n ret\n"
        "carry_after: xor %eax,%eax\n call compare\n setb %al\n ret\n"
        // A probe of a hash table: at once, after a few steps, or at an empty slot.
        "find: mov %rdi,%rax\n 4: mov (%rax),%rcx\n cmp %rsi,%rcx\n je 5f\n test %rcx,%rcx\n je 5f\n add $8,%rax\n jmp 4b\n 5: ret\n"
        "found_at: call find\n sub %rdi,%rax\n shr $3,%rax\n ret\n"
        // The state at the load is known: rcx, rdx, and carry from the comparison.
        "load: mov $0x303,%ecx\n mov $0x404,%edx\n cmp %rdx,%rcx\n .globl load_at\n load_at: mov (%rdi),%rax\n load_end: ret\n"
        "guarded_load: call load\n load_back: ret\n load_other: mov $77,%eax\n ret\n"
        "storm: .rept 40\n lea 1(%rdi),%rdi\n xor $5,%rdi\n .endr\n storm_end: ret\n"
        "storm_round: call storm\n xor %eax,%eax\n ret\n storm_other: mov $1,%eax\n ret\n"
        // Tells where its return address is, then waits for the gate in a function that writes nothing.
        "wait_gate: pause\n 6: cmpq $0,(%rdi)\n je 6b\n ret\n"
        "waits: lea -8(%rsp),%rax\n mov %rax,8(%rdi)\n call wait_gate\n xor %eax,%eax\n ret\n wait_other: mov $1,%eax\n ret\n");
// clang-format on
extern char load_at[];

static enum { REPAIR, DIVERT, JUMP } answer;
static uint64_t good = 42;
static sigjmp_buf back;
static volatile int faults;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    faults++;
    CHECK_EQ(g[REG_RIP], (uintptr_t)load_at);
    CHECK_EQ(*(uint64_t *)g[REG_RSP], (uintptr_t)load_back);
    CHECK_EQ(g[REG_RCX], 0x303);
    CHECK_EQ(g[REG_RDX], 0x404);
    CHECK_EQ(g[REG_EFL] & 0x8d5, 0x95); // CF, PF, AF and SF of 0x303 - 0x404
    if (answer == JUMP)
        siglongjmp(back, 1);
    if (answer == DIVERT)
        *(uint64_t *)g[REG_RSP] = (uintptr_t)load_other;
    g[REG_RDI] = (greg_t)&good;
}

static volatile uint64_t diverted;

static void on_alarm(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (g[REG_RIP] < (greg_t)storm || g[REG_RIP] > (greg_t)storm_end)
        return;
    uint64_t *slot = (uint64_t *)g[REG_RSP];
    // The same call may be interrupted twice.
    diverted += *slot != (uintptr_t)storm_other;
    *slot = (uintptr_t)storm_other;
}

// [0] opens the gate, [1] is where the return address lies.
static volatile uint64_t gate[2];

static void *opens_gate(void *unused)
{
    (void)unused;
    while (gate[1] == 0)
        usleep(100);
    usleep(2000);
    *(volatile uint64_t *)gate[1] = (uintptr_t)wait_other;
    gate[0] = 1;
    return NULL;
}

int main(void)
{
    uint64_t table[64] = {0};
    for (int i = 0; i < 60; i++)
        table[i] = (uint64_t)i * 3 + 1;
    for (uint64_t i = 0; i < 20000; i++) {
        CHECK_EQ(from_64_places(i), i + 64);
        CHECK_EQ(with_arguments(i), i + 2);
        CHECK_EQ(without_call(i), i + 11);
        CHECK_EQ(in_the_middle(i), i + 102);
        CHECK_EQ(jumps_ahead(i), i == 0 ? 1000 : i + 3);
        CHECK_EQ(carry_after(i, 10000), i < 10000);
        CHECK_EQ(found_at(table, i % 200), i % 200 % 3 == 1 && i % 200 < 180 ? i % 200 / 3 : 60);
    }

    struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        CHECK_EQ(guarded_load(&good), 42);
        answer = REPAIR;
        CHECK_EQ(guarded_load((uint64_t *)16), 42);
        answer = DIVERT;
        CHECK_EQ(guarded_load((uint64_t *)16), 77);
        answer = JUMP;
        if (sigsetjmp(back, 1) == 0) {
            guarded_load((uint64_t *)16);
            FAIL("no jump");
        }
    }
    CHECK_EQ(faults, 900);

    sa.sa_sigaction = on_alarm;
    CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
    struct itimerval every = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    uint64_t seen = 0;
    double end = now_seconds() + 20;
    while (diverted < 100 && now_seconds() < end)
        for (uint64_t i = 0; i < 10000; i++)
            seen += storm_round(i);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    for (uint64_t i = 0; i < 10000; i++)
        seen += storm_round(i);
    CHECK(diverted >= 100);
    CHECK_EQ(seen, diverted);

    for (int i = 0; i < 20; i++) {
        pthread_t other;
        gate[0] = gate[1] = 0;
        CHECK(pthread_create(&other, NULL, opens_gate, NULL) == 0);
        CHECK_EQ(waits(gate), 1);
        CHECK(pthread_join(other, NULL) == 0);
    }
    printf("simple calls ok\n");
    return 0;
}

// The machine state that a handler sees at a fault of a store which has been to the pool before.
// build: dynamic
// args: POOL
//
// Such stores are instrumented: they decide where to write, with registers of their own, and flags that are the program's. Each
// form is executed on the pool, on ordinary memory, on nothing, and in the pool beyond the end of the file, with different
// registers and flags each time. rcx is part of many forms, because it is the register that x86 needs for itself.
#include "pm_pool.h"
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

// All registers but rsp and r15, which holds this; then the flags.
struct state {
    uint64_t rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, flags;
};

// clang-format off
#define FORM(name, insn)                                                                             \
    extern char name##_at[], name##_end[];                                                           \
    void name(struct state *in, struct state *out);                                                  \
    __asm__(".text\n.globl " #name "\n" #name ":\n"                                                  \
            "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rsi\n"    \
            "mov %rdi,%r15\n push 112(%r15)\n popfq\n"                                               \
            "mov 0(%r15),%rax\n mov 8(%r15),%rbx\n mov 16(%r15),%rcx\n mov 24(%r15),%rdx\n"          \
            "mov 32(%r15),%rsi\n mov 40(%r15),%rdi\n mov 48(%r15),%rbp\n mov 56(%r15),%r8\n"         \
            "mov 64(%r15),%r9\n mov 72(%r15),%r10\n mov 80(%r15),%r11\n mov 88(%r15),%r12\n"         \
            "mov 96(%r15),%r13\n mov 104(%r15),%r14\n"                                               \
            #name "_at: " insn "\n" #name "_end:\n"                                                  \
            "pop %r15\n mov %rax,0(%r15)\n mov %rbx,8(%r15)\n mov %rcx,16(%r15)\n mov %rdx,24(%r15)\n" \
            "mov %rsi,32(%r15)\n mov %rdi,40(%r15)\n mov %rbp,48(%r15)\n mov %r8,56(%r15)\n"         \
            "mov %r9,64(%r15)\n mov %r10,72(%r15)\n mov %r11,80(%r15)\n mov %r12,88(%r15)\n"         \
            "mov %r13,96(%r15)\n mov %r14,104(%r15)\n pushfq\n pop 112(%r15)\n"                      \
            "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n cld\n ret\n")
// clang-format on

// rbp is the address, rcx too, r14 the address less 64, r13 a small index.
FORM(by_base, "mov %rax,(%rbp)");
FORM(by_displacement, "mov %rax,64(%r14)");
FORM(by_index, "mov %rax,64(%r14,%r13,8)");
FORM(by_rcx, "mov %rax,(%rcx)");
FORM(by_rcx_displaced, "mov %rax,8(%rcx)");
FORM(by_rcx_index, "mov %rax,-64(%rcx,%r13,8)");
FORM(rcx_into_itself, "mov %rcx,(%rcx)");
FORM(rcx_by_base, "mov %rcx,(%rbp)");
FORM(bytes_of_rcx, "mov %ch,(%rbp)");
FORM(adds, "add %rax,(%rbp)");
FORM(adds_carry, "adc %rdx,64(%r14)");
FORM(shifts, "shlq %cl,(%rbp)");
FORM(exchanges, "xchg %rcx,(%rbp)");
FORM(compares, "lock cmpxchg %rcx,(%rbp)");
FORM(increments, "lock incq (%rcx)");

struct form {
    void (*run)(struct state *, struct state *);
    char *at, *end;
    const char *name;
};
#define ROW(name) {name, name##_at, name##_end, #name}
static const struct form forms[] = {ROW(by_base),         ROW(by_displacement), ROW(by_index),     ROW(by_rcx),
                                    ROW(by_rcx_displaced), ROW(by_rcx_index),    ROW(rcx_into_itself), ROW(rcx_by_base),
                                    ROW(bytes_of_rcx),    ROW(adds),            ROW(adds_carry),   ROW(shifts),
                                    ROW(exchanges),       ROW(compares),        ROW(increments)};

enum { FLAGS = 0x8d5 }; // the arithmetic ones

static const struct form *current;
static struct state expected;
static volatile int faults;
static int expected_signal;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)info;
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    faults++;
    CHECK_EQ(sig, expected_signal);
    CHECK_EQ(g[REG_RIP], (uintptr_t)current->at);
    static const struct {
        int index;
        size_t offset;
    } registers[] = {
        {REG_RAX, offsetof(struct state, rax)}, {REG_RBX, offsetof(struct state, rbx)}, {REG_RCX, offsetof(struct state, rcx)},
        {REG_RDX, offsetof(struct state, rdx)}, {REG_RSI, offsetof(struct state, rsi)}, {REG_RDI, offsetof(struct state, rdi)},
        {REG_RBP, offsetof(struct state, rbp)}, {REG_R8, offsetof(struct state, r8)},   {REG_R9, offsetof(struct state, r9)},
        {REG_R10, offsetof(struct state, r10)}, {REG_R11, offsetof(struct state, r11)}, {REG_R12, offsetof(struct state, r12)},
        {REG_R13, offsetof(struct state, r13)}, {REG_R14, offsetof(struct state, r14)}};
    for (size_t i = 0; i < sizeof registers / sizeof *registers; i++) {
        uint64_t want = *(uint64_t *)((char *)&expected + registers[i].offset);
        if ((uint64_t)g[registers[i].index] != want)
            FAIL("%s: register %d is %llx, not %lx", current->name, registers[i].index, g[registers[i].index], want);
    }
    if ((g[REG_EFL] & FLAGS) != (greg_t)(expected.flags & FLAGS))
        FAIL("%s: flags %llx, not %lx", current->name, g[REG_EFL] & FLAGS, expected.flags & FLAGS);
    g[REG_RIP] = (greg_t)current->end;
}

static uint64_t seed = 99, digest = 1;

static void run(const struct form *form, unsigned char *address, int sig)
{
    uint64_t *in = (uint64_t *)&expected;
    for (size_t i = 0; i < sizeof expected / 8; i++)
        in[i] = next_random(&seed);
    expected.rbp = expected.rcx = (uintptr_t)address;
    expected.r14 = (uintptr_t)address - 64;
    expected.r13 = expected.rax & 7;
    expected.flags = (expected.flags & FLAGS) | 0x202;
    struct state out;
    current = form;
    expected_signal = sig;
    faults = 0;
    form->run(&expected, &out);
    if ((faults != 0) != (sig != 0))
        FAIL("%s: %d faults", form->name, faults);
    if (sig != 0) {
        CHECK(memcmp(&out, &expected, offsetof(struct state, flags)) == 0);
        CHECK_EQ(out.flags & FLAGS, expected.flags & FLAGS);
        return;
    }
    // Addresses differ from run to run; all else is the same natively.
    out.rcx -= out.rcx == (uintptr_t)address ? out.rcx : 0;
    out.rbp = out.r14 = 0;
    out.flags &= FLAGS;
    digest = hash_bytes(digest, &out, sizeof out);
}

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 4 * 4096);
    static unsigned char ordinary[4096];
    struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0 && sigaction(SIGBUS, &sa, NULL) == 0);
    for (int round = 0; round < 50; round++)
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            size_t at = 128 + next_random(&seed) % 400 * 8;
            memset(pool.base + at - 64, 0x5a, 192);
            memset(ordinary + at - 64, 0xa5, 192);
            run(&forms[f], pool.base + at, 0);
            run(&forms[f], ordinary + at, 0);
            run(&forms[f], (unsigned char *)at, SIGSEGV);
            CHECK(ftruncate(pool.fd, 2 * 4096) == 0);
            run(&forms[f], pool.base + 3 * 4096 + 128 + at % 2048, SIGBUS);
            CHECK(ftruncate(pool.fd, 4 * 4096) == 0);
            CHECK(mprotect(pool.base + 4096, 4096, PROT_READ) == 0);
            run(&forms[f], pool.base + 4096 + 128 + at % 2048, SIGSEGV);
            CHECK(mprotect(pool.base + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
        }
    pool_check_file(pool);
    printf("state at faults ok %016lx\n", digest);
    return 0;
}

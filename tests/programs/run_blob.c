// Executes blobs of machine code from a file with every register, flag and memory given, and prints
// how each ended. Natively and under the tool the output must be the same (suite `random_blocks`).
// Without arguments it checks itself with a few blobs of known outcome.
// build: dynamic
// flags: -mno-red-zone
// requires: avx xsave
//
//   run_blob FILE            one line for each run of each blob: how it ended, hashes of the state
//   run_blob FILE dump N     the same, but the whole state for blob N
//   run_blob FILE only N     the whole state for blob N, without running the others
//
// With RUN_BLOB_POOL=POOL in the environment the arena that registers point into is a shared mapping of that file, where the tool puts it, or
// with RUN_BLOB_FIXED where ARENA is; with RUN_BLOB_THREAD, there was another thread before; with RUN_BLOB_STORM, a
// signal arrives soon after a blob has begun.
//
// FILE: "BLOBS01\n", then u64 count, then for each blob a `struct blob` and its bytes, padded to 8.
//
// All memory that a blob may touch lies at fixed addresses, so that results that depend on addresses
// are equal in both runs. Data lies below 4 GiB, for 32-bit addressing; code far above, because the
// tool's own memory is near the code, and a wild 32-bit address must not meet it:
//
//   CODE  the blob, int3 around it     CONSTANTS  random data behind it     EXIT  where it returns to
//   ARENA random data, then a read-only page, then nothing     STACK  random data around rsp
//
// Not compared: the x87 instruction and operand pointers (FOP, FIP, FDP), because a translator runs
// a copy of the code; XSTATE_BV, because whether a component in its initial state counts as used
// is up to the processor; the resume flag in saved flags, which says nothing about the program; what
// returns left behind below the stack pointer (DEAD_ below), where the tool keeps addresses of its own.
#include "harness.h"
#include "cpu.h"
#include <cpuid.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <fcntl.h>
#include <pthread.h>
#include <ucontext.h>

enum {
    CODE = 0x3000000000,
    CODE_SIZE = 0x10000,
    CONSTANTS = CODE + CODE_SIZE,
    CONSTANTS_SIZE = 0x1000,
    EXIT = 0x3008000000,
    ARENA = 0x40000000,
    ARENA_SIZE = 0x8000,
    ARENA_READ_ONLY = 0x1000,
    ARENA_MIDDLE = ARENA + ARENA_SIZE / 2,
    STACK = 0x60000000,
    STACK_SIZE = 0x8000,
    STACK_MIDDLE = STACK + STACK_SIZE / 2,
    // Where the tool puts the first mapping that it tracks.
    POOL_ARENA = 0x7e8000000000,
    // Small numbers, for use as vector indices: 32-bit ones, then 64-bit ones. From the middle of the arena.
    SMALL_32 = 0x800,
    SMALL_64 = 0x900,
    SMALL_BYTES = 0x100,
    // Words that calls may have used and returns given up. Blobs read and write them by calls, returns,
    // pushes and pops only.
    DEAD_STACK = STACK_MIDDLE - 0x800,
    DEAD_ARENA = ARENA_MIDDLE + 0x3600,
    DEAD_ARENA_END = ARENA_MIDDLE + 0x3C00,
};

// The arena that registers point into: ARENA, where absolute addresses always lead to, or POOL_ARENA.
static uint64_t arena = ARENA;

// How the code gets there. The numbers are part of the file format.
enum mode { RWX = 0, W_XOR_X = 1, TWO_MAPPINGS = 2, MODES };

struct blob {
    uint64_t seed;
    uint32_t length;
    uint32_t offset;    // in CODE
    uint32_t mode;
    uint32_t base;      // number of the register that points at ARENA_MIDDLE
    uint32_t runs;      // each with its own state; later ones meet code that ran before
    uint32_t pointers;  // bits of other registers that point somewhere into the arena
};

// Processor state, in the order of the instruction encoding; rsp is 4.
struct registers {
    uint64_t gpr[16];
    uint64_t flags;
};

enum { XSAVE_SIZE = 16384, STATUS_FLAGS = 0x8D5, FLAG_RESUME = 0x10000 };

// Named by the assembly below, hence not static.
struct registers blob_in, blob_out;
unsigned char blob_vectors_in[XSAVE_SIZE] __attribute__((aligned(64)));
unsigned char blob_vectors_out[XSAVE_SIZE] __attribute__((aligned(64)));
uint64_t blob_entry, blob_host_rsp;
uint32_t blob_components;
uint32_t blob_mxcsr = 0x1F80;

void enter_blob(void);
void leave_blob(void);
void recover_blob(void);

#define EACH_GPR_BUT_RSP(F)                                                                        \
    F("rax", "0")                                                                                  \
    F("rcx", "8")                                                                                  \
    F("rdx", "16")                                                                                 \
    F("rbx", "24")                                                                                 \
    F("rbp", "40")                                                                                 \
    F("rsi", "48")                                                                                 \
    F("rdi", "56")                                                                                 \
    F("r8", "64")                                                                                  \
    F("r9", "72")                                                                                  \
    F("r10", "80")                                                                                 \
    F("r11", "88")                                                                                 \
    F("r12", "96")                                                                                 \
    F("r13", "104")                                                                                \
    F("r14", "112")                                                                                \
    F("r15", "120")
#define LOAD(reg, at) "mov blob_in+" at "(%rip), %" reg "\n"
#define SAVE(reg, at) "mov %" reg ", blob_out+" at "(%rip)\n"

__asm__(".text\n"
        ".globl enter_blob, leave_blob, recover_blob\n"
        "enter_blob:\n"
        "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, blob_host_rsp(%rip)\n"
        "mov blob_components(%rip), %eax\n xor %edx, %edx\n"
        "xrstor64 blob_vectors_in(%rip)\n"
        "pushq blob_in+128(%rip)\n popfq\n" EACH_GPR_BUT_RSP(LOAD) LOAD("rsp", "32")
        "jmp *blob_entry(%rip)\n"
        "leave_blob:\n" EACH_GPR_BUT_RSP(SAVE) SAVE("rsp", "32")
        "mov blob_host_rsp(%rip), %rsp\n"
        "pushfq\n popq blob_out+128(%rip)\n"
        "mov blob_components(%rip), %eax\n xor %edx, %edx\n"
        "xsave64 blob_vectors_out(%rip)\n"
        "recover_blob:\n"
        "mov blob_host_rsp(%rip), %rsp\n"
        "pushq $0x202\n popfq\n"
        "fninit\n ldmxcsr blob_mxcsr(%rip)\n vzeroupper\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
        "ret\n");

// x87, SSE, AVX and the three AVX-512 components; PKRU must stay as it is.
enum { COMPONENTS = 0xE7 };
static struct {
    uint32_t offset, size;
} components[8];

static void find_components(void)
{
    uint32_t low, high, a, b, c, d;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    blob_components = low & COMPONENTS;
    if (cpu_hidden("avx512"))
        blob_components &= 7;
    for (int i = 2; i < 8; i++) {
        if (blob_components >> i & 1) {
            __cpuid_count(0xD, i, a, b, c, d);
            components[i].size = a;
            components[i].offset = b;
            CHECK(a + b <= XSAVE_SIZE);
        }
    }
}

// What is compared of the vector state, free of what XSAVE leaves to the processor.
struct vectors {
    uint16_t fcw, fsw, tags, pad;
    uint32_t mxcsr, pad2;
    unsigned char st[8][16];
    unsigned char xmm[256];
    unsigned char component[8][1024];
};

static void canonical_vectors(struct vectors *out, const unsigned char *area)
{
    uint64_t used;
    memcpy(&used, area + 512, 8);
    memset(out, 0, sizeof *out);
    out->fcw = 0x37F;
    memcpy(&out->mxcsr, area + 24, 4);
    if (used & 1) {
        memcpy(&out->fcw, area, 2);
        memcpy(&out->fsw, area + 2, 2);
        out->tags = area[4];
        for (int i = 0; i < 8; i++)
            memcpy(out->st[i], area + 32 + 16 * i, 10);
    }
    if (used & 2)
        memcpy(out->xmm, area + 160, 256);
    for (int i = 2; i < 8; i++)
        if (blob_components >> i & 1 && used >> i & 1)
            memcpy(out->component[i], area + components[i].offset, components[i].size);
}

// How a run ended, beside its registers.
struct ending {
    int signal; // 0: returned
    int code;
    uint64_t address, rip, trap, error;
    bool endless;
};

static volatile sig_atomic_t inside;
static struct ending ending;

static const char *signal_name(int signal)
{
    switch (signal) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    case SIGTRAP: return "SIGTRAP";
    default: return "signal";
    }
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};
    ucontext_t *uc = context;
    greg_t *gregs = uc->uc_mcontext.gregs;
    if (signal == SIGVTALRM) {
        // Outside the blob it is about to end, or has not begun: look again at the next tick.
        if (!inside || (uint64_t)gregs[REG_RIP] - CODE >= CODE_SIZE)
            return;
        ending.endless = true;
    } else if (!inside) {
        FAIL("signal %d outside of any blob, at %#llx", signal, gregs[REG_RIP]);
    }
    inside = 0;
    ending.signal = signal;
    ending.code = info->si_code;
    ending.address = (uint64_t)info->si_addr;
    ending.rip = (uint64_t)gregs[REG_RIP];
    ending.trap = (uint64_t)gregs[REG_TRAPNO];
    ending.error = (uint64_t)gregs[REG_ERR];
    for (int i = 0; i < 16; i++)
        blob_out.gpr[i] = (uint64_t)gregs[order[i]];
    blob_out.flags = (uint64_t)gregs[REG_EFL] & ~(uint64_t)FLAG_RESUME;
    // The frame holds all components in the standard format, up to the last that the kernel uses.
    uint32_t magic, frame_size;
    const unsigned char *frame = (const unsigned char *)uc->uc_mcontext.fpregs;
    memcpy(&magic, frame + 464, 4);
    memcpy(&frame_size, frame + 480, 4);
    if (magic != FP_XSTATE_MAGIC1 || frame_size > XSAVE_SIZE)
        FAIL("the signal frame has no vector state (magic %#x, size %u)", magic, frame_size);
    memcpy(blob_vectors_out, frame, frame_size);
    gregs[REG_RIP] = (greg_t)recover_blob;
    gregs[REG_RSP] = (greg_t)blob_host_rsp;
    gregs[REG_EFL] = 0x202;
}

static void catch_signals(void)
{
    // Room for the largest frame (AVX-512 and AMX), with space for the handler.
    static unsigned char alternate[1 << 16];
    stack_t ss = {.ss_sp = alternate, .ss_size = sizeof alternate};
    CHECK(sigaltstack(&ss, NULL) == 0);
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigfillset(&sa.sa_mask);
    static const int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGVTALRM};
    for (unsigned i = 0; i < sizeof caught / sizeof *caught; i++)
        CHECK(sigaction(caught[i], &sa, NULL) == 0);
}

static void *map_at(uint64_t at, size_t size, int prot, int flags, int fd)
{
    void *p = mmap((void *)at, size, prot, flags, fd, 0);
    CHECK(p == (void *)at);
    return p;
}

// Where code is written, which in two-mapping mode is not where it runs.
static unsigned char *code_writable;
static uint32_t code_mode = MODES;
static int code_fd = -1;
static uint32_t old_offset, old_length;

static void map_code(uint32_t mode)
{
    if (mode == code_mode)
        return;
    CHECK(mode < MODES);
    int placed = code_mode == MODES ? MAP_FIXED_NOREPLACE : MAP_FIXED;
    if (code_fd >= 0) {
        munmap(code_writable, CODE_SIZE);
        close(code_fd);
        code_fd = -1;
    }
    code_mode = mode;
    code_writable = (unsigned char *)CODE;
    if (mode == TWO_MAPPINGS) {
        code_fd = memfd_create("code", MFD_CLOEXEC);
        CHECK(code_fd >= 0 && ftruncate(code_fd, CODE_SIZE) == 0);
        code_writable = mmap(NULL, CODE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, code_fd, 0);
        CHECK(code_writable != MAP_FAILED);
        memset(code_writable, 0xCC, CODE_SIZE);
        map_at(CODE, CODE_SIZE, PROT_READ | PROT_EXEC, MAP_SHARED | placed, code_fd);
    } else {
        int prot = PROT_READ | PROT_WRITE | (mode == RWX ? PROT_EXEC : 0);
        map_at(CODE, CODE_SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS | placed, -1);
        memset(code_writable, 0xCC, CODE_SIZE);
        if (mode == W_XOR_X)
            CHECK(mprotect((void *)CODE, CODE_SIZE, PROT_READ | PROT_EXEC) == 0);
    }
    old_length = 0;
}

static void place_code(const struct blob *blob, const unsigned char *bytes)
{
    map_code(blob->mode);
    // Untouched code stays untouched: a second run must find it translated already.
    if (old_offset == blob->offset && old_length == blob->length &&
        memcmp(code_writable + blob->offset, bytes, blob->length) == 0)
        return;
    if (code_mode == W_XOR_X)
        CHECK(mprotect((void *)CODE, CODE_SIZE, PROT_READ | PROT_WRITE) == 0);
    memset(code_writable + old_offset, 0xCC, old_length);
    memcpy(code_writable + blob->offset, bytes, blob->length);
    if (code_mode == W_XOR_X)
        CHECK(mprotect((void *)CODE, CODE_SIZE, PROT_READ | PROT_EXEC) == 0);
    old_offset = blob->offset;
    old_length = blob->length;
}

static void fill(uint64_t at, size_t size, uint64_t *random)
{
    static uint64_t words[ARENA_SIZE / 8];
    CHECK(size <= sizeof words);
    for (size_t i = 0; i < size / 8; i++)
        words[i] = next_random(random);
    // One event if it is recorded.
    const void *from = words;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(size)::"memory");
}

static void random_arena(uint64_t at, uint64_t *random)
{
    uint64_t middle = at + ARENA_SIZE / 2;
    fill(at, ARENA_SIZE, random);
    for (int i = 0; i < SMALL_BYTES / 4; i++)
        ((int32_t *)(middle + SMALL_32))[i] = (int32_t)(next_random(random) % 512) - 256;
    for (int i = 0; i < SMALL_BYTES / 8; i++)
        ((int64_t *)(middle + SMALL_64))[i] = (int64_t)(next_random(random) % 512) - 256;
}

static void random_state(const struct blob *blob, uint64_t *random)
{
    uint64_t middle = arena + ARENA_SIZE / 2;
    random_arena(ARENA, random);
    if (arena != ARENA)
        random_arena(arena, random);
    fill(CONSTANTS, CONSTANTS_SIZE, random);
    fill(STACK, STACK_SIZE, random);
    *(uint64_t *)STACK_MIDDLE = EXIT;

    for (int i = 0; i < 16; i++) {
        uint64_t value = next_random(random);
        switch (next_random(random) >> 32 & 7) {
        case 0: value = 0; break;
        case 1: value = ~0ULL; break;
        case 2: value &= 0xFF; break;
        case 3: value = (uint64_t)(int64_t)(int32_t)value; break;
        case 4: value = 1ULL << (value & 63); break;
        default: break;
        }
        if (blob->pointers >> i & 1)
            value = middle + (value & 0xFFF) - 0x800;
        blob_in.gpr[i] = value;
    }
    blob_in.gpr[4] = STACK_MIDDLE;
    blob_in.gpr[blob->base & 15] = middle;
    blob_in.flags = 0x202 | (next_random(random) & STATUS_FLAGS);

    unsigned char *area = blob_vectors_in;
    memset(area, 0, XSAVE_SIZE);
    uint64_t all = blob_components, bits = next_random(random);
    memcpy(area + 512, &all, 8);
    // Exceptions masked; rounding, precision, flush-to-zero and denormals as they come.
    uint16_t fcw = (uint16_t)(0x7F | (bits & 0xC00) | (bits & 0x1000 ? 0x300 : 0x200));
    uint16_t fsw = (uint16_t)(bits >> 8 & 0x3800);
    uint32_t mxcsr = (uint32_t)(0x1F80 | (bits >> 20 & 0xE040));
    memcpy(area, &fcw, 2);
    memcpy(area + 2, &fsw, 2);
    area[4] = (unsigned char)(bits >> 40);
    memcpy(area + 24, &mxcsr, 4);
    for (int i = 0; i < 8; i++) {
        uint64_t mantissa = next_random(random) | 1ULL << 63;
        uint16_t exponent = (uint16_t)(0x3FF0 + (mantissa & 0x1F) + (mantissa & 32 ? 0x8000 : 0));
        memcpy(area + 32 + 16 * i, &mantissa, 8);
        memcpy(area + 40 + 16 * i, &exponent, 2);
    }
    for (int i = 0; i < 32; i++) {
        uint64_t word = next_random(random);
        // Half of the registers hold ordinary numbers, lest all floating point be NaN or infinite.
        if (i & 1)
            word = (word & 0x800FFFFFFFFFFFFFULL) | (0x3F8ULL + (word >> 52 & 15)) << 52;
        memcpy(area + 160 + 8 * i, &word, 8);
    }
    for (int i = 2; i < 8; i++) {
        if (blob_components >> i & 1) {
            for (uint32_t at = 0; at + 8 <= components[i].size; at += 8) {
                uint64_t word = next_random(random);
                memcpy(area + components[i].offset + at, &word, 8);
            }
        }
    }
}

static uint64_t hash_words(const void *data, size_t size)
{
    const uint64_t *words = data;
    uint64_t h = 0xCBF29CE484222325ULL;
    for (size_t i = 0; i < size / 8; i++) {
        h = (h ^ words[i]) * 0x9E3779B97F4A7C15ULL;
        h ^= h >> 29;
    }
    return h;
}

static void dump_words(const char *name, const void *data, size_t size)
{
    const uint64_t *words = data;
    for (size_t i = 0; i < size / 8; i += 4)
        printf("  %s+%04zx %016lx %016lx %016lx %016lx\n", name, i * 8, words[i], words[i + 1],
               words[i + 2], words[i + 3]);
}

// Forgets what is not compared.
static void clear_dead(void)
{
    uint64_t rsp = blob_out.gpr[4], end = STACK_MIDDLE + 8;
    if (rsp >= DEAD_STACK && rsp <= STACK + STACK_SIZE)
        end = rsp;
    memset((void *)DEAD_STACK, 0, end - DEAD_STACK);
    memset((void *)DEAD_ARENA, 0, DEAD_ARENA_END - DEAD_ARENA);
}

static void report(uint64_t number, unsigned run, bool whole)
{
    static struct vectors vectors;
    printf("blob %lu run %u: ", number, run);
    if (ending.endless) {
        puts("endless");
        if (whole)
            printf("  at code+%#lx\n", ending.rip - CODE);
        return;
    }
    if (ending.signal == 0)
        printf("returned");
    else
        printf("%s code %d addr %#lx rip %s%#lx trap %lu error %lu", signal_name(ending.signal),
               ending.code, ending.address, ending.rip - CODE < CODE_SIZE ? "code+" : "",
               ending.rip - CODE < CODE_SIZE ? ending.rip - CODE : ending.rip, ending.trap,
               ending.error);
    canonical_vectors(&vectors, blob_vectors_out);
    clear_dead();
    printf(" gpr %016lx flags %05lx vectors %016lx arena %016lx stack %016lx code %016lx\n",
           hash_words(blob_out.gpr, sizeof blob_out.gpr), blob_out.flags,
           hash_words(&vectors, sizeof vectors),
           hash_words((void *)ARENA, ARENA_SIZE) ^ (arena == ARENA ? 0 : hash_words((void *)arena, ARENA_SIZE)),
           hash_words((void *)STACK, STACK_SIZE), hash_words((void *)CODE, CODE_SIZE));
    if (!whole)
        return;
    static const char *names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                    "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
    for (int i = 0; i < 16; i++)
        printf("  %s %016lx, was %016lx\n", names[i], blob_out.gpr[i], blob_in.gpr[i]);
    printf("  flags %lx, was %lx\n", blob_out.flags, blob_in.flags);
    printf("  fcw %04x fsw %04x tags %02x mxcsr %04x\n", vectors.fcw, vectors.fsw, vectors.tags,
           vectors.mxcsr);
    dump_words("st", vectors.st, sizeof vectors.st);
    dump_words("xmm", vectors.xmm, sizeof vectors.xmm);
    for (int i = 2; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "component%d", i);
        dump_words(name, vectors.component[i], components[i].size & ~31U);
    }
    dump_words("arena", (void *)ARENA, ARENA_SIZE);
    if (arena != ARENA)
        dump_words("pool", (void *)arena, ARENA_SIZE);
    dump_words("stack", (void *)STACK, STACK_SIZE);
    dump_words("code", (void *)(CODE + old_offset), (old_length + 31) & ~31U);
}

static bool is_stormy;
static volatile sig_atomic_t interruptions;

static void on_storm(int signal)
{
    (void)signal;
    interruptions++;
}

static void catch_storm(void)
{
    struct sigaction sa = {.sa_handler = on_storm, .sa_flags = SA_ONSTACK | SA_RESTART};
    CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
    is_stormy = true;
}

// One signal, within the time that a blob takes.
static void begin_storm(void)
{
    static uint64_t random = 1;
    struct itimerval soon = {.it_value = {0, (long)(1 + next_random(&random) % 40)}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void run(const struct blob *blob, const unsigned char *bytes, unsigned number)
{
    uint64_t random = blob->seed + 0x9E3779B97F4A7C15ULL * (number + 1);
    if (random == 0)
        random = 1;
    place_code(blob, bytes);
    random_state(blob, &random);
    memset(&ending, 0, sizeof ending);
    blob_entry = CODE + blob->offset;
    // Processor time: a busy machine does not make a blob endless. Far more than a blob needs that
    // ends, and less than a pointer used as a loop count takes, lest it end natively only. The
    // second tick is for a first one that came outside the blob.
    struct itimerval limit = {.it_value = {0, 50000}, .it_interval = {0, 50000}}, off = {0};
    CHECK(setitimer(ITIMER_VIRTUAL, &limit, NULL) == 0);
    if (is_stormy)
        begin_storm();
    inside = 1;
    enter_blob();
    inside = 0;
    CHECK(setitimer(ITIMER_VIRTUAL, &off, NULL) == 0);
}

static void set_up(void)
{
    find_components();
    catch_signals();
    int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, rw = PROT_READ | PROT_WRITE;
    map_at(CONSTANTS, CONSTANTS_SIZE, rw, fixed, -1);
    map_at(ARENA, ARENA_SIZE, rw, fixed, -1);
    // Present from the beginning: the error code of a fault tells.
    map_at(ARENA + ARENA_SIZE, ARENA_READ_ONLY, PROT_READ, fixed | MAP_POPULATE, -1);
    map_at(STACK, STACK_SIZE, rw, fixed, -1);
    // jmp [rip+0], then the address: where we were loaded must not be seen by blobs.
    unsigned char *exit_code = map_at(EXIT, 4096, rw, fixed, -1);
    static const unsigned char jump[6] = {0xFF, 0x25};
    uint64_t target = (uint64_t)leave_blob;
    memcpy(exit_code, jump, 6);
    memcpy(exit_code + 6, &target, 8);
    CHECK(mprotect(exit_code, 4096, PROT_READ | PROT_EXEC) == 0);
    map_code(RWX);
}

static void map_pool(const char *path)
{
    enum { SIZE = ARENA_SIZE + ARENA_READ_ONLY };
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), rw = PROT_READ | PROT_WRITE;
    CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
    if (getenv("RUN_BLOB_FIXED")) {
        map_at(ARENA, SIZE, rw, MAP_SHARED | MAP_FIXED, fd);
    } else {
        void *p = mmap(NULL, SIZE, rw, MAP_SHARED, fd, 0);
        CHECK(p != MAP_FAILED);
        if (p != (void *)POOL_ARENA) {
            CHECK(munmap(p, SIZE) == 0);
            map_at(POOL_ARENA, SIZE, rw, MAP_SHARED | MAP_FIXED_NOREPLACE, fd);
        }
        arena = POOL_ARENA;
    }
    *(volatile unsigned char *)(arena + ARENA_SIZE) = 1;
    CHECK(mprotect((void *)(arena + ARENA_SIZE), ARENA_READ_ONLY, PROT_READ) == 0);
    CHECK(*(volatile unsigned char *)(arena + ARENA_SIZE) == 1);
    CHECK(close(fd) == 0);
}

static void *nothing(void *unused)
{
    return unused;
}

static void check_self(void)
{
    static const struct {
        const char *name;
        unsigned char bytes[16];
        uint32_t length;
        int signal, code;
        uint64_t rip;
        bool endless;
    } known[] = {
        {"lea eax,[rdi+7]; std; ret", {0x8D, 0x47, 7, 0xFD, 0xC3}, 5, 0, 0, 0, false},
        {"int3", {0x90, 0xCC}, 2, SIGTRAP, SI_KERNEL, 2, false},
        {"ud2", {0x90, 0x0F, 0x0B}, 3, SIGILL, ILL_ILLOPN, 1, false},
        {"xor ecx,ecx; div ecx", {0x31, 0xC9, 0xF7, 0xF1}, 4, SIGFPE, FPE_INTDIV, 2, false},
        {"mov [0], eax", {0x89, 4, 0x25, 0, 0, 0, 0}, 7, SIGSEGV, SEGV_MAPERR, 0, false},
        {"jmp to itself", {0xEB, 0xFE}, 2, SIGVTALRM, 0, 0, true},
    };
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        for (uint32_t mode = 0; mode < MODES; mode++) {
            struct blob blob = {.seed = i + 1, .length = known[i].length, .offset = 0x4000 + 64 * i,
                                .mode = mode, .base = 15, .runs = 1};
            run(&blob, known[i].bytes, 0);
            if (known[i].endless != ending.endless)
                FAIL("%s: endless: %d", known[i].name, ending.endless);
            if (ending.endless)
                continue;
            if (ending.signal != known[i].signal ||
                (ending.signal && (ending.code != known[i].code ||
                                   ending.rip != CODE + blob.offset + known[i].rip)))
                FAIL("%s: signal %d code %d rip %#lx", known[i].name, ending.signal, ending.code,
                     ending.rip);
            if (i == 0) {
                CHECK_EQ(blob_out.gpr[0], (uint32_t)(blob_in.gpr[7] + 7));
                CHECK_EQ(blob_out.flags, blob_in.flags | 0x400);
                CHECK_EQ(blob_out.gpr[4], STACK_MIDDLE + 8);
                static struct vectors before, after;
                canonical_vectors(&before, blob_vectors_in);
                canonical_vectors(&after, blob_vectors_out);
                CHECK(memcmp(&before, &after, sizeof before) == 0);
            }
        }
    }
    puts("ok");
}

int main(int argc, char **argv)
{
    set_up();
    if (getenv("RUN_BLOB_POOL"))
        map_pool(getenv("RUN_BLOB_POOL"));
    pthread_t other;
    if (getenv("RUN_BLOB_THREAD"))
        CHECK(pthread_create(&other, NULL, nothing, NULL) == 0 && pthread_join(other, NULL) == 0);
    if (getenv("RUN_BLOB_STORM"))
        catch_storm();
    if (argc < 2) {
        check_self();
        return 0;
    }
    CHECK(argc == 2 || argc == 4);
    uint64_t chosen = argc == 4 ? strtoull(argv[3], NULL, 10) : ~0ULL;
    bool only = argc == 4 && strcmp(argv[2], "only") == 0;
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= 16);
    const unsigned char *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(file != MAP_FAILED && memcmp(file, "BLOBS01\n", 8) == 0);
    const unsigned char *at = file + 16, *end = file + st.st_size;
    uint64_t count;
    memcpy(&count, file + 8, 8);
    for (uint64_t i = 0; i < count; i++) {
        struct blob blob;
        CHECK((size_t)(end - at) >= sizeof blob);
        memcpy(&blob, at, sizeof blob);
        at += sizeof blob;
        CHECK((size_t)(end - at) >= blob.length && blob.offset + blob.length <= CODE_SIZE);
        for (unsigned run_number = 0; run_number < blob.runs; run_number++) {
            if (only && i != chosen)
                continue;
            run(&blob, at, run_number);
            report(i, run_number, i == chosen);
            // What was printed must survive if a later blob ends the process.
            fflush(stdout);
            if (ending.endless)
                break;
        }
        at += (blob.length + 7) & ~7U;
    }
    return 0;
}

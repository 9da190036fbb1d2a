// Executes a small script of accesses to persistent memory, and the recovery that goes with it.
// build: dynamic
// flags: -Wl,-z,now
// requires: avx
// args: run POOL -
//
//     litmus_vm run POOL SCRIPT     executes what stands above the line `recovery`
//     litmus_vm check POOL SCRIPT   executes what stands below it, on whatever the pool holds
//
// SCRIPT is a text file, one operation a line, numbers as in C; `-` is a script of its own. Addresses are offsets in the
// pool. A line that begins with `B` is executed by a second thread, in the order of the script. Loads put what they
// read into a register and append it to the log, which `print` writes out.
//
//     st ADDR SIZE VALUE            store of 1, 2, 4 or 8 bytes
//     vec ADDR SIZE VALUE           one store of 16 or 32 bytes: VALUE, VALUE + 1, … in words
//     nt ADDR SIZE VALUE            movnti, 4 or 8 bytes
//     put ADDR SIZE REG             store of a register
//     add REG ADDR SIZE VALUE       lock xadd, 4 or 8 bytes; a load, too
//     clwb|clflushopt|clflush ADDR, sfence, mfence (clflushopt for clwb, clflush for both, if the processor lacks them)
//     locked                        a locked instruction on ordinary memory
//     msync ADDR LEN
//     ld REG ADDR SIZE              load of 1, 2, 4 or 8 bytes
//     ldx REG ADDR SIZE FROM MASK   the same at ADDR + (register FROM & MASK)
//     vld REG ADDR SIZE             one load of 16 or 32 bytes
//     copy|pipe|pread REG ADDR LEN  up to 64 bytes by rep movsb, through a pipe, by pread
//     eq|ne REG VALUE COUNT         skips COUNT operations
//     print, ack, input             write(2) of the log, write(2) of one line, read(2) of a byte from stdin
//     exit CODE, leave REG, abort, null
//
// Between operations there is no locked instruction (hence no stdio, no lazy binding, no exit handlers): it would complete
// the write-backs that are under way.
#include "harness.h"
#include "cpu.h"
#include <cpuid.h>
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { POOL_SIZE = 8192, OPS_MAX = 256, ARGS_MAX = 5, REGS = 16, WORDS_MAX = 8, SCRIPT_MAX = 16384 };

// The names above, in this order.
enum kind {
    ST, VEC, NT, PUT, ADD, CLWB, CLFLUSHOPT, CLFLUSH, SFENCE, MFENCE, LOCKED, MSYNC, LD, LDX, VLD, COPY, PIPE, PREAD,
    EQ, NE, PRINT, ACK, INPUT, EXIT, LEAVE, ABORT, NULL_LOAD, RECOVERY, KINDS
};

static const struct {
    const char *name;
    int args;
} forms[KINDS] = {
    {"st", 3}, {"vec", 3}, {"nt", 3}, {"put", 3}, {"add", 4}, {"clwb", 1}, {"clflushopt", 1}, {"clflush", 1},
    {"sfence", 0}, {"mfence", 0}, {"locked", 0}, {"msync", 2}, {"ld", 3}, {"ldx", 5}, {"vld", 3}, {"copy", 3},
    {"pipe", 3}, {"pread", 3}, {"eq", 3}, {"ne", 3}, {"print", 0}, {"ack", 0}, {"input", 0}, {"exit", 1}, {"leave", 1},
    {"abort", 0}, {"null", 0}, {"recovery", 0},
};

struct op {
    enum kind kind;
    bool second_thread;
    uint64_t args[ARGS_MAX];
};

static const char own_script[] =
    "st 0 8 0x11\nvec 60 16 0x22\nB nt 128 8 0x33\nclwb 0\nclflushopt 64\nB locked\nsfence\nack\nadd 0 192 8 5\nmfence\n"
    "clflush 192\nmsync 0 8192\nld 1 0 8\nldx 2 43 4 1 0x11\nvld 3 56 32\ncopy 4 0 64\npipe 5 124 8\npread 6 190 10\n"
    "eq 1 0x11 1\nabort\nprint\nrecovery\nld 0 0 1\nprint\nleave 0\n";

static struct op ops[OPS_MAX];
static int op_count, recovery_begin;
static unsigned char *pool;
static int pool_fd, pipe_ends[2];
static uint64_t regs[REGS];
static uint64_t log_words[OPS_MAX * WORDS_MAX];
static int log_length, acks;
static bool has_clwb, has_clflushopt;

// ---- the script

static void parse_line(char *line)
{
    struct op *op = &ops[op_count];
    char *rest = line;
    char *word = strtok_r(line, " ", &rest);
    if (word && strcmp(word, "B") == 0) {
        op->second_thread = true;
        word = strtok_r(NULL, " ", &rest);
    }
    if (!word)
        return;
    int kind = 0;
    while (kind < KINDS && strcmp(forms[kind].name, word) != 0)
        kind++;
    if (kind == KINDS)
        FAIL("no operation '%s'", word);
    op->kind = (enum kind)kind;
    for (int i = 0; i < forms[kind].args; i++) {
        char *number = strtok_r(NULL, " ", &rest);
        char *end = number;
        if (number)
            op->args[i] = strtoull(number, &end, 0);
        if (!number || *end || end == number)
            FAIL("'%s' takes %d numbers", forms[kind].name, forms[kind].args);
    }
    if (kind == RECOVERY)
        recovery_begin = op_count + 1;
    if (++op_count == OPS_MAX)
        FAIL("the script has too many operations");
}

static void read_script(const char *path)
{
    static char text[SCRIPT_MAX];
    if (strcmp(path, "-") == 0) {
        memcpy(text, own_script, sizeof own_script);
    } else {
        int fd = open(path, O_RDONLY);
        ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text);
        if (length < 0)
            FAIL("cannot read %s: %s", path, strerror(errno));
        if (length == sizeof text)
            FAIL("%s is too long", path);
        close(fd);
    }
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        parse_line(line);
    if (!recovery_begin)
        FAIL("the script has no line 'recovery'");
}

// ---- operations

// Ends a program whose script is wrong in a way that no script of the suite is.
static void *at(uint64_t address, uint64_t length)
{
    if (address > POOL_SIZE || length > POOL_SIZE - address)
        FAIL("%#llx is outside the pool", (unsigned long long)address);
    return pool + address;
}

static uint64_t *reg(uint64_t number)
{
    if (number >= REGS)
        FAIL("no register %llu", (unsigned long long)number);
    return &regs[number];
}

// One instruction each: what the script says is what the recording must show.
static void store(void *to, uint64_t size, uint64_t value)
{
    switch (size) {
    case 1: __asm__ volatile("movb %b1, (%0)" ::"r"(to), "q"(value) : "memory"); break;
    case 2: __asm__ volatile("movw %w1, (%0)" ::"r"(to), "r"(value) : "memory"); break;
    case 4: __asm__ volatile("movl %k1, (%0)" ::"r"(to), "r"(value) : "memory"); break;
    case 8: __asm__ volatile("movq %1, (%0)" ::"r"(to), "r"(value) : "memory"); break;
    default: FAIL("no store of %llu bytes", (unsigned long long)size);
    }
}

static uint64_t load(const void *from, uint64_t size)
{
    uint64_t value = 0;
    switch (size) {
    case 1: __asm__ volatile("movzbl (%1), %k0" : "=r"(value) : "r"(from) : "memory"); break;
    case 2: __asm__ volatile("movzwl (%1), %k0" : "=r"(value) : "r"(from) : "memory"); break;
    case 4: __asm__ volatile("movl (%1), %k0" : "=r"(value) : "r"(from) : "memory"); break;
    case 8: __asm__ volatile("movq (%1), %0" : "=r"(value) : "r"(from) : "memory"); break;
    default: FAIL("no load of %llu bytes", (unsigned long long)size);
    }
    return value;
}

__attribute__((target("avx"))) static void vector_store(void *to, uint64_t size, uint64_t value)
{
    uint64_t words[4] = {value, value + 1, value + 2, value + 3};
    if (size == 16)
        __asm__ volatile("movdqu (%1), %%xmm0; movdqu %%xmm0, (%0)" ::"r"(to), "r"(words) : "memory", "xmm0");
    else
        __asm__ volatile("vmovdqu (%1), %%ymm0; vmovdqu %%ymm0, (%0); vzeroupper" ::"r"(to), "r"(words)
                         : "memory", "xmm0");
}

__attribute__((target("avx"))) static void vector_load(uint64_t words[WORDS_MAX], const void *from, uint64_t size)
{
    if (size == 16)
        __asm__ volatile("movdqu (%1), %%xmm0; movdqu %%xmm0, (%0)" ::"r"(words), "r"(from) : "memory", "xmm0");
    else
        __asm__ volatile("vmovdqu (%1), %%ymm0; vmovdqu %%ymm0, (%0); vzeroupper" ::"r"(words), "r"(from)
                         : "memory", "xmm0");
}

static void nt_store(void *to, uint64_t size, uint64_t value)
{
    if (size == 4)
        __asm__ volatile("movnti %k1, (%0)" ::"r"(to), "r"(value) : "memory");
    else
        __asm__ volatile("movnti %1, (%0)" ::"r"(to), "r"(value) : "memory");
}

static uint64_t fetch_add(void *to, uint64_t size, uint64_t value)
{
    if (size == 4) {
        uint32_t old = (uint32_t)value;
        __asm__ volatile("lock xaddl %0, (%1)" : "+r"(old) : "r"(to) : "memory");
        return old;
    }
    __asm__ volatile("lock xaddq %0, (%1)" : "+r"(value) : "r"(to) : "memory");
    return value;
}

// Copies out of the pool in a way that is no plain load.
static void copy(enum kind how, void *to, const void *from, uint64_t length)
{
    if (how == COPY)
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length)::"memory");
    else if (how == PREAD)
        CHECK(syscall(SYS_pread64, pool_fd, to, length, (const unsigned char *)from - pool) == (long)length);
    else
        CHECK(syscall(SYS_write, pipe_ends[1], from, length) == (long)length &&
              syscall(SYS_read, pipe_ends[0], to, length) == (long)length);
}

static void loaded(uint64_t number, const uint64_t *words, uint64_t bytes)
{
    *reg(number) = words[0];
    for (uint64_t i = 0; i < (bytes + 7) / 8; i++)
        log_words[log_length++] = words[i];
}

static void write_out(const char *text, long length)
{
    if (syscall(SYS_write, 1, text, length) != length)
        _exit(3);
}

static void print_log(void)
{
    static char text[sizeof log_words / 8 * 17 + 1];
    char *end = text;
    for (int i = 0; i < log_length; i++) {
        bool begun = false;
        for (int shift = 60; shift >= 0; shift -= 4) {
            unsigned digit = log_words[i] >> shift & 15;
            begun = begun || digit || shift == 0;
            if (begun)
                *end++ = "0123456789abcdef"[digit];
        }
        *end++ = i + 1 < log_length ? ' ' : '\n';
    }
    log_length = 0;
    if (end != text)
        write_out(text, end - text);
}

// Returns how many operations to skip.
static uint64_t step(const struct op *op)
{
    const uint64_t *a = op->args;
    uint64_t words[WORDS_MAX] = {0};
    switch (op->kind) {
    case ST: store(at(a[0], a[1]), a[1], a[2]); break;
    case VEC: vector_store(at(a[0], a[1]), a[1], a[2]); break;
    case NT: nt_store(at(a[0], a[1]), a[1], a[2]); break;
    case PUT: store(at(a[0], a[1]), a[1], *reg(a[2])); break;
    case ADD:
        words[0] = fetch_add(at(a[1], a[2]), a[2], a[3]);
        loaded(a[0], words, 8);
        break;
    case CLWB:
        if (has_clwb) {
            __asm__ volatile("clwb (%0)" ::"r"(at(a[0], 1)) : "memory");
            break;
        }
        // fall through
    case CLFLUSHOPT:
        if (has_clflushopt) {
            __asm__ volatile("clflushopt (%0)" ::"r"(at(a[0], 1)) : "memory");
            break;
        }
        // fall through
    case CLFLUSH: __asm__ volatile("clflush (%0)" ::"r"(at(a[0], 1)) : "memory"); break;
    case SFENCE: __asm__ volatile("sfence" ::: "memory"); break;
    case MFENCE: __asm__ volatile("mfence" ::: "memory"); break;
    case LOCKED: __asm__ volatile("lock incq %0" : "+m"(words[0])::"memory"); break;
    case MSYNC: CHECK(syscall(SYS_msync, at(a[0], a[1]), a[1], MS_SYNC) == 0); break;
    case LD:
        words[0] = load(at(a[1], a[2]), a[2]);
        loaded(a[0], words, 8);
        break;
    case LDX:
        words[0] = load(at(a[1] + (*reg(a[3]) & a[4]), a[2]), a[2]);
        loaded(a[0], words, 8);
        break;
    case VLD:
        vector_load(words, at(a[1], a[2]), a[2]);
        loaded(a[0], words, a[2]);
        break;
    case COPY:
    case PIPE:
    case PREAD:
        if (a[2] > sizeof words)
            FAIL("%llu bytes are too many", (unsigned long long)a[2]);
        copy(op->kind, words, at(a[1], a[2]), a[2]);
        loaded(a[0], words, a[2]);
        break;
    case EQ: return *reg(a[0]) == a[1] ? a[2] : 0;
    case NE: return *reg(a[0]) != a[1] ? a[2] : 0;
    case PRINT: print_log(); break;
    case ACK: {
        char text[] = "ack 00\n";
        acks++;
        text[4] = (char)('0' + acks / 10 % 10);
        text[5] = (char)('0' + acks % 10);
        write_out(text, sizeof text - 1);
        break;
    }
    case INPUT:
        if (syscall(SYS_read, 0, words, 1) < 0)
            _exit(3);
        break;
    case EXIT: _exit((int)(a[0] & 255));
    case LEAVE: _exit((int)(*reg(a[0]) & 255));
    case ABORT: abort();
    case NULL_LOAD: __asm__ volatile("movl 0, %%eax" ::: "eax", "memory"); break;
    case RECOVERY:
    case KINDS: break;
    }
    return 0;
}

// ---- the second thread

// Whose turn it is: the second thread executes `handed` and sets it to null. Plain accesses do on x86, where stores are
// seen in order; a lock would complete write-backs.
static const struct op *volatile handed;

static void *second_thread(void *unused)
{
    for (;;) {
        while (!handed)
            sched_yield();
        step(handed);
        handed = NULL;
    }
    return unused;
}

static void execute(int from, int to)
{
    for (int i = from; i < to; i++) {
        if (ops[i].second_thread) {
            handed = &ops[i];
            while (handed)
                sched_yield();
        } else {
            i += (int)step(&ops[i]);
        }
    }
}

int main(int argc, char **argv)
{
    bool check = argc == 4 && strcmp(argv[1], "check") == 0;
    if (!check && (argc != 4 || strcmp(argv[1], "run") != 0))
        FAIL("usage: %s run|check POOL SCRIPT", argv[0]);
    unsigned eax, ebx = 0, ecx, edx;
    __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
    has_clwb = (ebx >> 24 & 1) && !cpu_hidden("clwb");
    has_clflushopt = (ebx >> 23 & 1) && !cpu_hidden("clflushopt");
    read_script(argv[3]);
    CHECK(pipe(pipe_ends) == 0);

    struct stat status;
    pool_fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    CHECK(pool_fd >= 0 && fstat(pool_fd, &status) == 0);
    if (status.st_size < POOL_SIZE)
        CHECK(ftruncate(pool_fd, POOL_SIZE) == 0);
    pool = mmap(NULL, POOL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, pool_fd, 0);
    CHECK(pool != MAP_FAILED);

    int from = check ? recovery_begin : 0, to = check ? op_count : recovery_begin - 1;
    for (int i = from; i < to; i++) {
        pthread_t thread;
        if (ops[i].second_thread) {
            CHECK(pthread_create(&thread, NULL, second_thread, NULL) == 0);
            break;
        }
    }
    execute(from, to);
    munmap(pool, POOL_SIZE);
    // The end of a thread and exit handlers have locked instructions.
    _exit(0);
}

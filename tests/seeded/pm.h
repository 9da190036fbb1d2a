/* What the seeded programs share: a pool file, write-backs and fences, and the command line.
 *
 *     PROG run POOL [OPERATIONS]   performs the first OPERATIONS operations (all, if not given) and acknowledges each
 *     PROG check POOL              recovers, verifies, prints the content; exit 1 if it is inconsistent
 *     PROG verify POOL DONE TEXT   the same, knowing that DONE operations were acknowledged; TEXT, a file, is not read
 *
 * A program defines `struct pool`, `open_pool` (create or recover), `operation`, `check`, and ends with `PM_MAIN(how
 * many operations)`. It is the same on every run: no time, no randomness, no address in its output. So `run POOL k`
 * followed by `check POOL` prints what must be there after k whole operations, and the output of `check` after a crash
 * must be that of some k between the operations acknowledged and those begun.
 *
 * A file that has just been made is all zero, and so is the line that holds the magic until creation is complete.
 *
 * Output goes by a plain system call: stdio's locks are locked instructions, which complete pending write-backs.
 */
#ifndef PM_H
#define PM_H

#define _GNU_SOURCE
#include <cpuid.h>
#include <fcntl.h>
#include <immintrin.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* -DASSERT builds state what must be persistent when; -DANNOTATE builds name what is unflushed on purpose. */
#if defined(ASSERT) || defined(ANNOTATE)
#include <brownout.h>
#endif
#ifdef ASSERT
#define PM_ASSERT_PERSISTED(a, len) brownout_is_persisted((a), (len))
#define PM_ASSERT_ORDERED(a, a_len, b, b_len) brownout_is_ordered_before((a), (a_len), (b), (b_len))
#else
#define PM_ASSERT_PERSISTED(a, len) ((void)(a), (void)(len))
#define PM_ASSERT_ORDERED(a, a_len, b, b_len) ((void)(a), (void)(a_len), (void)(b), (void)(b_len))
#endif
#ifdef ANNOTATE
#define PM_EXCLUDE(a, len) brownout_exclude((a), (len))
#else
#define PM_EXCLUDE(a, len) ((void)(a), (void)(len))
#endif

#define PM_LINE 64
/* For a member that begins a cache line. */
#define PM_ALIGNED _Alignas(PM_LINE)
#define PM_MAGIC 0x4f4e574f5242504dULL

/* Keeps the compiler from moving stores; the processor keeps their order anyway. */
#define pm_compiler_barrier() __asm__ volatile("" ::: "memory")

/* ---- write-backs and fences ---- */

__attribute__((target("clwb"))) static inline void pm_clwb_line(const void *line)
{
    pm_compiler_barrier();
    _mm_clwb((void *)line);
    pm_compiler_barrier();
}

__attribute__((target("clflushopt"))) static inline void pm_clflushopt_line(const void *line)
{
    pm_compiler_barrier();
    _mm_clflushopt((void *)line);
    pm_compiler_barrier();
}

static inline void pm_clflush_line(const void *line)
{
    pm_compiler_barrier();
    _mm_clflush(line);
    pm_compiler_barrier();
}

/* The best that the processor has. All three need at most an sfence afterwards. */
static inline void pm_flush_line(const void *line)
{
    static void (*best)(const void *);
    if (!best) {
        unsigned a, b = 0, c, d;
        __cpuid_count(7, 0, a, b, c, d);
        best = b >> 24 & 1 ? pm_clwb_line : b >> 23 & 1 ? pm_clflushopt_line : pm_clflush_line;
    }
    best(line);
}

static inline void pm_flush(const void *address, size_t length)
{
    uintptr_t end = (uintptr_t)address + length;
    for (uintptr_t line = (uintptr_t)address & ~(uintptr_t)(PM_LINE - 1); line < end; line += PM_LINE)
        pm_flush_line((const void *)line);
}

/* clflush is ordered with stores and with itself, and needs no fence. */
static inline void pm_clflush(const void *address, size_t length)
{
    uintptr_t end = (uintptr_t)address + length;
    for (uintptr_t line = (uintptr_t)address & ~(uintptr_t)(PM_LINE - 1); line < end; line += PM_LINE)
        pm_clflush_line((const void *)line);
}

static inline void pm_fence(void)
{
    __asm__ volatile("sfence" ::: "memory");
}

static inline void pm_persist(const void *address, size_t length)
{
    pm_flush(address, length);
    pm_fence();
}

/* Past the cache: needs a fence, no write-back. */
static inline void pm_nt_store(uint64_t *to, uint64_t value)
{
    pm_compiler_barrier();
    _mm_stream_si64((long long *)to, (long long)value);
    pm_compiler_barrier();
}

/* ---- output ---- */

__attribute__((format(printf, 2, 3))) static inline void pm_print_to(int fd, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0 && syscall(SYS_write, fd, text, (size_t)length) != length)
        _exit(3);
}
#define pm_print(...) pm_print_to(1, __VA_ARGS__)

/* An operation is complete and durable: one line. */
#define pm_ack(number) pm_print("done %d\n", (number))

/* The pool cannot be in this state. */
#define pm_fail(...)                                                                                                   \
    do {                                                                                                               \
        pm_print_to(2, "inconsistent: " __VA_ARGS__);                                                                  \
        pm_print_to(2, "\n");                                                                                          \
        _exit(1);                                                                                                      \
    } while (0)

/* ---- command line and pool ---- */

static struct {
    bool check;         /* `check` or `verify`, not `run` */
    bool created;       /* the file did not exist, or was empty */
    int operations;     /* how many to perform */
    int acknowledged;   /* how many must be there, as far as is known */
} pm_job;

static inline void *pm_map(int argc, char **argv, size_t size, int operations)
{
    bool verify = argc == 5 && strcmp(argv[1], "verify") == 0;
    pm_job.check = verify || (argc == 3 && strcmp(argv[1], "check") == 0);
    pm_job.acknowledged = verify ? atoi(argv[3]) : 0;
    if (!pm_job.check && (argc < 3 || argc > 4 || strcmp(argv[1], "run") != 0)) {
        pm_print_to(2, "usage: %s run POOL [OPERATIONS] | check POOL | verify POOL DONE TEXT\n", argv[0]);
        _exit(2);
    }
    pm_job.operations = argc == 4 ? atoi(argv[3]) : operations;
    if (pm_job.operations > operations)
        pm_job.operations = operations;
    int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        goto failed;
    pm_job.created = status.st_size == 0;
    if (status.st_size < (off_t)size && ftruncate(fd, (off_t)size) != 0)
        goto failed;
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        goto failed;
    close(fd);
    return base;
failed:
    pm_print_to(2, "%s: %m\n", argv[2]);
    _exit(2);
}

/* Unmapping is where `brownout check` looks at what is still pending; exit() itself has locked instructions. */
#define PM_MAIN(OPERATIONS)                                                                                            \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        struct pool *pool = pm_map(argc, argv, sizeof *pool, (OPERATIONS));                                            \
        open_pool(pool);                                                                                               \
        if (pm_job.check)                                                                                              \
            check(pool);                                                                                               \
        for (int i = 0; !pm_job.check && i < pm_job.operations; i++)                                                   \
            operation(pool, i);                                                                                        \
        munmap(pool, sizeof *pool);                                                                                    \
        return 0;                                                                                                      \
    }

/* Creation for pools whose empty state is all zero. */
static inline void pm_create(uint64_t *magic)
{
    if (*magic == PM_MAGIC)
        return;
    *magic = PM_MAGIC;
    pm_persist(magic, sizeof *magic);
}

#endif

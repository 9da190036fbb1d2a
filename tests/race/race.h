/* What the programs of this folder share: a pool file, write-backs and fences, threads, and the command line.
 *
 *     PROG POOL             opens the pool (makes it, or recovers) and runs the workload: some threads, some operations
 *     PROG POOL recover     opens the pool, verifies it, prints the content; exit status 1 if it is inconsistent
 *     PROG POOL continue    opens the pool, performs a few more operations, verifies and prints
 *
 * A program defines `struct pool`, `open_pool` (make or recover), `work` (starts threads and waits for them), `more`,
 * `check`, and ends with `RACE_MAIN`. Everything it does follows from the pool and from the order in which its threads
 * run: no time, no randomness, no addresses in its output. A file that has just been made is all zero.
 *
 * The workload may be run again on the pool that it has left; then there may be little left to do.
 *
 * Output goes by a plain system call, because stdio's locks are locked instructions, which complete write-backs.
 * `tests/src/race.rs` says what the headers of the sources mean.
 *
 * A wrong build with -DSHOW shows its bug without any tool. It runs on the most forgetful machine there is: the file holds
 * what was written back, and nothing else. Where a program says `pm_window()`, for the Nth time with SHOW_AT=N in
 * the environment, the thread waits until the others have done what they can, and the power fails (exit status 99).
 */
#ifndef RACE_H
#define RACE_H

#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
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

#define PM_LINE 64
/* For a member that begins a cache line. */
#define PM_ALIGNED _Alignas(PM_LINE)
#define PM_MAGIC 0x3143415252574f42ULL

/* Keeps the compiler from moving accesses; the processor keeps the order of stores anyway. */
#define pm_barrier() __asm__ volatile("" ::: "memory")

/* Accesses that other threads may see half-way through, by one plain instruction each. */
#define pm_load(address) __atomic_load_n((address), __ATOMIC_ACQUIRE)
#define pm_store(address, value) __atomic_store_n((address), (value), __ATOMIC_RELEASE)
/* Locked: true if `expected` was there. What was there instead is not told. */
#define pm_swap_if(address, expected, value) \
    __extension__({ \
        __typeof__(*(address)) pm_expected = (expected); \
        __atomic_compare_exchange_n((address), &pm_expected, (value), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    })

/* ---- write-backs and fences ---- */

__attribute__((target("clwb"))) static inline void pm_clwb_line(const void *line)
{
    _mm_clwb((void *)line);
}

__attribute__((target("clflushopt"))) static inline void pm_clflushopt_line(const void *line)
{
    _mm_clflushopt((void *)line);
}

static inline void pm_clflush_line(const void *line)
{
    _mm_clflush(line);
}

/* The best that the processor has, chosen before there are threads. All three need at most an sfence afterwards. */
static void (*pm_flush_line)(const void *) = pm_clflush_line;

#ifdef SHOW
static struct {
    int fd;
    uintptr_t base;
    int window_count;
    int show_at;
} pm_machine;

static inline void pm_show_line(const void *line)
{
    off_t offset = (off_t)((uintptr_t)line - pm_machine.base);
    if (pwrite(pm_machine.fd, line, PM_LINE, offset) != PM_LINE)
        _exit(3);
}
#endif

static inline void pm_choose_flush(void)
{
#ifdef SHOW
    pm_flush_line = pm_show_line;
    return;
#endif
    unsigned a, b = 0, c, d;
    __cpuid_count(7, 0, a, b, c, d);
    pm_flush_line = b >> 24 & 1 ? pm_clwb_line : b >> 23 & 1 ? pm_clflushopt_line : pm_clflush_line;
}

static inline void pm_flush(const void *address, size_t length)
{
    uintptr_t end = (uintptr_t)address + length;
    pm_barrier();
    for (uintptr_t line = (uintptr_t)address & ~(uintptr_t)(PM_LINE - 1); line < end; line += PM_LINE)
        pm_flush_line((const void *)line);
    pm_barrier();
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

/* Most of what these programs persist is one member. */
#define pm_persist_it(member) pm_persist(&(member), sizeof(member))

/* Here the power fails in builds that show the bug. */
static inline void pm_window(void)
{
#ifdef SHOW
    if (__atomic_add_fetch(&pm_machine.window_count, 1, __ATOMIC_SEQ_CST) == pm_machine.show_at) {
        usleep(30000);
        _exit(99);
    }
#endif
}

/* The same, and the cache has written this line back by itself. */
static inline void pm_window_evicting(const void *address)
{
#ifdef SHOW
    pm_flush(address, 1);
#endif
    (void)address;
    pm_window();
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

/* The pool cannot be in this state. */
#define pm_fail(...) \
    do { \
        pm_print_to(2, "inconsistent: " __VA_ARGS__); \
        pm_print_to(2, "\n"); \
        _exit(1); \
    } while (0)

/* ---- threads ---- */

struct pool;

/* What a thread is told: the pool, and which of the threads it is. */
struct pm_worker {
    struct pool *pool;
    int index;
    void (*body)(struct pool *, int);
    pthread_t thread;
};

static void *pm_thread(void *argument)
{
    struct pm_worker *worker = argument;
    worker->body(worker->pool, worker->index);
    return NULL;
}

static inline void pm_start(struct pm_worker *worker, struct pool *pool, int index, void (*body)(struct pool *, int))
{
    *worker = (struct pm_worker){.pool = pool, .index = index, .body = body};
    if (pthread_create(&worker->thread, NULL, pm_thread, worker) != 0)
        _exit(2);
}

static inline void pm_join(struct pm_worker *worker)
{
    if (pthread_join(worker->thread, NULL) != 0)
        _exit(2);
}

/* Runs `body(pool, 0)` to `body(pool, count - 1)`, each in a thread of its own, and waits for all. */
__attribute__((unused)) static void pm_threads(struct pool *pool, int count, void (*body)(struct pool *, int))
{
    struct pm_worker workers[8];
    for (int i = 0; i < count; i++)
        pm_start(&workers[i], pool, i, body);
    for (int i = 0; i < count; i++)
        pm_join(&workers[i]);
}

/* ---- command line and pool ---- */

static inline void *pm_map(const char *path, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        goto failed;
    if (status.st_size < (off_t)size && ftruncate(fd, (off_t)size) != 0)
        goto failed;
#ifdef SHOW
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED)
        goto failed;
    const char *show_at = getenv("SHOW_AT");
    pm_machine.fd = fd;
    pm_machine.base = (uintptr_t)base;
    pm_machine.show_at = show_at ? atoi(show_at) : 0;
#else
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        goto failed;
    close(fd);
#endif
    pm_choose_flush();
    return base;
failed:
    pm_print_to(2, "%s: %m\n", path);
    _exit(2);
}

/* For pools whose empty state is all zero: true if this one has only now been made. */
__attribute__((unused)) static bool pm_create(uint64_t *magic)
{
    if (*magic == PM_MAGIC)
        return false;
    *magic = PM_MAGIC;
    pm_persist(magic, sizeof *magic);
    return true;
}

/* Unmapping is where `brownout check` looks at what is still pending; exit() itself has locked instructions. */
#define RACE_MAIN \
    int main(int argc, char **argv) \
    { \
        bool recover = argc == 3 && strcmp(argv[2], "recover") == 0; \
        bool go_on = argc == 3 && strcmp(argv[2], "continue") == 0; \
        if (argc != 2 && !recover && !go_on) { \
            pm_print_to(2, "usage: %s POOL [recover | continue]\n", argv[0]); \
            return 2; \
        } \
        struct pool *pool = pm_map(argv[1], sizeof *pool); \
        open_pool(pool); \
        if (argc == 2) \
            work(pool); \
        if (go_on) \
            more(pool); \
        if (argc == 3) \
            check(pool); \
        munmap(pool, sizeof *pool); \
        return 0; \
    }

#endif

/* What the programs of this folder share: a pool file, write-backs and fences, an undo log, commands on stdin.
 *
 *     PROG POOL              opens the pool (makes it, or recovers), then reads commands, one a line
 *     PROG POOL FILE         takes them from a file, which must not be empty
 *     PROG POOL -c COMMANDS  takes them from an argument
 *
 * A program defines `struct pool`, `open_pool`, `command`, and ends with `PM_MAIN`. It is the same on every run. Only clflush is used,
 * which every processor has.
 *
 * A build with -DCRASH is for tests without the tool. It runs on the most forgetful machine there is: the file holds what was
 * written back, and nothing else, whenever the program ends. With CRASH_AT=N in its environment, the power fails right
 * after the Nth line was written back (exit status 99).
 */
#ifndef PM_H
#define PM_H

#define _GNU_SOURCE
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

#define PM_LINE 64
/* For a member that begins a cache line. */
#define PM_ALIGNED _Alignas(PM_LINE)
#define PM_MAGIC 0x5a5a55464f4e5742ULL

/* Keeps the compiler from moving stores; the processor keeps their order anyway. */
#define pm_barrier() __asm__ volatile("" ::: "memory")

/* ---- output: a plain system call, because stdio's locks are locked instructions ---- */

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
#define pm_fail(...)                                                                                                   \
    do {                                                                                                               \
        pm_print_to(2, "inconsistent: " __VA_ARGS__);                                                                  \
        pm_print_to(2, "\n");                                                                                          \
        _exit(1);                                                                                                      \
    } while (0)

/* ---- write-backs and fences ---- */

#ifdef CRASH
static struct {
    int fd;
    uintptr_t base;
    long written_back;
    long crash_at;
} pm_machine;
#endif

static inline void pm_flush_line(uintptr_t line)
{
    pm_barrier();
#ifdef CRASH
    off_t offset = (off_t)(line - pm_machine.base);
    if (pwrite(pm_machine.fd, (const void *)line, PM_LINE, offset) != PM_LINE)
        _exit(3);
    if (++pm_machine.written_back == pm_machine.crash_at)
        _exit(99);
#else
    _mm_clflush((const void *)line);
#endif
    pm_barrier();
}

static inline void pm_flush(const void *address, size_t length)
{
    uintptr_t end = (uintptr_t)address + length;
    for (uintptr_t line = (uintptr_t)address & ~(uintptr_t)(PM_LINE - 1); line < end; line += PM_LINE)
        pm_flush_line(line);
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

/* ---- an undo log of whole lines ---- */

#define PM_UNDO_LINES 16

struct pm_undo {
    PM_ALIGNED uint64_t count; /* how many entries count; 0: nothing is under way */
    struct {
        PM_ALIGNED uint64_t offset; /* from the log itself */
        PM_ALIGNED unsigned char old[PM_LINE];
    } entries[PM_UNDO_LINES];
};

/* Before the first store to something. */
__attribute__((unused)) static void pm_undo_add(struct pm_undo *log, void *address, size_t length)
{
    uintptr_t end = (uintptr_t)address + length;
    for (uintptr_t line = (uintptr_t)address & ~(uintptr_t)(PM_LINE - 1); line < end; line += PM_LINE) {
        uint64_t offset = line - (uintptr_t)log;
        bool known = false;
        for (uint64_t i = 0; i < log->count; i++)
            known |= log->entries[i].offset == offset;
        if (known)
            continue;
        if (log->count == PM_UNDO_LINES)
            abort();
        log->entries[log->count].offset = offset;
        memcpy(log->entries[log->count].old, (const void *)line, PM_LINE);
        pm_persist(&log->entries[log->count], sizeof log->entries[0]);
        log->count++;
        pm_persist(&log->count, sizeof log->count);
    }
}

static inline void pm_undo_clear(struct pm_undo *log)
{
    pm_fence();
    log->count = 0;
    pm_persist(&log->count, sizeof log->count);
}

/* After the last store: all of it counts. */
__attribute__((unused)) static void pm_undo_commit(struct pm_undo *log)
{
    for (uint64_t i = 0; i < log->count; i++)
        pm_flush_line((uintptr_t)log + log->entries[i].offset);
    pm_undo_clear(log);
}

/* On opening: none of it counts. May be cut short and done again. */
__attribute__((unused)) static void pm_undo_recover(struct pm_undo *log)
{
    if (log->count == 0)
        return;
    for (uint64_t i = log->count; i-- > 0;) {
        uintptr_t line = (uintptr_t)log + log->entries[i].offset;
        memcpy((void *)line, log->entries[i].old, PM_LINE);
        pm_flush_line(line);
    }
    pm_undo_clear(log);
}

/* ---- pool ---- */

static inline void *pm_map(const char *path, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        goto failed;
    if (status.st_size < (off_t)size && ftruncate(fd, (off_t)size) != 0)
        goto failed;
#ifdef CRASH
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED)
        goto failed;
    const char *crash_at = getenv("CRASH_AT");
    pm_machine.fd = fd;
    pm_machine.base = (uintptr_t)base;
    pm_machine.crash_at = crash_at ? atol(crash_at) : 0;
#else
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        goto failed;
    close(fd);
#endif
    return base;
failed:
    pm_print_to(2, "%s: %m\n", path);
    _exit(2);
}

/* For pools whose empty state is all zero: the magic comes last, and nothing else comes before it. */
static inline bool pm_is_new(uint64_t *magic)
{
    return *magic != PM_MAGIC;
}

static inline void pm_created(uint64_t *magic)
{
    *magic = PM_MAGIC;
    pm_persist(magic, sizeof *magic);
}

/* ---- commands ---- */

/* Where commands come from: a text, if there is one, else a descriptor. */
static struct {
    const char *text;
    int fd;
} pm_source;

static inline ssize_t pm_read(char *into, size_t length)
{
    if (!pm_source.text)
        return read(pm_source.fd, into, length);
    size_t left = strlen(pm_source.text);
    if (left < length)
        length = left;
    memcpy(into, pm_source.text, length);
    pm_source.text += length;
    return (ssize_t)length;
}

/* After the pool was opened. A file is judged by its size before anybody reads it. */
__attribute__((unused)) static void pm_open_source(int argc, char **argv)
{
    struct stat found;
    if (argc == 4) {
        pm_source.text = argv[3];
    } else if (argc == 3) {
        if (stat(argv[2], &found) != 0 || found.st_size == 0) {
            pm_print_to(2, "%s: no commands\n", argv[2]);
            _exit(2);
        }
        pm_source.fd = open(argv[2], O_RDONLY | O_CLOEXEC);
    }
}

/* The next line without its end; NULL when there is none. What is too long is cut. */
__attribute__((unused)) static char *pm_line(void)
{
    static char input[4096], line[128];
    static ssize_t have, at;
    size_t length = 0;
    for (;;) {
        if (at == have) {
            have = pm_read(input, sizeof input);
            at = 0;
            if (have <= 0) {
                have = 0;
                if (length == 0)
                    return NULL;
                break;
            }
        }
        char next = input[at++];
        if (next == '\n')
            break;
        if (length < sizeof line - 1)
            line[length++] = next;
    }
    if (length > 0 && line[length - 1] == '\r')
        length--;
    line[length] = 0;
    return line;
}

/* The number after a command's letter (decimal, or with 0x); false if there is none. `rest` moves on behind it. */
__attribute__((unused)) static bool pm_number(char **rest, uint64_t *number)
{
    char *end;
    *number = strtoull(*rest, &end, 0);
    bool there = end != *rest;
    *rest = end;
    return there;
}

/* Unmapping is where `brownout check` looks at what is still pending; exit() itself has locked instructions. */
#define PM_MAIN                                                                                                        \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        if (argc < 2 || argc > 4 || (argc == 4 && strcmp(argv[2], "-c") != 0)) {                                       \
            pm_print_to(2, "usage: %s POOL [FILE | -c COMMANDS]\n", argv[0]);                                          \
            return 2;                                                                                                  \
        }                                                                                                              \
        struct pool *pool = pm_map(argv[1], sizeof *pool);                                                             \
        open_pool(pool);                                                                                               \
        pm_open_source(argc, argv);                                                                                    \
        for (char *line; (line = pm_line()) && strcmp(line, "q") != 0;)                                                \
            command(pool, line[0], line[0] ? line + 1 : line);                                                         \
        munmap(pool, sizeof *pool);                                                                                    \
        return 0;                                                                                                      \
    }

#endif

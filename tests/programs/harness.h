// Shared by every program in this folder: a check that names itself when it fails.
//
// The programs print only what is the same on every run, so that a native run is the oracle for a
// run under the tool. A failed check prints to stderr and exits 1 at once, without running atexit
// handlers: after a failure nothing about the process is to be trusted.
#ifndef HARNESS_H
#define HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
#define HARNESS_UNUSED [[maybe_unused]]
#else
#define HARNESS_UNUSED __attribute__((unused))
#endif

// Formats into a local buffer and writes it with one system call, so it is usable in handlers.
#define FAIL(...)                                                                                  \
    do {                                                                                           \
        char fail_text_[512];                                                                      \
        int fail_len_ = snprintf(fail_text_, sizeof fail_text_, __VA_ARGS__);                      \
        if (fail_len_ > (int)sizeof fail_text_ - 1)                                                \
            fail_len_ = sizeof fail_text_ - 1;                                                     \
        fail_text_[fail_len_] = '\n';                                                              \
        if (write(2, fail_text_, fail_len_ + 1) < 0)                                               \
            _exit(3);                                                                              \
        _exit(1);                                                                                  \
    } while (0)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            FAIL("%s:%d: check failed: %s (errno %d)", __FILE__, __LINE__, #cond, errno);          \
    } while (0)

#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_)                                                                              \
            FAIL("%s:%d: %s is %lld (%#llx), expected %s = %lld (%#llx), errno %d", __FILE__,      \
                 __LINE__, #a, a_, (unsigned long long)a_, #b, b_, (unsigned long long)b_, errno); \
    } while (0)

HARNESS_UNUSED static inline double now_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

HARNESS_UNUSED static inline void sleep_ms(long ms)
{
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&ts, &ts) != 0 && errno == EINTR)
        ;
}

// xorshift64*: the same numbers on every machine, unlike rand().
HARNESS_UNUSED static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1DULL;
}

HARNESS_UNUSED static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t len)
{
    const unsigned char *p = (const unsigned char *)data;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001B3ULL;
    return h;
}

#endif

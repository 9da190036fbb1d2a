// Creating and mapping a pool file, for the pm_* programs. PM_POOL_AT=ADDRESS in the environment insists on an address.
#ifndef PM_POOL_H
#define PM_POOL_H

#include "harness.h"
#include "cpu.h"
#include <cpuid.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct pool {
    unsigned char *base;
    size_t size;
    int fd;
};

static inline struct pool pool_create(int argc, char **argv, size_t size)
{
    if (argc < 2)
        FAIL("usage: %s POOL [ARGS]", argv[0]);
    struct pool p = {.size = size};
    p.fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(p.fd >= 0);
    CHECK(ftruncate(p.fd, (off_t)size) == 0);
    const char *at = getenv("PM_POOL_AT");
    p.base = (unsigned char *)mmap(at ? (void *)strtoul(at, NULL, 0) : NULL, size, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | (at ? MAP_FIXED_NOREPLACE : 0), p.fd, 0);
    CHECK(p.base != (unsigned char *)MAP_FAILED);
    return p;
}

// The file's bytes through the descriptor must be what the mapping shows.
HARNESS_UNUSED static inline void pool_check_file(struct pool p)
{
    unsigned char *copy = (unsigned char *)malloc(p.size);
    CHECK(pread(p.fd, copy, p.size, 0) == (ssize_t)p.size);
    CHECK(memcmp(copy, p.base, p.size) == 0);
    free(copy);
}

// Whether CPUID leaf 7 has this bit in ebx, and it is not hidden. Asked once: CPUID leaves a virtual machine.
HARNESS_UNUSED static inline int pm_has(int bit, const char *name)
{
    static unsigned asked, there;
    if (!(asked >> bit & 1)) {
        unsigned a, b = 0, c, d;
        __get_cpuid_count(7, 0, &a, &b, &c, &d);
        if ((b >> bit & 1) && !cpu_hidden(name))
            there |= 1u << bit;
        asked |= 1u << bit;
    }
    return there >> bit & 1;
}

// As compilers see it these are opaque, so exactly one instruction each.
#define PM_STORE64(addr, value) __asm__ volatile("movq %1,%0" : "=m"(*(uint64_t *)(addr)) : "r"((uint64_t)(value)))
// A write-back that the processor lacks is replaced by the next weaker promise: clwb, clflushopt, clflush.
#define PM_CLWB(addr)                                                                              \
    do {                                                                                           \
        if (pm_has(24, "clwb"))                                                                    \
            __asm__ volatile(".byte 0x66,0x0f,0xae,0x30" ::"a"(addr) : "memory");                  \
        else                                                                                       \
            PM_CLFLUSHOPT(addr);                                                                   \
    } while (0)
#define PM_CLFLUSHOPT(addr)                                                                        \
    do {                                                                                           \
        if (pm_has(23, "clflushopt"))                                                              \
            __asm__ volatile(".byte 0x66,0x0f,0xae,0x38" ::"a"(addr) : "memory");                  \
        else                                                                                       \
            PM_CLFLUSH(addr);                                                                      \
    } while (0)
#define PM_CLFLUSH(addr) __asm__ volatile("clflush (%0)" ::"r"(addr) : "memory")
#define PM_SFENCE() __asm__ volatile("sfence" ::: "memory")
#define PM_MFENCE() __asm__ volatile("mfence" ::: "memory")

#endif

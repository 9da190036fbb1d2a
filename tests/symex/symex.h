/* What the programs of this folder share: a pool file and write-backs. Each reads commands from its standard input in a way of its own, and has a bug that
 * only some commands reach. With -DBUG it is there, without it is not. Only clflush is used, which every processor has.
 */
#ifndef SYMEX_H
#define SYMEX_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNED _Alignas(64)

struct pool {
    ALIGNED uint64_t puts;
    ALIGNED uint64_t last;
    ALIGNED uint64_t total;
    ALIGNED uint64_t special;
};

static inline struct pool *open_pool(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        _exit(3);
    struct pool *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        _exit(3);
    return pool;
}

static inline void persist(const void *address)
{
    _mm_clflush(address);
    _mm_sfence();
}

/* Stores a key. The one that matters counts only after so many others. */
#ifndef AFTER
#define AFTER 2
#endif
static inline void put(struct pool *pool, uint64_t key)
{
    if (key == 4242 && pool->puts == AFTER) {
        pool->special = key; /* @bug */
#ifndef BUG
        persist(&pool->special);
#endif
    }
    pool->last = key;
    persist(&pool->last);
    pool->puts++;
    persist(&pool->puts);
}

/* Adds to the total. */
static inline void add(struct pool *pool, uint64_t amount)
{
    pool->total += amount;
    persist(&pool->total);
}

#endif

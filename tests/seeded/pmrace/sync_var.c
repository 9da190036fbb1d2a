/* A lock and a version in persistent memory, annotated for PMRace: on their declarations, which says nothing, and by calls.
 *
 *     sync_var POOL
 *
 * What must come of it stands in `tests/suites/check/annotated.rs`.
 */
#define _GNU_SOURCE
#include "pmrace.h"

#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

struct bucket {
    uint32_t lock pm_sync_var_hint(4, 0);
    uint64_t version pm_sync_var_hint(8, 2);
};

int main(int argc, char **argv)
{
    int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0 || ftruncate(fd, 4096) != 0) {
        perror("the pool");
        return 1;
    }
    struct bucket *bucket = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bucket == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    brownout_sync_var(&bucket->lock, sizeof bucket->lock, 0);
    pm_sync_var_hint(&bucket->version, sizeof bucket->version, 2);
    bucket->version = 2;
    _mm_clflush(bucket);
    return 0;
}

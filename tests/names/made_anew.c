/* A pool is emptied and made anew, grows, and gets a record; what is synchronised is persistent.
 *
 * Wrong: nothing is synchronised, so that the record may be counted and not be there. That is not because the pool was made in this run: it
 * had been whole for long.
 */
#include "pm.h"

static void save(int fd, volatile uint64_t *at)
{
#ifndef BUG
    need(msync((void *)at, 4096, MS_SYNC));
    need(fsync(fd));
#else
    (void)fd;
    (void)at;
#endif
}

static void init(void)
{
    int fd = need(open("pool", O_RDWR | O_CREAT, 0600));
    need(ftruncate(fd, 4096));
    need(fsync(fd));
}

static void run(void)
{
    int fd = need(open("pool", O_RDWR | O_TRUNC));
    need(ftruncate(fd, 4096));
    volatile uint64_t *pool = map("pool", 4096);
    pool[0] = 42;
    save(fd, pool);
    need(ftruncate(fd, 8192));
    pool = map("pool", 8192);
    pool[512] = 7; /* @record */
    save(fd, pool + 512);
    pool[1] = 1;
    save(fd, pool);
    puts("recorded");
}

static void check(void)
{
    int fd = need(open("pool", O_RDWR));
    struct stat status;
    need(fstat(fd, &status));
    if (status.st_size < 4096)
        return;
    volatile uint64_t *pool = map("pool", (size_t)status.st_size);
    if (pool[0] != 42 || pool[1] == 0)
        return;
    if (status.st_size < 8192 || pool[512] != 7)
        fail("a record is counted and not there");
}

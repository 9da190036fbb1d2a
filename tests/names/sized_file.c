/* A pool is made if it is not there.
 *
 * Wrong: if it is there, it is taken for one of the right size. It may be empty.
 */
#include "pm.h"

static void init(void) {}

static volatile uint64_t *open_pool(void)
{
    int is_new = access("pool", F_OK) != 0;
    int fd = need(open("pool", O_RDWR | O_CREAT, 0600));
    struct stat status;
    need(fstat(fd, &status));
#ifndef BUG
    is_new = status.st_size != 8192;
#endif
    if (is_new)
        need(ftruncate(fd, 8192)); /* @size */
    close(fd);
    return map("pool", 8192);
}

static void run(void)
{
    volatile uint64_t *pool = open_pool();
    pool[512] = 7;
    persist((void *)&pool[512]);
}

static void check(void)
{
    uint64_t value = open_pool()[512];
    if (value != 0 && value != 7)
        fail("damaged");
}

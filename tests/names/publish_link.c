/* A pool is prepared in memory under one name, and gets its real name by a second link.
 *
 * Wrong: what was stored is not written back before.
 */
#include "pm.h"

static void init(void) {}

static void run(void)
{
    int fd = need(open("pool.tmp", O_RDWR | O_CREAT | O_EXCL, 0600));
    need(ftruncate(fd, 4096));
    close(fd);
    volatile uint64_t *pool = map("pool.tmp", 4096);
    pool[0] = 0x1234; /* @data */
#ifndef BUG
    persist((void *)pool);
#endif
    need(link("pool.tmp", "pool"));
    sync_folder(".");
    need(unlink("pool.tmp"));
    sync_folder(".");
}

static void check(void)
{
    if (access("pool", F_OK) != 0)
        return;
    if (map("pool", 4096)[0] != 0x1234)
        fail("the pool has its name and not its content");
}

/* A pool is replaced by a new one.
 *
 * Wrong: the old one is removed first, so that there may be none.
 */
#include "pm.h"

static void init(void) { make("pool", "version 1", 100); }

static void run(void)
{
#ifdef BUG
    need(unlink("pool")); /* @removal */
    int fd = need(open("pool", O_WRONLY | O_CREAT | O_EXCL, 0600));
#else
    int fd = need(open("pool.new", O_WRONLY | O_CREAT | O_EXCL, 0600));
#endif
    char text[100] = "version 2";
    if (write(fd, text, sizeof text) != sizeof text)
        need(-1);
    need(fsync(fd));
#ifndef BUG
    need(rename("pool.new", "pool"));
#endif
    sync_folder(".");
}

static void check(void)
{
    char text[100];
    int fd = open("pool", O_RDONLY);
    if (fd < 0)
        fail("there is no pool");
    if (read(fd, text, sizeof text) != sizeof text)
        fail("the pool is short");
}

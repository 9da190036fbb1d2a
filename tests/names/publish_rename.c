/* A new version is written beside the old one and renamed over it.
 *
 * Wrong: the data is not synced before it gets the name, so that the name may survive alone.
 */
#include "pm.h"

static void init(void) { make("pool", "version 1", 100); }

static void run(void)
{
    int fd = need(open("pool.new", O_RDWR | O_CREAT | O_TRUNC, 0600));
    char text[100] = "version 2";
    if (write(fd, text, sizeof text) != sizeof text) /* @data */
        need(-1);
#ifndef BUG
    need(fsync(fd));
#endif
    close(fd);
    need(rename("pool.new", "pool"));
    sync_folder(".");
}

static void check(void)
{
    char text[100];
    int fd = need(open("pool", O_RDONLY));
    if (read(fd, text, sizeof text) != sizeof text)
        fail("the pool is short");
    if (strcmp(text, "version 1") && strcmp(text, "version 2"))
        fail("the pool is torn");
    puts(text);
}

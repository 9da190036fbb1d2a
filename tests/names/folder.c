/* A folder with a file is made, and persistent memory says that it is there.
 *
 * Wrong: nothing makes the folder and the file durable before.
 */
#include "pm.h"

static void init(void) { make("pool", "", 4096); }

static void run(void)
{
    volatile uint64_t *flag = map("pool", 4096);
    need(mkdir("db", 0700)); /* @folder */
    int fd = need(open("db/data", O_WRONLY | O_CREAT | O_EXCL, 0600));
    if (write(fd, "x", 1) != 1)
        need(-1);
#ifndef BUG
    need(fsync(fd));
#ifndef FILE_ONLY
    sync_folder("db");
    sync_folder(".");
#endif
#endif
    close(fd);
    *flag = 1;
    persist((void *)flag);
}

static void check(void)
{
    struct stat status;
    if (*map("pool", 4096) == 0)
        return;
    if (stat("db/data", &status) != 0)
        fail("the file is not there");
    if (status.st_size != 1)
        fail("the file is empty");
}

/* Named pipes: whoever opens one end waits for the other, whether threads or processes come first; a writer that comes and
 * goes without a word lets a reader go on, too.
 *
 * prints: heard 6, ends 2
 */
#include "replay.h"
#include <linux/openat2.h>
#include <sys/stat.h>

enum { READERS = 3 };

static char names[READERS][128];
static int heard, ends;

static void *reads(void *argument)
{
    int index = (int)(intptr_t)argument;
    char text[16];
    int fd = open(names[index], O_RDONLY);
    must(fd >= 0, "open to read");
    must((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0, "the flags of the pipe");
    note((uint64_t)index);
    for (;;) {
        ssize_t n = read(fd, text, 1);
        must(n >= 0, "read");
        if (n == 0)
            break;
        __atomic_add_fetch(&heard, 1, __ATOMIC_SEQ_CST);
        note((uint64_t)index << 8 | (uint64_t)text[0]);
    }
    if (index > 0)
        __atomic_add_fetch(&ends, 1, __ATOMIC_SEQ_CST);
    close(fd);
    return NULL;
}

static void *writes(void *argument)
{
    int index = (int)(intptr_t)argument;
    struct open_how how = {.flags = O_WRONLY};
    int fd = index == 0   ? open(names[index], O_WRONLY)
             : index == 1 ? creat(names[index], 0600)
                          : (int)syscall(SYS_openat2, AT_FDCWD, names[index], &how, sizeof how);
    must(fd >= 0, "open to write");
    must((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0, "the flags of the pipe");
    /* The last one says nothing. */
    if (index < READERS - 1)
        must(write(fd, "abc", 3) == 3, "write");
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t readers[READERS], writers[READERS];
    open_notes(argc, argv);
    for (int i = 0; i < READERS; i++) {
        snprintf(names[i], sizeof names[i], "%s.pipe%d", argv[1], i);
        unlink(names[i]);
        must(mkfifo(names[i], 0600) == 0, "mkfifo");
    }
    /* A child writes to the first one. */
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        writes((void *)0);
        _exit(0);
    }
    start_all(readers, READERS, reads);
    for (int i = 1; i < READERS; i++)
        must(pthread_create(&writers[i], NULL, writes, (void *)(intptr_t)i) == 0, "pthread_create");
    join_all(readers, READERS);
    join_all(writers + 1, READERS - 1);
    int status;
    must(waitpid(child, &status, 0) == child && status == 0, "waitpid");
    for (int i = 0; i < READERS; i++)
        unlink(names[i]);
    printf("heard %d, ends %d\n", heard, ends);
    return 0;
}

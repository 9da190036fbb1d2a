/* What the programs of this folder share: a pool of one page, and loud calls. Each has `init`, `run` and `check`, works in the current folder, and
 * has its bug with -DBUG. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int need(long result)
{
    if (result < 0) {
        perror("a call failed");
        exit(9);
    }
    return (int)result;
}

static inline void persist(const void *at)
{
    __builtin_ia32_clflush(at);
    __builtin_ia32_sfence();
}

static inline volatile uint64_t *map(const char *path, size_t size)
{
    int fd = need(open(path, O_RDWR));
    void *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        need(-1);
    close(fd);
    return at;
}

static inline void make(const char *path, const char *text, size_t size)
{
    int fd = need(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    char *bytes = calloc(1, size);
    strcpy(bytes, text);
    if (write(fd, bytes, size) != (ssize_t)size)
        need(-1);
    free(bytes);
    close(fd);
}

static inline void sync_folder(const char *path)
{
    int fd = need(open(path, O_RDONLY));
    need(fsync(fd));
    close(fd);
}

static inline void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static void init(void);
static void run(void);
static void check(void);

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "init"))
        init();
    else if (argc == 2 && !strcmp(argv[1], "run"))
        run();
    else if (argc == 2 && !strcmp(argv[1], "check"))
        check();
    else
        return 2;
    return 0;
}

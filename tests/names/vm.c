/* Executes a script of file operations (`run SCRIPT`), or lists a folder with all that is in it (`list`). */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int need(long result)
{
    if (result < 0) {
        perror("a call failed");
        exit(9);
    }
    return (int)result;
}

static void touch_pool(void)
{
    int fd = need(open("pool", O_RDWR));
    volatile uint64_t *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    *at = 1;
    __builtin_ia32_clflush((void *)at);
    __builtin_ia32_sfence();
}

static void run(const char *script)
{
    FILE *file = fopen(script, "r");
    char word[16], a[64], b[64];
    long n, m;
    touch_pool();
    while (fscanf(file, "%15s", word) == 1) {
        int fd = -1;
        if (!strcmp(word, "create") && fscanf(file, "%63s", a) == 1)
            fd = need(open(a, O_WRONLY | O_CREAT | O_EXCL, 0600));
        else if (!strcmp(word, "write") && fscanf(file, "%63s %ld %ld %63s", a, &n, &m, b) == 4) {
            char bytes[256];
            memset(bytes, b[0], sizeof bytes);
            fd = need(open(a, O_WRONLY));
            need(pwrite(fd, bytes, m, n));
        } else if (!strcmp(word, "resize") && fscanf(file, "%63s %ld", a, &n) == 2) {
            fd = need(open(a, O_WRONLY));
            need(ftruncate(fd, n));
        } else if (!strcmp(word, "empty") && fscanf(file, "%63s", a) == 1)
            fd = need(open(a, O_WRONLY | O_TRUNC));
        else if (!strcmp(word, "rename") && fscanf(file, "%63s %63s", a, b) == 2)
            need(rename(a, b));
        else if (!strcmp(word, "link") && fscanf(file, "%63s %63s", a, b) == 2)
            need(link(a, b));
        else if (!strcmp(word, "unlink") && fscanf(file, "%63s", a) == 1)
            need(unlink(a));
        else if (!strcmp(word, "mkdir") && fscanf(file, "%63s", a) == 1)
            need(mkdir(a, 0700));
        else if (!strcmp(word, "rmdir") && fscanf(file, "%63s", a) == 1)
            need(rmdir(a));
        else if (!strcmp(word, "fsync") && fscanf(file, "%63s", a) == 1) {
            fd = need(open(a, O_RDONLY));
            need(fsync(fd));
        } else if (!strcmp(word, "fdatasync") && fscanf(file, "%63s", a) == 1) {
            fd = need(open(a, O_RDONLY));
            need(fdatasync(fd));
        } else
            exit(8);
        if (fd >= 0)
            close(fd);
    }
}

struct seen {
    dev_t device;
    ino_t inode;
    char name[256];
} seen[64];
static int seen_count;

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void list(const char *folder)
{
    char *names[64];
    int count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            names[count++] = strdup(entry->d_name);
    closedir(dir);
    qsort(names, count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) {
        char path[256], bytes[256];
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        need(lstat(path, &status));
        if (S_ISDIR(status.st_mode)) {
            printf("%s/\n", path);
            list(path);
            continue;
        }
        int same = 0;
        while (same < seen_count && (seen[same].device != status.st_dev || seen[same].inode != status.st_ino))
            same++;
        if (same < seen_count) {
            printf("%s is %s\n", path, seen[same].name);
            continue;
        }
        seen[seen_count].device = status.st_dev;
        seen[seen_count].inode = status.st_ino;
        strcpy(seen[seen_count++].name, path);
        printf("%s %ld ", path, (long)status.st_size);
        int fd = need(open(path, O_RDONLY));
        long got = need(read(fd, bytes, sizeof bytes));
        close(fd);
        for (long at = 0, run; at < got; at += run) {
            for (run = 1; at + run < got && bytes[at + run] == bytes[at];)
                run++;
            printf("%ld%c", run, bytes[at] ? bytes[at] : '0');
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "run"))
        run(argv[2]);
    else if (argc == 2 && !strcmp(argv[1], "list"))
        list("d");
    else
        return 2;
    return 0;
}

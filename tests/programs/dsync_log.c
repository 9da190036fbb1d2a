// A log beside a pool, to which records are appended through a descriptor with O_DSYNC; each is acknowledged when it is written.
// build: dynamic
// args: POOL run
//
//   dsync_log POOL run      appends to POOL.log, then counts in the pool, and says so
//   dsync_log POOL plain    the same without O_DSYNC: a record can be lost that the pool counts
//   dsync_log POOL check    exit 1 if the pool counts more records than the log has
#include "pm_pool.h"

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    char name[4096];
    snprintf(name, sizeof name, "%.4000s.log", argv[1]);
    int pool = open(argv[1], O_RDWR | O_CREAT, 0600);
    CHECK(pool >= 0 && ftruncate(pool, 4096) == 0);
    uint64_t *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pool, 0);
    CHECK(count != MAP_FAILED);
    if (strcmp(argv[2], "check") == 0) {
        struct stat status = {0};
        stat(name, &status);
        if ((uint64_t)status.st_size < 8 * *count)
            FAIL("%lu records are counted, %ld bytes are there", *count, (long)status.st_size);
        return 0;
    }
    int log = open(name, O_WRONLY | O_CREAT | O_APPEND | (strcmp(argv[2], "plain") == 0 ? 0 : O_DSYNC), 0600);
    CHECK(log >= 0 && fsync(log) == 0);
    char folder[4096];
    snprintf(folder, sizeof folder, "%.4000s", argv[1]);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[1] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0 && fsync(fd) == 0);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK(write(log, "a record", 8) == 8);
        *count = i + 1;
        PM_CLFLUSH(count);
        PM_SFENCE();
        printf("done %lu\n", i);
        fflush(stdout);
    }
    return 0;
}

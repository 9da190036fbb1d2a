// Reads its pool in ways that are not loads of its own; the datum is never written back, so a crash can lose it.
// build: dynamic
// args: POOL run
//
//   pm_reads POOL run          stores a datum, then a flag; only the flag is made persistent
//   pm_reads POOL check HOW    if the flag is set, reads the datum by HOW; exit 1 if it is not there
#include "pm_pool.h"
#include <stddef.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

struct content {
    _Alignas(64) uint64_t flag;
    _Alignas(64) unsigned char datum[64];
};

// mov eax, 42; ret
static const unsigned char datum[] = {0xb8, 42, 0, 0, 0, 0xc3};

int main(int argc, char **argv)
{
    CHECK(argc > 2);
    int check = strcmp(argv[2], "check") == 0;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    struct content *pm = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED, fd, 0);
    CHECK(pm != MAP_FAILED);
    if (!check) {
        memcpy(pm->datum, datum, sizeof datum);
        pm->flag = 1;
        PM_CLFLUSH(&pm->flag);
        PM_SFENCE();
        return 0;
    }
    const char *how = argc > 3 ? argv[3] : "load";
    unsigned char got[sizeof datum] = {0};
    int p[2];
    CHECK(pipe(p) == 0);
    struct iovec here = {got, sizeof got}, there = {pm->datum, sizeof got};
    off_t at = offsetof(struct content, datum);
    if (!pm->flag)
        return 0;
    if (strcmp(how, "execute") == 0) {
        int (*function)(void) = (int (*)(void))(uintptr_t)pm->datum;
        return function() == 42 ? 0 : 1;
    }
    if (strcmp(how, "load") == 0)
        memcpy(got, pm->datum, sizeof got);
    else if (strcmp(how, "write") == 0)
        CHECK(write(p[1], pm->datum, sizeof got) == sizeof got && read(p[0], got, sizeof got) == sizeof got);
    else if (strcmp(how, "vmsplice") == 0)
        CHECK(vmsplice(p[1], &there, 1, 0) == sizeof got && read(p[0], got, sizeof got) == sizeof got);
    else if (strcmp(how, "mem") == 0)
        CHECK(pread(open("/proc/self/mem", O_RDONLY), got, sizeof got, (off_t)(uintptr_t)pm->datum) == sizeof got);
    else if (strcmp(how, "mem_by_pid") == 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", getpid());
        int mem = open(path, O_RDONLY);
        CHECK(mem >= 0 && lseek(mem, (off_t)(uintptr_t)pm->datum, SEEK_SET) > 0);
        CHECK(readv(mem, &here, 1) == sizeof got);
    } else if (strcmp(how, "process_vm") == 0)
        CHECK(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == sizeof got);
    else if (strcmp(how, "pread") == 0)
        CHECK(pread(fd, got, sizeof got, at) == sizeof got);
    else if (strcmp(how, "sendfile") == 0)
        CHECK(sendfile(p[1], fd, &at, sizeof got) == sizeof got && read(p[0], got, sizeof got) == sizeof got);
    else if (strcmp(how, "splice") == 0)
        CHECK(splice(fd, &at, p[1], NULL, sizeof got, 0) == sizeof got && read(p[0], got, sizeof got) == sizeof got);
    else
        FAIL("how?");
    return memcmp(got, datum, sizeof got) == 0 ? 0 : 1;
}

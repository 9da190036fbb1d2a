// Memory management calls: brk, mmap in all styles, mremap, mincore, madvise, resource limits,
// growing stacks.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

int main(void)
{
    // brk grows and shrinks contiguously, and the new memory is zero.
    char *start = sbrk(0);
    for (int i = 0; i < 200; i++) {
        char *p = sbrk(10000);
        CHECK(p == start + i * 10000L);
        for (int k = 0; k < 10000; k += 997) {
            CHECK_EQ(p[k], 0);
            p[k] = 1;
        }
    }
    CHECK(brk(start) == 0 && sbrk(0) == start);
    char *again = sbrk(10000);
    CHECK(again == start);
    CHECK_EQ(start[9970], 0); // a fresh page after shrinking

    // Hints, fixed, no-replace.
    char *p = mmap((void *)0x200000000UL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p == (char *)0x200000000UL);
    CHECK(mmap(p, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED);
    CHECK_EQ(errno, EEXIST);
    p[0] = 9;
    CHECK(mmap(p, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
    CHECK_EQ(p[0], 0);
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED && (uintptr_t)low < 1UL << 32);
    CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap((void *)123, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EINVAL);

    // mremap: in place, moving, keeping the old one, over something else.
    char *m = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 16; i++)
        m[i * 4096] = (char)i;
    char *moved = mremap(m, 16 * 4096, 64 * 4096, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    for (int i = 0; i < 64; i++)
        CHECK_EQ(moved[i * 4096], i < 16 ? i : 0);
    CHECK(mremap(moved, 64 * 4096, 4 * 4096, 0) == moved);
    unsigned char vec[4];
    CHECK(mincore(moved, 4 * 4096, vec) == 0 && (vec[0] & 1));
    CHECK(mincore(moved + 8 * 4096, 4096, vec) == -1 && errno == ENOMEM);
    char *target = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mremap(moved, 4 * 4096, 4 * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    CHECK_EQ(target[3 * 4096], 3);
    // Holes.
    CHECK(munmap(target + 4096, 4096) == 0);
    CHECK_EQ(target[2 * 4096], 2);
    CHECK(msync(target, 3 * 4096, MS_SYNC) == -1 && errno == ENOMEM);
    // madvise.
    CHECK(madvise(target + 2 * 4096, 4096, MADV_DONTNEED) == 0);
    CHECK_EQ(target[2 * 4096], 0);
    CHECK(mprotect(target + 4096, 4096, PROT_READ) == -1 && errno == ENOMEM);

    // Shared memory between processes; private copies.
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int *private = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char file[] = "/tmp/memory.XXXXXX";
    int fd = mkstemp(file);
    CHECK(fd >= 0 && unlink(file) == 0 && ftruncate(fd, 8192) == 0);
    int *mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int *view = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    pid_t pid = fork();
    if (pid == 0) {
        shared[0] = 5;
        private[0] = 6;
        mapped[1000] = 7;
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(shared[0] == 5 && private[0] == 0 && mapped[1000] == 7 && view[1000] == 7);
    int value = 0;
    CHECK(pread(fd, &value, 4, 4000) == 4 && value == 7);
    value = 8;
    CHECK(pwrite(fd, &value, 4, 4000) == 4 && mapped[1000] == 8);

    // Limits are the program's own and they bite.
    struct rlimit rl;
    CHECK(getrlimit(RLIMIT_STACK, &rl) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &rl) == 0);
    rl.rlim_cur = 20;
    CHECK(setrlimit(RLIMIT_NOFILE, &rl) == 0);
    int opened = 0, fds[32];
    while (opened < 32 && (fds[opened] = dup(0)) >= 0)
        opened++;
    CHECK_EQ(errno, EMFILE);
    CHECK_EQ(fds[opened - 1], 19);
    for (int i = 0; i < opened; i++)
        close(fds[i]);
    pid = fork();
    if (pid == 0) {
        rl = (struct rlimit){1, 1};
        setrlimit(RLIMIT_CPU, &rl);
        for (;;)
            ;
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status));
    // A mapping that grows down on touch.
    char *grow = mmap(NULL, 64 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(grow, 64 * 4096) == 0);
    char *top = mmap(grow + 63 * 4096, 4096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    CHECK(top == grow + 63 * 4096);
    top[0] = 1;
    // Big and sparse.
    char *huge = mmap(NULL, 64UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(huge != MAP_FAILED);
    for (unsigned long i = 0; i < 64; i++)
        huge[i << 30] = (char)i;
    for (unsigned long i = 0; i < 64; i++)
        CHECK_EQ(huge[i << 30], (char)i);
    CHECK(munmap(huge, 64UL << 30) == 0);
    void *blocks[300];
    for (int i = 0; i < 300; i++) {
        blocks[i] = malloc((size_t)i * 3001);
        memset(blocks[i], i, (size_t)i * 3001);
    }
    for (int i = 0; i < 300; i += 2)
        free(blocks[i]);
    for (int i = 0; i < 300; i += 2)
        blocks[i] = realloc(NULL, 17);
    for (int i = 1; i < 300; i += 2)
        CHECK_EQ(((unsigned char *)blocks[i])[i * 3001L - 1], i & 255);
    printf("memory ok\n");
    return 0;
}

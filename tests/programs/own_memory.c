// Calls that would replace or empty memory which the program has not mapped fail, as if something were in the way, and do no harm. A wild
// pointer into code that is not the program's faults. Also: a process descriptor from clone.
// build: dynamic static
#include "harness.h"
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <sys/wait.h>

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x1000
#endif

// Looks for mappings that are none of this program's: where there are none, natively, nothing is tried.
static int foreign(unsigned long *at, int max)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int n = 0;
    CHECK(maps);
    while (n < max && fgets(line, sizeof line, maps)) {
        const char *name = strrchr(line, '/');
        if (name && (strncmp(name, "/brownout", 9) == 0 || strncmp(name, "/memfd:", 7) == 0))
            CHECK(sscanf(line, "%lx", &at[n++]) == 1);
    }
    fclose(maps);
    return n;
}

static sigjmp_buf back;
static siginfo_t fault;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    fault = *info;
    siglongjmp(back, 1);
}

// A store to code that is not the program's, where there is some: as to memory that is not there.
static void wild_stores(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], perms[8];
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(maps && sigaction(SIGSEGV, &action, NULL) == 0);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start;
        const char *name = strrchr(line, '/');
        CHECK(sscanf(line, "%lx-%*x %7s", &start, perms) == 2);
        if (!name || strncmp(name, "/brownout", 9) != 0)
            continue;
        CHECK(strncmp(perms, "rwx", 3) != 0);
        if (strncmp(perms, "r-x", 3) != 0)
            continue;
        volatile char *wild = (volatile char *)start;
        if (sigsetjmp(back, 1) == 0) {
            *wild = 1;
            FAIL("a wild store goes through");
        }
        CHECK_EQ(fault.si_code, SEGV_MAPERR);
        CHECK(fault.si_addr == (void *)start);
    }
    fclose(maps);
}

int main(void)
{
    unsigned long at[64];
    wild_stores();
    int n = foreign(at, 64);
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    CHECK(id >= 0);
    for (int i = 0; i < n; i++) {
        void *there = (void *)at[i];
        char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED);
        CHECK(mmap(there, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED);
        CHECK(munmap(there, 4096) != 0);
        CHECK(mprotect(there, 4096, PROT_NONE) != 0);
        CHECK(mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, there) == MAP_FAILED);
        CHECK(mremap(there, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED);
        CHECK(madvise(there, 4096, MADV_DONTNEED) != 0);
        CHECK(madvise(there, 4096, MADV_REMOVE) != 0);
        struct iovec range = {there, 4096};
        int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
        CHECK(self < 0 || syscall(SYS_process_madvise, self, &range, 1, MADV_DONTNEED, 0) < 0);
        close(self);
        CHECK(shmat(id, there, SHM_REMAP) == (void *)-1);
        *page = 1;
        CHECK(munmap(page, 4096) == 0);
    }
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    puts("nothing of others is harmed");

    int fd = -1, status;
    long pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &fd, NULL, 0);
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(7);
    CHECK(fd > 2);
    struct pollfd ended = {fd, POLLIN, 0};
    CHECK(poll(&ended, 1, 10000) == 1);
    CHECK(waitpid((pid_t)pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
    puts("a descriptor of a process");
    return 0;
}

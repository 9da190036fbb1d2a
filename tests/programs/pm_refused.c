// Things that the tool cannot follow on persistent memory, one a run: it must say so.
// build: dynamic
// args: POOL nothing
#include "pm_pool.h"
#include <linux/aio_abi.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 1 << 16);
    const char *how = argc > 2 ? argv[2] : "nothing";
    unsigned char byte = 0;
    pool.base[0] = 1;
    if (strncmp(how, "child_", 6) == 0) {
        pid_t parent = getpid(), child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(0); // it was refused before that
            if (strcmp(how, "child_ptrace") == 0) {
                ptrace(PTRACE_TRACEME, 0, NULL, NULL);
                raise(SIGSTOP);
            }
            pause();
            _exit(0);
        }
        char path[64];
        struct iovec here = {&byte, 1}, there = {pool.base, 1};
        snprintf(path, sizeof path, "/proc/%d/mem", child);
        int mem = open(path, O_RDONLY);
        CHECK(mem >= 0);
        if (strcmp(how, "child_mem") == 0)
            CHECK(pread(mem, &byte, 1, (off_t)(uintptr_t)pool.base) <= 1);
        if (strcmp(how, "child_vm") == 0)
            CHECK(process_vm_readv(child, &here, 1, &there, 1, 0) <= 1);
        if (strcmp(how, "child_ptrace") == 0) {
            waitpid(child, NULL, 0);
            ptrace(PTRACE_PEEKDATA, child, pool.base, NULL);
        }
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    if (strcmp(how, "remap") == 0)
        CHECK(syscall(SYS_remap_file_pages, pool.base, 4096, 0, 2, 0) <= 0);
    if (strcmp(how, "aio") == 0) {
        aio_context_t context = 0;
        CHECK(syscall(SYS_io_setup, 4, &context) == 0);
        struct iocb block = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)pool.fd,
                             .aio_buf = (uintptr_t)&byte, .aio_nbytes = 1, .aio_offset = 100};
        struct iocb *blocks = &block;
        CHECK(syscall(SYS_io_submit, context, 1, &blocks) == 1);
    }
    if (strcmp(how, "waited_for") == 0) {
        // The child waits for its parent, and for ever if that is refused.
        int ends[2];
        CHECK(pipe(ends) == 0);
        if (fork() == 0) {
            char word;
            _exit(read(ends[0], &word, 1) == 1 ? 0 : 1);
        }
        syscall(SYS_remap_file_pages, pool.base, 4096, 0, 2, 0);
        CHECK(write(ends[1], "x", 1) == 1);
        wait(NULL);
    }
    if (strcmp(how, "tid") == 0)
        CHECK(syscall(SYS_set_tid_address, pool.base + 64) > 0);
    if (strcmp(how, "clone") == 0) {
        if (syscall(SYS_clone, SIGCHLD | CLONE_CHILD_CLEARTID, NULL, NULL, pool.base + 64, 0) == 0)
            _exit(0);
        wait(NULL);
    }
    if (strcmp(how, "shmat") == 0) {
        int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
        CHECK(id >= 0 && shmctl(id, IPC_RMID, NULL) == 0);
        CHECK(shmat(id, pool.base, SHM_REMAP) != NULL);
    }
    if (strcmp(how, "hidden") == 0) {
        // A request that no table knows, whose structure holds an address in the pool.
        struct { uint64_t word[4]; } argument = {{1, (uintptr_t)pool.base, 2, 3}};
        CHECK(ioctl(pool.fd, _IOW('?', 0x77, argument), &argument) != 0);
    }
    printf("done\n");
    return 0;
}

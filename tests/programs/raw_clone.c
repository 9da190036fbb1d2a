// clone(2) called directly, without libpthread: threads on own stacks, CLONE_VM processes,
// CLONE_VFORK, child-tid words, clone3 (which may be refused with ENOSYS).
// build: dynamic static
#include "harness.h"
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { STACK = 65536 };
static volatile int shared;

static int vm_process(void *arg)
{
    shared += (int)(intptr_t)arg;
    return 17;
}

static int private_process(void *arg)
{
    shared += (int)(intptr_t)arg;
    return shared & 0x7f;
}

static volatile int tid_word;
static int thread_like(void *arg)
{
    (void)arg;
    // No TLS of its own: only raw system calls and plain memory here.
    __atomic_add_fetch(&shared, 3, __ATOMIC_SEQ_CST);
    __asm__ volatile("syscall" ::"a"(SYS_exit), "D"(0) : "rcx", "r11", "memory");
    return 0;
}

// A system call made by hand that returns twice on two stacks, as Go's runtime does it.
static long bare_thread(void *stack_top, volatile int *word)
{
    long ret;
    register long r10 __asm__("r10") = (long)word;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n"
                     "test %%rax,%%rax\n jnz 1f\n"
                     // The child: its own stack, adds and exits.
                     "lock addl $11,%[shared]\n"
                     "push $5\n pop %%rdi\n mov %[exit],%%eax\n xor %%edi,%%edi\n syscall\n ud2\n"
                     "1:\n"
                     : "=a"(ret), [shared] "+m"(shared)
                     : "0"(SYS_clone),
                       "D"((long)(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                                  CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)),
                       "S"(stack_top), "d"(word), "r"(r10), "r"(r8), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    return ret;
}

static void wait_cleared(volatile int *word)
{
    int v;
    while ((v = *word) != 0)
        syscall(SYS_futex, word, FUTEX_WAIT, v, NULL);
}

int main(void)
{
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    int status;
    for (int i = 0; i < 20; i++) {
        int before = shared;
        int pid = clone(vm_process, stack + STACK, CLONE_VM | SIGCHLD, (void *)5L);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK_EQ(WEXITSTATUS(status), 17);
        CHECK_EQ(shared, before + 5); // memory is shared
        pid = clone(vm_process, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)1L);
        CHECK_EQ(shared, before + 6); // the child is over before clone returns
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        pid = clone(private_process, stack + STACK, SIGCHLD, (void *)100L);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK_EQ(WEXITSTATUS(status), (before + 106) & 0x7f);
        CHECK_EQ(shared, before + 6); // memory was copied
    }
    for (int i = 0; i < 200; i++) {
        int before = shared;
        int tid = 0;
        tid_word = 1;
        CHECK(clone(thread_like, stack + STACK,
                    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                        CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
                    NULL, &tid, NULL, &tid_word) > 0);
        wait_cleared(&tid_word);
        CHECK(tid > 0);
        CHECK_EQ(shared, before + 3);
        tid_word = 1;
        CHECK(bare_thread(stack + STACK - 64, &tid_word) > 0);
        wait_cleared(&tid_word);
        CHECK_EQ(shared, before + 14);
    }
    // fork by raw clone, no stack given.
    for (int i = 0; i < 20; i++) {
        long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0)
            syscall(SYS_exit_group, i);
        CHECK(waitpid((pid_t)pid, &status, 0) == pid && WEXITSTATUS(status) == i);
    }
    // CLONE_VFORK with a copy of the memory: the parent waits all the same, until the child ends or executes something.
    volatile int *common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(common != MAP_FAILED);
    for (int i = 1; i <= 4; i++) {
        int lowest = dup(0);
        close(lowest);
        long pid = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
            sleep_ms(50);
            *common = i;
            if (i % 2) {
                execl("/bin/sh", "sh", "-c", "read line; exit 5", NULL);
                syscall(SYS_exit_group, 1);
            }
            syscall(SYS_exit_group, 5);
        }
        CHECK_EQ(*common, i);
        CHECK_EQ(dup(0), lowest); // no descriptor is left behind
        close(lowest);
        CHECK(waitpid((pid_t)pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    }
    struct clone_args args = {.exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        syscall(SYS_exit_group, 9);
    if (pid < 0)
        CHECK_EQ(errno, ENOSYS);
    else
        CHECK(waitpid((pid_t)pid, &status, 0) == pid && WEXITSTATUS(status) == 9);
    printf("clone ok\n");
    return 0;
}

// Signals that the kernel forces on a program which did something odd, with the code of a fault: a system call that answers with
// SIGILL (uretprobe outside of its trampoline; older kernels do not know it), software interrupts that user mode may not make.
// Also: GS set to what it is.
// build: dynamic static
#include "harness.h"
#include <asm/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>

static volatile int count;
static siginfo_t seen;
static ucontext_t state;

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    count++;
    seen = *info;
    state = *(ucontext_t *)context;
    // Over an `int n`, which is two bytes long.
    if (signal == SIGSEGV)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static long call_335(void)
{
    long result = 335;
    __asm__ volatile("syscall" : "+a"(result) : "D"(0), "S"(0), "d"(0) : "rcx", "r11", "memory");
    return result;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    for (int i = 0; i < 3; i++) {
        count = 0;
        long result = call_335();
        printf("335: %ld, signals %d, code %d, rax %lld\n", result, count, count ? seen.si_code : 0,
               count ? (long long)state.uc_mcontext.gregs[REG_RAX] : 0);
    }
    // Blocked, it is deadly; so it is when ignored.
    for (int ignored = 0; ignored < 2; ignored++) {
        fflush(stdout);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGILL);
            if (ignored)
                signal(SIGILL, SIG_IGN);
            else
                sigprocmask(SIG_BLOCK, &set, NULL);
            _exit(call_335() == -ENOSYS ? 2 : 1);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        printf("%s: %d %d\n", ignored ? "ignored" : "blocked", WIFSIGNALED(status), WTERMSIG(status));
    }

#define INTERRUPT(n)                                                                               \
    do {                                                                                           \
        count = 0;                                                                                 \
        __asm__ volatile("int %0" ::"i"(n) : "memory");                                            \
        printf("int %d: signals %d, code %d, address %p, error %lld, trap %lld\n", n, count,      \
               seen.si_code, seen.si_addr, (long long)state.uc_mcontext.gregs[REG_ERR],            \
               (long long)state.uc_mcontext.gregs[REG_TRAPNO]);                                    \
    } while (0)
    INTERRUPT(88);
    INTERRUPT(0);
    INTERRUPT(0x81);
    INTERRUPT(0xff);

    unsigned long base = 1;
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &base) == 0);
    CHECK_EQ(base, 0);
    CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, base) == 0);
    puts("GS as it was");
    return 0;
}

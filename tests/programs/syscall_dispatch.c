// Syscall User Dispatch: a program that asks for it gets it, or is told that the kernel does not know it; as long as it is not on,
// system calls are made.
// build: dynamic static
#include "harness.h"
#include <signal.h>
#include <sys/prctl.h>
#include <ucontext.h>

enum { SET_DISPATCH = 59, ON = 1, OFF = 0 };

static volatile char selector;
static volatile int dispatched;

static void on_call(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    selector = 0;
    dispatched++;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4242;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    errno = 0;
    int result = prctl(SET_DISPATCH, ON, 0, 0, &selector);
    if (result == 0) {
        selector = 1;
        CHECK_EQ(syscall(SYS_getpid), 4242);
        CHECK_EQ(dispatched, 1);
        CHECK(prctl(SET_DISPATCH, OFF, 0, 0, 0) == 0);
    } else {
        CHECK_EQ(errno, EINVAL);
        selector = 1;
    }
    CHECK_EQ(syscall(SYS_getpid), getpid());
    puts("calls are made");
    return 0;
}

// setjmp/longjmp by the hundred thousand, from deep stacks and out of asynchronous handlers.
// build: dynamic static nopie
#include "harness.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static jmp_buf plain;
static sigjmp_buf timed;
static volatile int jumps;

__attribute__((noinline)) static int deep(int n)
{
    if (n == 0)
        longjmp(plain, 5);
    return deep(n - 1) + n;
}

static void on_alarm(int sig)
{
    (void)sig;
    siglongjmp(timed, 1);
}

int main(void)
{
    volatile long sum = 0;
    for (volatile int i = 0; i < 100000; i++) {
        int r = setjmp(plain);
        if (r == 0)
            deep(i % 60);
        sum += r;
    }
    CHECK_EQ(sum, 500000);
    // longjmp out of a timer's handler while the loop below is anywhere, system calls included.
    struct sigaction sa = {.sa_handler = on_alarm};
    CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
    struct itimerval timer = {{0, 0}, {0, 300}};
    volatile uint64_t work = 0;
    char text[32];
    for (;;) {
        if (sigsetjmp(timed, 1) != 0 && ++jumps >= 1500)
            break;
        CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        for (;;) {
            work += strlen("some text");
            if (jumps % 3 == 0)
                getppid();
            if (jumps % 3 == 1)
                work += (uint64_t)snprintf(text, sizeof text, "%d", jumps);
        }
    }
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    CHECK(sigismember(&mask, SIGALRM) == 0);
    printf("jumps ok\n");
    return 0;
}

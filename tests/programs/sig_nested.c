// Signals inside handlers: masks, nesting order, SA_NODEFER recursion, SA_RESETHAND.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <signal.h>

static char order[256];
static int order_len;
static void note(char c)
{
    CHECK(order_len < 255);
    order[order_len++] = c;
}

static void inner(int sig)
{
    (void)sig;
    note('i');
}

static void outer(int sig)
{
    (void)sig;
    note('[');
    raise(SIGUSR2); // not masked: runs now
    note('|');
    raise(SIGUSR1); // masked by its own delivery: runs after return
    raise(SIGHUP);  // masked by sa_mask: runs after return
    sigset_t pending;
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGUSR1) == 1);
    CHECK(sigismember(&pending, SIGHUP) == 1);
    CHECK(sigismember(&pending, SIGUSR2) == 0);
    struct sigaction once = {.sa_handler = inner};
    sigaction(SIGUSR1, &once, NULL);
    note(']');
}

static int depth;
static void recursive(int sig)
{
    volatile char frame[512];
    memset((void *)frame, depth, sizeof frame);
    int mine = depth;
    if (++depth < 64)
        raise(sig);
    for (unsigned i = 0; i < sizeof frame; i++)
        CHECK(frame[i] == mine);
}

static volatile int reset_runs;
static void resethand(int sig)
{
    struct sigaction sa;
    reset_runs++;
    sigaction(sig, NULL, &sa);
    CHECK(sa.sa_handler == SIG_DFL);
}

int main(void)
{
    struct sigaction sa = {.sa_handler = outer};
    sigaddset(&sa.sa_mask, SIGHUP);
    CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
    struct sigaction si = {.sa_handler = inner};
    CHECK(sigaction(SIGUSR2, &si, NULL) == 0);
    CHECK(sigaction(SIGHUP, &si, NULL) == 0);
    raise(SIGUSR1);
    printf("%s\n", order);

    struct sigaction sr = {.sa_handler = recursive, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGUSR1, &sr, NULL) == 0);
    raise(SIGUSR1);
    printf("depth %d\n", depth);

    struct sigaction so = {.sa_handler = resethand, .sa_flags = SA_RESETHAND};
    CHECK(sigaction(SIGURG, &so, NULL) == 0);
    raise(SIGURG);
    raise(SIGURG); // default action: ignored
    CHECK_EQ(reset_runs, 1);

    // Several different signals made pending together: delivered on unblocking, all of them.
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    order_len = 0;
    memset(order, 0, sizeof order);
    CHECK(sigaction(SIGUSR1, &si, NULL) == 0);
    raise(SIGUSR1);
    raise(SIGUSR2);
    raise(SIGHUP);
    raise(SIGUSR1); // merges with the first
    CHECK_EQ(order_len, 0);
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("%s\n", order);
    return 0;
}

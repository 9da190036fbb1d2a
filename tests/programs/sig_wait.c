// Synchronous ways to take signals: sigsuspend, sigwait*, signalfd, pselect/ppoll/epoll_pwait masks.
// build: dynamic static
#include "harness.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

static volatile int handled;
static volatile int mask_seen;
static void on_signal(int sig)
{
    sigset_t now;
    (void)sig;
    sigprocmask(SIG_SETMASK, NULL, &now);
    // Inside the handler the temporary mask of the waiting call is in force, not the old one.
    mask_seen = sigismember(&now, SIGUSR2);
    handled++;
}

static void check_blocked(int sig)
{
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    CHECK(sigismember(&now, sig) == 1);
}

int main(void)
{
    struct sigaction sa = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
    sigset_t block, wait_mask;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGUSR2);
    sigaddset(&block, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0);
    sigemptyset(&wait_mask);

    for (int i = 1; i <= 100; i++) {
        raise(SIGUSR1);
        CHECK_EQ(handled, i - 1);
        CHECK(sigsuspend(&wait_mask) == -1 && errno == EINTR);
        CHECK_EQ(handled, i);
        CHECK_EQ(mask_seen, 0);
        check_blocked(SIGUSR1);
        check_blocked(SIGUSR2);
    }

    handled = 0;
    struct pollfd none;
    struct timespec forever = {50, 0};
    raise(SIGUSR1);
    CHECK(ppoll(&none, 0, &forever, &wait_mask) == -1 && errno == EINTR);
    raise(SIGUSR1);
    CHECK(pselect(0, NULL, NULL, NULL, &forever, &wait_mask) == -1 && errno == EINTR);
    raise(SIGUSR1);
    int ep = epoll_create1(0);
    struct epoll_event ev;
    CHECK(epoll_pwait(ep, &ev, 1, 50000, &wait_mask) == -1 && errno == EINTR);
    CHECK_EQ(handled, 3);
    check_blocked(SIGUSR1);

    siginfo_t info;
    sigset_t take;
    sigemptyset(&take);
    sigaddset(&take, SIGRTMIN);
    sigaddset(&take, SIGUSR2);
    for (int i = 0; i < 100; i++) {
        CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
        CHECK(sigwaitinfo(&take, &info) == SIGRTMIN);
        CHECK_EQ(info.si_value.sival_int, i);
        CHECK_EQ(info.si_pid, getpid());
    }
    struct timespec brief = {0, 20000000};
    CHECK(sigtimedwait(&take, &info, &brief) == -1 && errno == EAGAIN);
    kill(getpid(), SIGUSR2);
    int sig;
    CHECK(sigwait(&take, &sig) == 0);
    CHECK_EQ(sig, SIGUSR2);

    int fd = signalfd(-1, &take, SFD_CLOEXEC);
    CHECK(fd >= 0);
    for (int i = 0; i < 100; i++)
        CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i * 2}) == 0);
    for (int i = 0; i < 100; i++) {
        struct signalfd_siginfo si;
        CHECK(read(fd, &si, sizeof si) == sizeof si);
        CHECK_EQ(si.ssi_signo, SIGRTMIN);
        CHECK_EQ(si.ssi_int, i * 2);
    }
    struct pollfd pfd = {fd, POLLIN, 0};
    CHECK_EQ(poll(&pfd, 1, 0), 0);
    raise(SIGUSR2);
    CHECK_EQ(poll(&pfd, 1, 0), 1);

    // A child's death wakes sigtimedwait for SIGCHLD.
    sigset_t chld;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    CHECK(sigprocmask(SIG_BLOCK, &chld, NULL) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(9);
    CHECK(sigwaitinfo(&chld, &info) == SIGCHLD);
    CHECK_EQ(info.si_pid, child);
    CHECK_EQ(info.si_status, 9);
    CHECK_EQ(info.si_code, CLD_EXITED);
    printf("synchronous signals ok\n");
    return 0;
}

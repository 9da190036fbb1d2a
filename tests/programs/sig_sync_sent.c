// SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGTRAP that are sent, not caused, behave as any other signal: blocked ones wait, are seen by those
// who wait for them, go to a thread that does not block them, and are not inherited.
// build: dynamic static
// libs: -lpthread
#include "harness.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>

static const int ALL[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
enum { COUNT = sizeof ALL / sizeof *ALL };

static volatile sig_atomic_t seen[65], order[64], total;
static volatile int code_seen;
static pthread_t volatile seen_by;

static void handler(int sig, siginfo_t *info, void *uc)
{
    (void)uc;
    seen[sig]++;
    order[total++ % 64] = sig;
    code_seen = info->si_code;
    seen_by = pthread_self();
}

static void mask(int how, const int *signals, int n)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < n; i++)
        sigaddset(&set, signals[i]);
    CHECK(pthread_sigmask(how, &set, NULL) == 0);
}

static int waits(int sig)
{
    sigset_t set;
    CHECK(sigpending(&set) == 0);
    return sigismember(&set, sig);
}

static void reset(void)
{
    memset((void *)seen, 0, sizeof seen);
    total = 0;
}

static volatile int ready, stop;

static void *other(void *sig)
{
    mask(SIG_UNBLOCK, (int *)sig, 1);
    ready = 1;
    while (!stop)
        poll(NULL, 0, 1);
    return NULL;
}

static void *sender(void *sig)
{
    poll(NULL, 0, 20);
    CHECK(kill(getpid(), *(int *)sig) == 0);
    poll(NULL, 0, 20);
    CHECK(write(*((int *)sig + 1), "x", 1) == 1);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigset_t everything, none;
    sigfillset(&everything);
    sigemptyset(&none);
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < COUNT; i++)
        CHECK(sigaction(ALL[i], &action, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);

    // Block all, raise several, unblock: each comes once.
    for (int round = 0; round < 100; round++) {
        reset();
        CHECK(sigprocmask(SIG_SETMASK, &everything, NULL) == 0);
        for (int i = 0; i < COUNT; i++)
            CHECK(raise(ALL[i]) == 0 && raise(ALL[i]) == 0);
        CHECK(raise(SIGUSR1) == 0 && raise(SIGUSR2) == 0);
        CHECK_EQ(total, 0);
        CHECK(waits(SIGSEGV) && waits(SIGUSR1));
        CHECK(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
        CHECK_EQ(total, COUNT + 2);
        for (int i = 0; i < COUNT; i++)
            CHECK_EQ(seen[ALL[i]], 1);
        CHECK(seen[SIGUSR1] == 1 && seen[SIGUSR2] == 1);
    }
    puts("unblocked together");

    for (int i = 0; i < COUNT; i++) {
        int sig = ALL[i];
        struct timespec second = {1, 0};
        siginfo_t info;
        sigset_t one, but_one;
        sigemptyset(&one);
        sigaddset(&one, sig);
        reset();
        mask(SIG_BLOCK, &sig, 1);
        CHECK(sigprocmask(SIG_SETMASK, NULL, &but_one) == 0);
        sigdelset(&but_one, sig);

        union sigval value = {.sival_int = 42};
        CHECK(sigqueue(getpid(), sig, value) == 0);
        CHECK(waits(sig));
        CHECK_EQ(sigtimedwait(&one, &info, &second), sig);
        CHECK(info.si_signo == sig && info.si_code == SI_QUEUE && info.si_value.sival_int == 42 && info.si_pid == getpid());
        CHECK(!waits(sig) && total == 0);

        CHECK(raise(sig) == 0);
        CHECK(sigsuspend(&but_one) == -1 && errno == EINTR);
        CHECK_EQ(seen[sig], 1);
        CHECK(kill(getpid(), sig) == 0);
        CHECK(ppoll(NULL, 0, NULL, &but_one) == -1 && errno == EINTR);
        CHECK_EQ(seen[sig], 2);
        CHECK(kill(getpid(), sig) == 0);
        CHECK(pselect(0, NULL, NULL, NULL, NULL, &but_one) == -1 && errno == EINTR);
        CHECK_EQ(seen[sig], 3);
        int events = epoll_create1(0);
        struct epoll_event event;
        CHECK(kill(getpid(), sig) == 0);
        CHECK(epoll_pwait(events, &event, 1, -1, &but_one) == -1 && errno == EINTR);
        CHECK_EQ(seen[sig], 4);
        close(events);

        // What is ready comes first; then the signal still waits.
        int ends[2];
        CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
        struct pollfd in = {ends[0], POLLIN, 0};
        CHECK(kill(getpid(), sig) == 0);
        CHECK(ppoll(&in, 1, NULL, &but_one) == 1);
        CHECK(seen[sig] == 4 && waits(sig));

        // Not inherited.
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(!waits(sig));
            mask(SIG_UNBLOCK, &sig, 1);
            CHECK_EQ(seen[sig], 4);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        mask(SIG_UNBLOCK, &sig, 1);
        CHECK_EQ(seen[sig], 5);
        char byte;
        CHECK(read(ends[0], &byte, 1) == 1);

        // A blocked one does not end a system call.
        mask(SIG_BLOCK, &sig, 1);
        pthread_t thread;
        int argument[2] = {sig, ends[1]};
        CHECK(pthread_create(&thread, NULL, sender, argument) == 0);
        CHECK(read(ends[0], &byte, 1) == 1);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(seen[sig] == 5 && waits(sig));
        CHECK_EQ(sigtimedwait(&one, &info, &second), sig);
        close(ends[0]);
        close(ends[1]);

        // Another thread takes it.
        ready = stop = 0;
        CHECK(pthread_create(&thread, NULL, other, &sig) == 0);
        while (!ready)
            poll(NULL, 0, 1);
        CHECK(kill(getpid(), sig) == 0);
        for (int n = 0; n < 5000 && seen[sig] < 6; n++)
            poll(NULL, 0, 1);
        CHECK_EQ(seen[sig], 6);
        CHECK(pthread_equal(seen_by, thread));
        stop = 1;
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(!waits(sig));

        // One that waits for the process goes to the thread that unblocks it.
        CHECK(kill(getpid(), sig) == 0);
        CHECK(waits(sig));
        ready = 0;
        stop = 1;
        CHECK(pthread_create(&thread, NULL, other, &sig) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_EQ(seen[sig], 7);
        CHECK(pthread_equal(seen_by, thread));
        CHECK(!waits(sig));
        mask(SIG_UNBLOCK, &sig, 1);
        CHECK_EQ(seen[sig], 7);

        // With the code of a fault.
        siginfo_t fake;
        memset(&fake, 0, sizeof fake);
        fake.si_signo = sig;
        fake.si_code = 1;
        fake.si_addr = (void *)0x1234;
        CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), sig, &fake) == 0);
        CHECK(seen[sig] == 8 && code_seen == 1);
        mask(SIG_BLOCK, &sig, 1);
        CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), sig, &fake) == 0);
        CHECK(seen[sig] == 8 && waits(sig));
        mask(SIG_UNBLOCK, &sig, 1);
        CHECK(seen[sig] == 9 && code_seen == 1);
    }
    puts("as any other signal");
    return 0;
}

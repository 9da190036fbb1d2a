// POSIX timers in every notification style, timerfd, interval timers, overruns.
// build: dynamic static
#include "harness.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/timerfd.h>

static _Atomic int thread_runs, signal_runs, value_seen, wrong_thread;
static pid_t expected_tid;
static void on_thread(union sigval v)
{
    value_seen = v.sival_int;
    thread_runs++;
}
static void on_signal(int sig, siginfo_t *info, void *uc)
{
    (void)sig;
    (void)uc;
    if (info->si_code != SI_TIMER || info->si_value.sival_int != 77)
        wrong_thread = 2;
    if (expected_tid && syscall(SYS_gettid) != expected_tid)
        wrong_thread = 1;
    signal_runs++;
}
static void on_plain(int sig)
{
    (void)sig;
    signal_runs++;
}

static void *own_timer(void *arg)
{
    expected_tid = (pid_t)syscall(SYS_gettid);
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1};
    ev.sigev_value.sival_int = 77;
    ev._sigev_un._tid = expected_tid;
    timer_t t;
    CHECK(timer_create(CLOCK_MONOTONIC, &ev, &t) == 0);
    struct itimerspec it = {{0, 1000000}, {0, 1000000}};
    signal_runs = 0;
    CHECK(timer_settime(t, 0, &it, NULL) == 0);
    volatile uint64_t n = 0;
    while (signal_runs < 50)
        n++;
    CHECK(timer_delete(t) == 0);
    CHECK_EQ(wrong_thread, 0);
    return arg;
}

int main(void)
{
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_thread};
    ev.sigev_value.sival_int = 55;
    timer_t t;
    CHECK(timer_create(CLOCK_MONOTONIC, &ev, &t) == 0);
    struct itimerspec it = {{0, 2000000}, {0, 2000000}};
    CHECK(timer_settime(t, 0, &it, NULL) == 0);
    while (thread_runs < 20)
        sleep_ms(1);
    CHECK_EQ(value_seen, 55);
    CHECK(timer_delete(t) == 0);

    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGRTMIN + 1, &sa, NULL) == 0);
    struct sigevent es = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
    es.sigev_value.sival_int = 77;
    CHECK(timer_create(CLOCK_REALTIME, &es, &t) == 0);
    CHECK(timer_settime(t, 0, &it, NULL) == 0);
    while (signal_runs < 20)
        sleep_ms(1);
    // Overruns are counted while the signal is blocked.
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &block, &old);
    sleep_ms(30);
    siginfo_t info;
    CHECK(sigwaitinfo(&block, &info) == SIGRTMIN + 1);
    sleep_ms(30);
    CHECK(sigwaitinfo(&block, &info) == SIGRTMIN + 1);
    CHECK(timer_getoverrun(t) > 0);
    sigprocmask(SIG_SETMASK, &old, NULL);
    CHECK(timer_delete(t) == 0);

    pthread_t th;
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&th, NULL, own_timer, NULL) == 0);
        pthread_join(th, NULL);
    }

    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec ft = {{0, 1000000}, {0, 1000000}};
    CHECK(timerfd_settime(fd, 0, &ft, NULL) == 0);
    uint64_t ticks = 0;
    while (ticks < 20) {
        uint64_t n;
        CHECK(read(fd, &n, 8) == 8);
        ticks += n;
    }
    signal_runs = 0;
    signal(SIGVTALRM, on_plain);
    signal(SIGPROF, on_plain);
    struct itimerval iv = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_VIRTUAL, &iv, NULL);
    setitimer(ITIMER_PROF, &iv, NULL);
    volatile uint64_t spin = 0;
    while (signal_runs < 10)
        spin++;
    iv = (struct itimerval){0};
    setitimer(ITIMER_VIRTUAL, &iv, NULL);
    setitimer(ITIMER_PROF, &iv, NULL);
    signal_runs = 0;
    signal(SIGALRM, on_plain);
    double start = now_seconds();
    ualarm(100000, 0);
    while (signal_runs == 0)
        pause();
    CHECK(now_seconds() - start >= 0.09);
    printf("timers ok\n");
    return 0;
}

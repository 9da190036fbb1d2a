// Queued real-time signals: none lost, values in order, lower numbers first; from self, a thread
// and another process.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { COUNT = 500 };
static int seen[4096], seen_sig[4096], seen_code[4096];
static volatile int seen_count;

static void on_rt(int sig, siginfo_t *info, void *uc)
{
    (void)uc;
    seen_sig[seen_count] = sig;
    seen_code[seen_count] = info->si_code;
    seen[seen_count++] = info->si_value.sival_int;
}

static void *queue_from_thread(void *arg)
{
    (void)arg;
    for (int i = 0; i < COUNT; i++)
        while (sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = i}) != 0)
            sched_yield();
    return NULL;
}

int main(void)
{
    struct sigaction sa = {.sa_sigaction = on_rt, .sa_flags = SA_SIGINFO};
    sigfillset(&sa.sa_mask);
    for (int i = 0; i < 8; i++)
        CHECK(sigaction(SIGRTMIN + i, &sa, NULL) == 0);
    sigset_t rt, old;
    sigemptyset(&rt);
    for (int i = 0; i < 8; i++)
        sigaddset(&rt, SIGRTMIN + i);

    // Blocked, queued in falling number order, unblocked: rising number, and FIFO inside a number.
    CHECK(sigprocmask(SIG_BLOCK, &rt, &old) == 0);
    for (int sig = 3; sig >= 0; sig--)
        for (int i = 0; i < 50; i++)
            CHECK(sigqueue(getpid(), SIGRTMIN + sig, (union sigval){.sival_int = sig * 100 + i}) == 0);
    CHECK_EQ(seen_count, 0);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    CHECK_EQ(seen_count, 200);
    // A full sa_mask lets each handler finish before the next starts, hence rising order.
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(seen[i], i / 50 * 100 + i % 50);
        CHECK_EQ(seen_sig[i], SIGRTMIN + i / 50);
        CHECK_EQ(seen_code[i], SI_QUEUE);
    }

    // Unblocked, from a thread of this process; the main thread is the only one that may take it.
    seen_count = 0;
    pthread_t t;
    CHECK(pthread_sigmask(SIG_BLOCK, &rt, NULL) == 0);
    CHECK(pthread_create(&t, NULL, queue_from_thread, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
    pthread_join(t, NULL);
    while (seen_count < COUNT)
        sched_yield();
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(seen[i], i);

    // From another process.
    seen_count = 0;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        for (int i = 0; i < COUNT; i++)
            while (sigqueue(parent, SIGRTMIN + 5, (union sigval){.sival_int = i * 3}) != 0)
                sched_yield();
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) != child)
        ;
    while (seen_count < COUNT)
        sched_yield();
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(seen[i], i * 3);
    printf("all queued signals in order\n");
    return 0;
}

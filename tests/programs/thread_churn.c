// Threads created and ended in their thousands: joined, detached, pthread_exit, exit paths.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <sys/wait.h>

static _Atomic int ended;
static void *quick(void *arg)
{
    ended++;
    return arg;
}
static void *quits(void *arg)
{
    ended++;
    pthread_exit(arg);
}
static void *creates(void *arg)
{
    pthread_t t;
    CHECK(pthread_create(&t, NULL, quick, arg) == 0);
    pthread_join(t, NULL);
    ended++;
    return NULL;
}
static void *exits_process(void *arg)
{
    exit((int)(intptr_t)arg);
}
static void *spins(void *arg)
{
    for (;;)
        __asm__ volatile("pause");
    return arg;
}
static void *late(void *arg)
{
    sleep_ms(50);
    printf("after main\n");
    fflush(stdout);
    return arg;
}
static void at_exit(void)
{
    printf("atexit\n");
}

static int run_child(int how)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t t;
        switch (how) {
        case 0: // exit from a thread while main waits
            atexit(at_exit);
            pthread_create(&t, NULL, exits_process, (void *)21L);
            pthread_join(t, NULL);
            _exit(99);
        case 1: // main leaves by pthread_exit, the process lives on and ends with 0
            pthread_create(&t, NULL, late, NULL);
            pthread_exit(NULL);
        case 2: // exit_group while threads spin
            for (int i = 0; i < 6; i++)
                pthread_create(&t, NULL, spins, NULL);
            sleep_ms(10);
            _exit(23);
        case 3: // abort while threads spin
            for (int i = 0; i < 6; i++)
                pthread_create(&t, NULL, spins, NULL);
            abort();
        case 4: // the raw exit of the main thread only
            pthread_create(&t, NULL, exits_process, (void *)25L);
            syscall(SYS_exit, 3);
        }
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int main(void)
{
    pthread_t t;
    void *r;
    for (intptr_t i = 0; i < 1500; i++) {
        CHECK(pthread_create(&t, NULL, i % 2 ? quick : quits, (void *)i) == 0);
        CHECK(pthread_join(t, &r) == 0);
        CHECK_EQ((intptr_t)r, i);
    }
    CHECK_EQ(ended, 1500);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 500; i++)
        while (pthread_create(&t, &attr, creates, NULL) != 0)
            sleep_ms(1);
    while (ended != 2500)
        sleep_ms(1);
    for (int how = 0; how < 5; how++)
        printf("%d: %d\n", how, run_child(how));
    return 0;
}

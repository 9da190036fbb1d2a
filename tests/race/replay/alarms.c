/* A timer that sends SIGALRM again and again while three threads work under a mutex, until there were five alarms.
 *
 * prints: five alarms
 */
#include "replay.h"
#include <sys/time.h>

enum { THREADS = 3, ALARMS = 5 };

static int alarms;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sum;

static void handler(int signal)
{
    (void)signal;
    note(0xa1a << 8 | (uint64_t)__atomic_add_fetch(&alarms, 1, __ATOMIC_SEQ_CST));
}

static void *body(void *argument)
{
    uint64_t index = (uint64_t)(intptr_t)argument;
    while (__atomic_load_n(&alarms, __ATOMIC_ACQUIRE) < ALARMS) {
        pthread_mutex_lock(&mutex);
        sum++;
        if (sum % 64 == 0)
            note(index << 32 | sum);
        pthread_mutex_unlock(&mutex);
        sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval timer = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000}, off = {0};
    pthread_t threads[THREADS];
    open_notes(argc, argv);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    start_all(threads, THREADS, body);
    join_all(threads, THREADS);
    setitimer(ITIMER_REAL, &off, NULL);
    printf("five alarms\n");
    return 0;
}

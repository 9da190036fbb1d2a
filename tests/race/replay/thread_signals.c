/* Threads send each other signals; handlers count in atomic variables, and note who was interrupted.
 *
 * Signals of the same number that are pending are one, so each is awaited before the next is sent.
 *
 * prints: handled 16
 */
#include "replay.h"

enum { THREADS = 4, SIGNALS = 4 };

static pthread_t threads[THREADS];
static int handled[THREADS], finished, ready;
static __thread int me;

static void handler(int signal)
{
    note((uint64_t)signal << 32 | (uint64_t)me);
    __atomic_add_fetch(&handled[me], 1, __ATOMIC_SEQ_CST);
}

static void *body(void *argument)
{
    me = (int)(intptr_t)argument;
    int other = (me + 1) % THREADS;
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) < THREADS + 1)
        sched_yield();
    for (int i = 0; i < SIGNALS; i++) {
        must(pthread_kill(threads[other], i % 2 ? SIGUSR1 : SIGUSR2) == 0, "pthread_kill");
        while (__atomic_load_n(&handled[other], __ATOMIC_ACQUIRE) <= i)
            sched_yield();
    }
    /* Whoever may still be interrupted must be there. */
    __atomic_add_fetch(&finished, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&finished, __ATOMIC_ACQUIRE) < THREADS)
        sched_yield();
    return NULL;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = handler};
    int sum = 0;
    open_notes(argc, argv);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    start_all(threads, THREADS, body);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    join_all(threads, THREADS);
    for (int i = 0; i < THREADS; i++)
        sum += handled[i];
    printf("handled %d\n", sum);
    return 0;
}

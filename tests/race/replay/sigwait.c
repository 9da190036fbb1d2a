/* A thread that takes signals by sigwait, as servers do, while two others send them to the process, and one more
 * takes the answers by sigtimedwait.
 *
 * prints: usr1 4, usr2 4, answers 8
 */
#include "replay.h"

enum { SENDERS = 2, SIGNALS = 4 };

static int counts[SENDERS], answers;
static sem_t taken[SENDERS], answered;

static void *take(void *argument)
{
    sigset_t set;
    (void)argument;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    for (int i = 0; i < SENDERS * SIGNALS; i++) {
        int signal;
        must(sigwait(&set, &signal) == 0, "sigwait");
        note((uint64_t)signal);
        counts[signal == SIGUSR2]++;
        kill(getpid(), SIGRTMIN + 1);
        sem_post(&taken[signal == SIGUSR2]);
    }
    return NULL;
}

/* Signals in real time are queued, none is lost. */
static void *take_answers(void *argument)
{
    sigset_t set;
    struct timespec second = {.tv_sec = 1};
    (void)argument;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    while (answers < SENDERS * SIGNALS) {
        if (sigtimedwait(&set, NULL, &second) > 0)
            note(0x100 + (uint64_t)++answers);
    }
    sem_post(&answered);
    return NULL;
}

static void *send_signals(void *argument)
{
    int index = (int)(intptr_t)argument;
    for (int i = 0; i < SIGNALS; i++) {
        kill(getpid(), index ? SIGUSR2 : SIGUSR1);
        while (sem_wait(&taken[index]) != 0)
            ;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t takers[2], senders[SENDERS];
    sigset_t set;
    open_notes(argc, argv);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGRTMIN + 1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < SENDERS; i++)
        sem_init(&taken[i], 0, 0);
    sem_init(&answered, 0, 0);
    must(pthread_create(&takers[0], NULL, take, NULL) == 0, "pthread_create");
    must(pthread_create(&takers[1], NULL, take_answers, NULL) == 0, "pthread_create");
    start_all(senders, SENDERS, send_signals);
    join_all(senders, SENDERS);
    while (sem_wait(&answered) != 0)
        ;
    join_all(takers, 2);
    printf("usr1 %d, usr2 %d, answers %d\n", counts[0], counts[1], answers);
    return 0;
}

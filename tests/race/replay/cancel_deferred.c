/* Threads that are cancelled where they wait: in a read, a condition variable, a semaphore, a sleep, or where they
 * ask for it. Their cleanup handlers run; another thread is still there when the process ends.
 *
 * prints: cancelled 5, cleaned 5
 */
#include "replay.h"

enum { THREADS = 5 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t none;
static int ends[2], cleaned, started;

static void clean(void *argument)
{
    note((uint64_t)(intptr_t)argument << 8 | (uint64_t)__atomic_add_fetch(&cleaned, 1, __ATOMIC_SEQ_CST));
}

static void unlock(void *argument)
{
    pthread_mutex_unlock(argument);
}

static void *forever(void *argument)
{
    for (;;)
        pause();
    return argument;
}

static void *body(void *argument)
{
    char byte;
    pthread_t endless;
    struct timespec long_time = {.tv_sec = 1000};
    pthread_cleanup_push(clean, argument);
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    switch ((int)(intptr_t)argument) {
    case 0:
        while (read(ends[0], &byte, 1) != 1)
            ;
        break;
    case 1:
        pthread_mutex_lock(&mutex);
        pthread_cleanup_push(unlock, &mutex);
        for (;;)
            pthread_cond_wait(&never, &mutex);
        pthread_cleanup_pop(1);
        break;
    case 2:
        for (;;)
            sem_wait(&none);
        break;
    case 3:
        for (;;)
            nanosleep(&long_time, NULL);
        break;
    default:
        must(pthread_create(&endless, NULL, forever, NULL) == 0, "pthread_create");
        pthread_detach(endless);
        for (;;)
            pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int cancelled = 0;
    open_notes(argc, argv);
    must(pipe(ends) == 0, "pipe");
    sem_init(&none, 0, 0);
    start_all(threads, THREADS, body);
    while (__atomic_load_n(&started, __ATOMIC_ACQUIRE) < THREADS)
        sched_yield();
    for (int i = 0; i < THREADS; i++)
        must(pthread_cancel(threads[i]) == 0, "pthread_cancel");
    for (int i = 0; i < THREADS; i++) {
        void *result;
        must(pthread_join(threads[i], &result) == 0, "pthread_join");
        cancelled += result == PTHREAD_CANCELED;
    }
    /* Free again, or this would not end. */
    pthread_mutex_lock(&mutex);
    printf("cancelled %d, cleaned %d\n", cancelled, cleaned);
    fflush(stdout);
    _exit(0);
}

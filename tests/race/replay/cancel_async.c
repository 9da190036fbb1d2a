/* Threads that are cancelled wherever they are, in a loop without any call; and one that forbids it for a while.
 *
 * prints: cancelled 4, protected 100
 */
#include "replay.h"

enum { LOOPS = 3, THREADS = LOOPS + 1 };

static uint64_t counters[THREADS];
static int started, allowed, protected_count;

static void *body(void *argument)
{
    int index = (int)(intptr_t)argument, old;
    if (index < LOOPS) {
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
        __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
        for (;;)
            __atomic_store_n(&counters[index], counters[index] + 1, __ATOMIC_RELAXED);
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    /* It was cancelled meanwhile, and goes on. */
    while (!__atomic_load_n(&allowed, __ATOMIC_ACQUIRE))
        sched_yield();
    for (int i = 0; i < 100; i++)
        protected_count++;
    note((uint64_t)protected_count);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    pthread_testcancel();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int cancelled = 0;
    open_notes(argc, argv);
    start_all(threads, THREADS, body);
    while (__atomic_load_n(&started, __ATOMIC_ACQUIRE) < THREADS)
        sched_yield();
    for (int i = 0; i < THREADS; i++) {
        note((uint64_t)i);
        must(pthread_cancel(threads[i]) == 0, "pthread_cancel");
    }
    __atomic_store_n(&allowed, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        must(pthread_join(threads[i], &result) == 0, "pthread_join");
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("cancelled %d, protected %d\n", cancelled, protected_count);
    return 0;
}

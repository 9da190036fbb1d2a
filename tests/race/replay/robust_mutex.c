/* A robust mutex whose owners end without releasing it: whoever waits gets it, is told, and repairs what it protects.
 *
 * prints: inherited 3, value 7
 */
#include "replay.h"

enum { THREADS = 7, FAITHLESS = 3 };

static pthread_mutex_t mutex;
static int value, inherited;

static void *body(void *argument)
{
    int index = (int)(intptr_t)argument, result = pthread_mutex_lock(&mutex);
    if (result == EOWNERDEAD) {
        inherited++;
        pthread_mutex_consistent(&mutex);
    }
    note((uint64_t)index << 32 | (uint64_t)(result == EOWNERDEAD) << 16 | (uint64_t)value);
    value++;
    if (index >= FAITHLESS)
        pthread_mutex_unlock(&mutex);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_mutexattr_t attributes;
    pthread_t threads[THREADS];
    open_notes(argc, argv);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex, &attributes);
    start_all(threads, THREADS, body);
    join_all(threads, THREADS);
    /* Of the last one's, if it was not faithful, this thread is told. */
    if (pthread_mutex_lock(&mutex) == EOWNERDEAD) {
        inherited++;
        pthread_mutex_consistent(&mutex);
    }
    pthread_mutex_unlock(&mutex);
    printf("inherited %d, value %d\n", inherited, value);
    return 0;
}

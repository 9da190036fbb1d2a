/* Threads that start threads that start threads; the last ones are detached, and nobody joins them.
 *
 * prints: started 21, detached 12
 */
#include "replay.h"

enum { TOP = 3, MIDDLE = 2, BOTTOM = 2, DETACHED = TOP * MIDDLE * BOTTOM };

static int started, detached;
static sem_t ended;

static void *bottom(void *argument)
{
    note((uint64_t)(intptr_t)argument << 32 | (uint64_t)__atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST));
    __atomic_add_fetch(&detached, 1, __ATOMIC_SEQ_CST);
    sem_post(&ended);
    return NULL;
}

static void *middle(void *argument)
{
    pthread_attr_t attributes;
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < BOTTOM; i++) {
        pthread_t thread;
        must(pthread_create(&thread, i ? &attributes : NULL, bottom, argument) == 0, "pthread_create");
        if (i == 0)
            pthread_detach(thread);
    }
    return NULL;
}

static void *top(void *argument)
{
    pthread_t threads[MIDDLE];
    (void)argument;
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    start_all(threads, MIDDLE, middle);
    join_all(threads, MIDDLE);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[TOP];
    open_notes(argc, argv);
    sem_init(&ended, 0, 0);
    start_all(threads, TOP, top);
    join_all(threads, TOP);
    for (int i = 0; i < DETACHED; i++) {
        while (sem_wait(&ended) != 0)
            ;
    }
    printf("started %d, detached %d\n", started, detached);
    return 0;
}

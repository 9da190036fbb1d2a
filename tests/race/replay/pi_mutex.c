/* Mutexes that inherit priority: the kernel knows their owner, and hands them over.
 *
 * prints: sum 40
 */
#include "replay.h"

enum { THREADS = 4, ROUNDS = 10 };

static pthread_mutex_t mutex;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int sum, turn;

static void *body(void *argument)
{
    int index = (int)(intptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        /* Every fifth time in turn. */
        while (i % 5 == 4 && turn % THREADS != index)
            pthread_cond_wait(&changed, &mutex);
        if (i % 5 == 4) {
            turn++;
            pthread_cond_broadcast(&changed);
        }
        note((uint64_t)index << 32 | (uint64_t)sum);
        sum++;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_mutexattr_t attributes;
    pthread_t threads[THREADS];
    open_notes(argc, argv);
    pthread_mutexattr_init(&attributes);
    must(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0, "pthread_mutexattr_setprotocol");
    must(pthread_mutex_init(&mutex, &attributes) == 0, "pthread_mutex_init");
    start_all(threads, THREADS, body);
    join_all(threads, THREADS);
    printf("sum %d\n", sum);
    return 0;
}

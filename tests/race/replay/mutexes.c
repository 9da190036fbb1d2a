/* Eight threads, three mutexes: one by lock, one by trylock, one that is recursive.
 *
 * prints: sum 240
 */
#include "replay.h"

enum { THREADS = 8, ROUNDS = 10 };

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, tried = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static uint64_t sums[3];

static void *body(void *argument)
{
    uint64_t index = (uint64_t)(intptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&plain);
        note(index << 32 | sums[0]);
        sums[0]++;
        pthread_mutex_unlock(&plain);
        while (pthread_mutex_trylock(&tried) != 0)
            sched_yield();
        sums[1]++;
        pthread_mutex_unlock(&tried);
        pthread_mutex_lock(&recursive);
        pthread_mutex_lock(&recursive);
        sums[2]++;
        pthread_mutex_unlock(&recursive);
        pthread_mutex_unlock(&recursive);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    open_notes(argc, argv);
    start_all(threads, THREADS, body);
    join_all(threads, THREADS);
    printf("sum %lu\n", sums[0] + sums[1] + sums[2]);
    return 0;
}

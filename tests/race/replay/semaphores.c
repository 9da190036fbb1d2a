/* A ring of six threads that hand a number on by semaphores, three times round, while two more count how far it has
 * come.
 *
 * prints: number 18
 */
#include "replay.h"

enum { RING = 6, WATCHERS = 2, ROUNDS = 3 };

static sem_t turns[RING];
static int number;

static void *body(void *argument)
{
    int index = (int)(intptr_t)argument;
    if (index >= RING) {
        for (int i = 0; i < 8; i++) {
            note((uint64_t)index << 32 | (uint64_t)__atomic_load_n(&number, __ATOMIC_ACQUIRE));
            sched_yield();
        }
        return NULL;
    }
    for (int i = 0; i < ROUNDS; i++) {
        while (sem_wait(&turns[index]) != 0)
            ;
        __atomic_add_fetch(&number, 1, __ATOMIC_SEQ_CST);
        sem_post(&turns[(index + 1) % RING]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[RING + WATCHERS];
    open_notes(argc, argv);
    for (int i = 0; i < RING; i++)
        sem_init(&turns[i], 0, i == 0);
    start_all(threads, RING + WATCHERS, body);
    join_all(threads, RING + WATCHERS);
    printf("number %d\n", number);
    return 0;
}

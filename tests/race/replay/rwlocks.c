/* Six readers and two writers of a pair under a read-write lock, by lock and by trylock.
 *
 * prints: pair 20 60
 */
#include "replay.h"

enum { READERS = 6, WRITERS = 2, ROUNDS = 10 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static int pair[2];

static void *body(void *argument)
{
    int index = (int)(intptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        if (index < WRITERS) {
            if (i % 2)
                pthread_rwlock_wrlock(&lock);
            else
                while (pthread_rwlock_trywrlock(&lock) != 0)
                    sched_yield();
            pair[0] += 1;
            pair[1] += 3;
        } else {
            pthread_rwlock_rdlock(&lock);
            must(pair[1] == 3 * pair[0], "the pair is torn");
            note((uint64_t)index << 32 | (uint64_t)pair[0]);
        }
        pthread_rwlock_unlock(&lock);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[READERS + WRITERS];
    open_notes(argc, argv);
    start_all(threads, READERS + WRITERS, body);
    join_all(threads, READERS + WRITERS);
    printf("pair %d %d\n", pair[0], pair[1]);
    return 0;
}

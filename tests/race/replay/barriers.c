/* Eight threads that meet at a barrier between phases; one of them is told that it is the one.
 *
 * prints: phases 6, chosen 6
 */
#include "replay.h"

enum { THREADS = 8, PHASES = 6 };

static pthread_barrier_t barrier;
static int arrived[PHASES], chosen, complete;

static void *body(void *argument)
{
    uint64_t index = (uint64_t)(intptr_t)argument;
    for (int phase = 0; phase < PHASES; phase++) {
        uint64_t place = (uint64_t)__atomic_add_fetch(&arrived[phase], 1, __ATOMIC_SEQ_CST);
        note((uint64_t)phase << 40 | index << 32 | place);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
            chosen++;
            complete += arrived[phase] == THREADS;
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    open_notes(argc, argv);
    pthread_barrier_init(&barrier, NULL, THREADS);
    start_all(threads, THREADS, body);
    join_all(threads, THREADS);
    printf("phases %d, chosen %d\n", complete, chosen);
    return 0;
}

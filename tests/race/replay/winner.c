/* Eight threads run for a word by compare-and-exchange; the first wins, and the order of the others is noted.
 *
 * prints: winner 0
 * prints: winner 1
 * prints: winner 2
 * prints: winner 3
 * prints: winner 4
 * prints: winner 5
 * prints: winner 6
 * prints: winner 7
 */
#include "replay.h"

enum { THREADS = 8 };

static int winner = -1;
static pthread_barrier_t barrier;

static void *body(void *argument)
{
    int index = (int)(intptr_t)argument, nobody = -1;
    pthread_barrier_wait(&barrier);
    __atomic_compare_exchange_n(&winner, &nobody, index, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    note((uint64_t)index);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    open_notes(argc, argv);
    pthread_barrier_init(&barrier, NULL, THREADS);
    start_all(threads, THREADS, body);
    join_all(threads, THREADS);
    printf("winner %d\n", winner);
    return 0;
}

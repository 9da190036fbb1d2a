/* Two threads each store one word and load the other's. Processors may let both loads pass the stores.
 *
 * prints: saw 0 0
 * prints: saw 0 1
 * prints: saw 1 0
 * prints: saw 1 1
 */
#include "replay.h"

static uint64_t seen[2];

static void *body(void *argument)
{
    int index = (int)(intptr_t)argument;
    __atomic_store_n(&notes[8 * index], 1, __ATOMIC_RELAXED);
    seen[index] = __atomic_load_n(&notes[8 * (1 - index)], __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    open_notes(argc, argv);
    notes[0] = notes[8] = 0;
    start_all(threads, 2, body);
    join_all(threads, 2);
    _mm_clflush(&notes[0]);
    _mm_clflush(&notes[8]);
    printf("saw %lu %lu\n", seen[0], seen[1]);
    return 0;
}

/* Four producers and four consumers of a buffer with room for two, by two condition variables.
 *
 * prints: consumed 20, sum 210
 */
#include "replay.h"

enum { PAIRS = 4, ITEMS = 5, ROOM = 2 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static uint64_t buffer[ROOM], consumed, sum, produced;
static int filled;

static void *body(void *argument)
{
    uint64_t index = (uint64_t)(intptr_t)argument;
    for (int i = 0; i < ITEMS; i++) {
        pthread_mutex_lock(&mutex);
        if (index < PAIRS) {
            while (filled == ROOM)
                pthread_cond_wait(&not_full, &mutex);
            buffer[filled++] = ++produced;
            pthread_cond_signal(&not_empty);
        } else {
            while (filled == 0)
                pthread_cond_wait(&not_empty, &mutex);
            uint64_t item = buffer[--filled];
            note(index << 32 | item);
            consumed++;
            sum += item;
            pthread_cond_broadcast(&not_full);
        }
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2 * PAIRS];
    open_notes(argc, argv);
    start_all(threads, 2 * PAIRS, body);
    join_all(threads, 2 * PAIRS);
    printf("consumed %lu, sum %lu\n", consumed, sum);
    return 0;
}

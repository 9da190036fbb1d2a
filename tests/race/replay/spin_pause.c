/* Four threads under a spin lock that pauses while it waits.
 *
 * prints: sum 40
 */
#include "replay.h"

enum { THREADS = 4, ROUNDS = 10 };

static int locked;
static uint64_t sum;

static void lock(void)
{
    int free_word;
    do {
        while (__atomic_load_n(&locked, __ATOMIC_RELAXED))
            _mm_pause();
        free_word = 0;
    } while (!__atomic_compare_exchange_n(&locked, &free_word, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
}

static void *body(void *argument)
{
    uint64_t index = (uint64_t)(intptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        lock();
        note(index << 32 | sum);
        sum++;
        __atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    open_notes(argc, argv);
    start_all(threads, THREADS, body);
    join_all(threads, THREADS);
    printf("sum %lu\n", sum);
    return 0;
}

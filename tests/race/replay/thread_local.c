/* Thread-local variables and keys with destructors, one of which sets its key again; and initialisation that happens
 * once.
 *
 * prints: once 1, destroyed 16, sum 28
 */
#include "replay.h"

enum { THREADS = 8 };

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int initialised, destroyed, sum;
static __thread int mine;

static void destroy(void *value)
{
    uint64_t number = (uint64_t)(uintptr_t)value;
    note(number << 32 | (uint64_t)__atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST));
    if (number < 100)
        pthread_setspecific(key, (void *)(uintptr_t)(number + 100));
    else
        __atomic_add_fetch(&sum, mine, __ATOMIC_SEQ_CST);
}

static void initialise(void)
{
    pthread_key_create(&key, destroy);
    initialised++;
}

static void *body(void *argument)
{
    mine = (int)(intptr_t)argument;
    pthread_once(&once, initialise);
    pthread_setspecific(key, (void *)(uintptr_t)(mine + 1));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    open_notes(argc, argv);
    start_all(threads, THREADS, body);
    join_all(threads, THREADS);
    printf("once %d, destroyed %d, sum %d\n", initialised, destroyed, sum);
    return 0;
}

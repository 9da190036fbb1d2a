/* Waits that end by the clock: nobody signals, posts or wakes; and one thread that is woken long before.
 *
 * prints: timed out 5, woken 1
 */
#include "replay.h"
#include <linux/futex.h>

enum { WAITERS = 6 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t none, one;
static int timed_out, woken, word;

static void count(bool by_clock, uint64_t who)
{
    __atomic_add_fetch(by_clock ? &timed_out : &woken, 1, __ATOMIC_SEQ_CST);
    note(who << 8 | by_clock);
}

static void *body(void *argument)
{
    int index = (int)(intptr_t)argument;
    struct timespec real = after(CLOCK_REALTIME, 2000000 + 300000 * index);
    struct timespec relative = {.tv_nsec = 1000000 + 500000 * index};
    struct timespec distant = after(CLOCK_REALTIME, 900000000);
    int result = 0;
    switch (index) {
    case 0:
        pthread_mutex_lock(&mutex);
        while (result == 0)
            result = pthread_cond_timedwait(&never, &mutex, &real);
        pthread_mutex_unlock(&mutex);
        count(result == ETIMEDOUT, 0);
        break;
    case 1:
        result = sem_timedwait(&none, &real);
        count(result != 0 && errno == ETIMEDOUT, 1);
        break;
    case 2:
        result = pthread_mutex_timedlock(&held, &real);
        count(result == ETIMEDOUT, 2);
        break;
    case 3:
        result = (int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &relative, NULL, 0);
        count(result != 0 && errno == ETIMEDOUT, 3);
        break;
    case 4:
        count(nanosleep(&relative, NULL) == 0, 4);
        break;
    default:
        while (sem_timedwait(&one, &distant) != 0 && errno == EINTR)
            ;
        count(false, 5);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[WAITERS];
    open_notes(argc, argv);
    sem_init(&none, 0, 0);
    sem_init(&one, 0, 0);
    pthread_mutex_lock(&held);
    start_all(threads, WAITERS, body);
    sem_post(&one);
    join_all(threads, WAITERS);
    printf("timed out %d, woken %d\n", timed_out, woken);
    return 0;
}

/* Threads that read every clock there is, sleep, and do as much as the time allows: with a schedule, time is counted.
 *
 * prints: slept 4, forward 1
 */
#include "replay.h"
#include <sys/time.h>

enum { THREADS = 4 };

static int slept;
static bool backward;

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec time;
    must(clock_gettime(clock, &time) == 0, "clock_gettime");
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void *body(void *argument)
{
    uint64_t index = (uint64_t)(intptr_t)argument, rounds = 0;
    struct timespec nap = {.tv_nsec = 300000 * (long)(index + 1)};
    uint64_t begun = nanoseconds(CLOCK_MONOTONIC), now = begun;
    while (now < begun + 1000000) {
        uint64_t next = nanoseconds(CLOCK_MONOTONIC);
        backward |= next < now;
        now = next;
        rounds++;
        if (rounds % 64 == 0)
            sched_yield();
    }
    note(rounds);
    must(nanosleep(&nap, NULL) == 0, "nanosleep");
    __atomic_add_fetch(&slept, nanoseconds(CLOCK_MONOTONIC) >= now + (uint64_t)nap.tv_nsec, __ATOMIC_SEQ_CST);
    struct timeval day;
    gettimeofday(&day, NULL);
    note((uint64_t)day.tv_usec);
    note(nanoseconds(CLOCK_REALTIME));
    note((uint64_t)time(NULL));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    open_notes(argc, argv);
    start_all(threads, THREADS, body);
    join_all(threads, THREADS);
    printf("slept %d, forward %d\n", slept, !backward);
    return 0;
}

/* How much two threads do depends on how long the machine has been running, which no schedule controls.
 *
 *     uptime FILE
 */
#include "../replay/replay.h"

static long rounds;
static uint64_t sum;

static void *body(void *argument)
{
    (void)argument;
    for (long i = 0; i < rounds; i++)
        __atomic_add_fetch(&sum, 1, __ATOMIC_SEQ_CST);
    note(sum);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    double seconds = 0;
    open_notes(argc, argv);
    FILE *file = fopen("/proc/uptime", "r");
    must(file && fscanf(file, "%lf", &seconds) == 1, "/proc/uptime");
    fclose(file);
    rounds = 1 + (long)(seconds * 100) % 997;
    start_all(threads, 2, body);
    join_all(threads, 2);
    return 0;
}

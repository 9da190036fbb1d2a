// Stores to the pool until something ends it, for tests that kill; or ends itself as told.
// build: dynamic
// args: POOL exit
//
// Prints `running` once it is under way. Second argument: `forever`, `segv`, `abort`, `kill`, `exit`.
#include "pm_pool.h"
#include <signal.h>

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 1 << 20);
    const char *how = argc > 2 ? argv[2] : "exit";
    volatile uint64_t *words = (volatile uint64_t *)pool.base;
    uint64_t s = 1;
    for (uint64_t i = 0; i < 200000 || !strcmp(how, "forever"); i++) {
        uint64_t at = next_random(&s) % (pool.size / 8);
        words[at] = i;
        PM_CLWB((void *)&words[at]);
        PM_SFENCE();
        if (i == 100000) {
            printf("running\n");
            fflush(stdout);
        }
        if (i >= 200000)
            sleep_ms(1); // enough to be caught in the act, without filling the disk
    }
    if (!strcmp(how, "segv"))
        *(volatile int *)16 = 1;
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    return 0;
}

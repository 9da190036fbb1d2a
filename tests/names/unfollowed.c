/* Makes a pipe, which is not part of a crash state: the exploration must say so. */
#include "pm.h"

static void init(void) { make("pool", "", 4096); }

static void run(void)
{
    volatile uint64_t *pool = map("pool", 4096);
#ifdef BUG
    need(mkfifo("pipe", 0600));
#endif
    *pool = 1;
    persist((void *)pool);
}

static void check(void) { map("pool", 4096); }

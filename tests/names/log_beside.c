/* Records go to an ordinary file, and how many there are to persistent memory.
 *
 * Wrong: a record is counted before it is synced.
 */
#include "pm.h"

static void init(void) { make("pool", "", 4096); }

static void run(void)
{
    volatile uint64_t *count = map("pool", 4096);
#ifdef DSYNC
    int log = need(open("log", O_WRONLY | O_CREAT | O_APPEND | O_DSYNC, 0600));
#else
    int log = need(open("log", O_WRONLY | O_CREAT | O_APPEND, 0600));
#endif
    for (int i = 1; i <= 3; i++) {
        char record[32];
        memset(record, 'a' + i, sizeof record);
        if (write(log, record, sizeof record) != sizeof record) /* @data */
            need(-1);
#if !defined BUG && !defined DSYNC
        need(fdatasync(log));
#endif
        *count = i;
        persist((void *)count);
    }
}

static void check(void)
{
    uint64_t count = *map("pool", 4096);
    int log = open("log", O_RDONLY);
    for (uint64_t i = 1; i <= count; i++) {
        char record[32], expected[32];
        memset(expected, 'a' + i, sizeof expected);
        if (log < 0 || read(log, record, sizeof record) != sizeof record || memcmp(record, expected, sizeof record))
            fail("a record is counted and not there");
    }
    printf("%d\n", (int)count);
}

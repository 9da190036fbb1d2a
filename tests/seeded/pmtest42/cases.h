/* The kinds of bugs that PMTest was validated with (Liu et al., ASPLOS'19, Table 5), planted in own data structures.
 *
 *     PROG run POOL [CASE]    CASE plants a bug of the table in the program's header; without, or 0: none
 *     PROG check POOL
 *
 * PMTest's counts are: ordering 4, writeback 6, writing back more than once 2, backup 19, completion 7, logging more
 * than once 4. Every kind has at least as many here.
 *
 * All bugs are harmless unless a crash falls at the wrong time, so `check` after an undisturbed run is content with
 * each.
 */
#ifndef CASES_H
#define CASES_H

#include "../pm.h"
#include <brownout.h>

static int planted;
#define BUGGY(number) (planted == (number))

#define PM_CASES_MAIN(OPERATIONS)                                                                                      \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        struct pool *pool = pm_map(argc, argv, sizeof *pool, 1000);                                                    \
        planted = argc == 4 ? atoi(argv[3]) : 0;                                                                       \
        open_pool(pool);                                                                                               \
        if (pm_job.check)                                                                                              \
            check(pool);                                                                                               \
        for (int i = 0; !pm_job.check && i < (OPERATIONS); i++) {                                                      \
            operation(pool, i);                                                                                        \
            pm_ack(i);                                                                                                 \
        }                                                                                                              \
        munmap(pool, sizeof *pool);                                                                                    \
        return 0;                                                                                                      \
    }

#endif

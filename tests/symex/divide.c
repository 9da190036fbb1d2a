/* Shares: lines of numbers, by which an amount is divided, less what is taken already. With -DBUG nobody sees whether anything is left to divide by; without, such a
 * line is left out. With "ratio" in front of the pool, pairs of binary numbers are divided by each other: there, a zero is refused, and with -DBUG the one other
 * pair whose quotient is no number is not.
 */
#include "symex.h"

#define AMOUNT 100000
#define TAKEN 42

static void shares(struct pool *pool)
{
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        char *end;
        long left = strtol(line, &end, 10) - TAKEN;
        if (end == line)
            continue;
#ifndef BUG
        if (left == 0)
            continue;
#endif
        pool->last = AMOUNT / left; /* @bug */
        persist(&pool->last);
    }
}

static void ratios(struct pool *pool)
{
    struct {
        int32_t of;
        int32_t by;
    } pair;
    while (read(0, &pair, sizeof pair) == sizeof pair) {
        if (pair.by == 0)
            continue;
#ifndef BUG
        if (pair.of == INT32_MIN && pair.by == -1)
            continue;
#endif
        pool->last = pair.of / pair.by; /* @bug */
        persist(&pool->last);
    }
}

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    if (argc > 2)
        ratios(pool);
    else
        shares(pool);
    return 0;
}

/* Keeps a number twice, which have to be the same: "pool check" is recovery, and fails if they are not. Only the letter 'k' and a digit behind it change them. With -DBUG both
 * are written back at once; without, a mark says which of them counts meanwhile.
 */
#include "symex.h"

static int check(const struct pool *pool)
{
    if (pool->puts != 0)
        return 0;
    return pool->last == pool->total ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[1]);
    char text[2] = "";
    if (argc > 2)
        return check(pool);
    if (read(0, text, 2) != 2 || text[0] != 'k' || text[1] < '0' || text[1] > '9')
        return 0;
#ifndef BUG
    pool->puts = 1;
    persist(&pool->puts);
#endif
    pool->last = text[1];
    _mm_clflush(&pool->last);
    pool->total = text[1]; /* @bug */
    _mm_clflush(&pool->total);
    _mm_sfence();
#ifndef BUG
    pool->puts = 0;
    persist(&pool->puts);
#endif
    return 0;
}

/* A transaction changes two fields of a pool. Its own little library announces what it logs.
 *
 * -DBUG: the pool is logged as a whole, and each field once more.
 * -DOUTSIDE: one field is changed outside the transaction. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "brownout.h"

struct pool {
    uint64_t first, second;
};

static uint64_t sum;

static void store(uint64_t *field, uint64_t value)
{
    *field = value;
    __builtin_ia32_clflush(field);
}

static void change(uint64_t *field, uint64_t value)
{
    brownout_tx_add(field, sizeof *field); /* @again */
    store(field, value);
}

int main(int argc, char **argv)
{
    int fd = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 10;
    struct pool *pool = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 11;
    brownout_register_variable("pool", pool, sizeof *pool);
    brownout_tx_begin();
#ifdef BUG
    brownout_tx_add(pool, sizeof *pool); /* @first */
#endif
    change(&pool->first, 1);
    change(&pool->second, 2);
    brownout_tx_end();
#ifdef OUTSIDE
    store(&pool->first, 3);
#endif
    brownout_marker("fail");
    sum = pool->first + pool->second;
    return 0;
}

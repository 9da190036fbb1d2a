// Benchmark: two threads change 256 bytes of their own in transactions of libpmemobj.
// build: dynamic
// libs: -lpmemobj
// args: POOL 1000
#include "harness.h"
#include <libpmemobj.h>
#include <pthread.h>

enum { THREADS = 2, RECORDS = 1 << 12, LEN = 256 };

struct root {
    unsigned char records[THREADS][RECORDS][LEN];
};

static PMEMobjpool *pool;
static struct root *root;
static uint64_t changes;

static void *worker(void *argument)
{
    unsigned id = (unsigned)(uintptr_t)argument;
    uint64_t s = id + 1;
    for (uint64_t i = 0; i < changes; i++) {
        unsigned char *record = root->records[id][next_random(&s) % RECORDS];
        TX_BEGIN(pool)
        {
            pmemobj_tx_add_range_direct(record, LEN);
            memset(record, (int)(i % 251 + 1), LEN);
        }
        TX_ONABORT
        {
            FAIL("a transaction was aborted: %s", pmemobj_errormsg());
        }
        TX_END
    }
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    changes = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;
    unlink(argv[1]);
    pool = pmemobj_create(argv[1], "bench", 4 * sizeof(struct root) + PMEMOBJ_MIN_POOL, 0600);
    CHECK(pool != NULL);
    root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    CHECK(root != NULL);
    pthread_t threads[THREADS];
    for (uintptr_t id = 0; id < THREADS; id++)
        CHECK(pthread_create(&threads[id], NULL, worker, (void *)id) == 0);
    for (unsigned id = 0; id < THREADS; id++)
        CHECK(pthread_join(threads[id], NULL) == 0);
    printf("%lu transactions, hash %lx\n", changes * THREADS, hash_bytes(0, root, sizeof *root));
    pmemobj_close(pool);
    return 0;
}

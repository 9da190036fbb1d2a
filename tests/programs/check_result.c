// A program that asks for the result of its own assertions, with PMTest's names: under `brownout check` it learns how
// many have failed, otherwise that none has.
// build: dynamic
// args: POOL
#include "../../include/pmtest.h"
#include "pm_pool.h"

static void tell(const char *when)
{
    PMTest_GET_RESULT;
    printf("%s: %lu failed\n", when, brownout_checkpoint());
}

int main(int argc, char **argv)
{
    struct pool p = pool_create(argc, argv, 4096);
    unsigned char *first = p.base, *second = p.base + 64;

    PM_STORE64(first, 1);
    PM_CLFLUSH(first);
    isPersist(first, 8);
    tell("at first");

    PM_STORE64(second, 2);
    isPersist(second, 8);
    tell("then");

    PM_STORE64(first, 3);
    isOrderedBefore(second, 8, first, 8);
    tell("at last");

    PM_CLFLUSH(second);
    PM_CLFLUSH(first);
    isPersist(p.base, 128);
    tell("again");
    return 0;
}

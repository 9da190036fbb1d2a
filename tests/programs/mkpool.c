// Creates an empty libpmemobj pool with a given layout name, for examples that only open one.
// build: dynamic
// libs: -lpmemobj
// args: POOL layout
#include "harness.h"
#include <libpmemobj.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        FAIL("usage: %s POOL LAYOUT", argv[0]);
    PMEMobjpool *pool = pmemobj_create(argv[1], argv[2], PMEMOBJ_MIN_POOL, 0600);
    CHECK(pool != NULL);
    pmemobj_close(pool);
    CHECK_EQ(pmemobj_check(argv[1], argv[2]), 1);
    printf("created\n");
    return 0;
}

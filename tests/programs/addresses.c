// Where its parts are: code, data, heap, stack, libraries, mappings.
// build: dynamic
// args: quiet
//
// With an argument it prints nothing: addresses differ from run to run.
#include "harness.h"
#include <sys/mman.h>

static int variable;

int main(int argc, char **argv)
{
    int local;
    void *mapped = mmap(NULL, 1 << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    if (argc == 1) {
        printf("code %p data %p heap %p %p\n", (void *)main, (void *)&variable, malloc(100), malloc(1 << 20));
        printf("stack %p arguments %p library %p mapping %p\n", (void *)&local, (void *)argv[0], (void *)printf, mapped);
    }
    return 0;
}

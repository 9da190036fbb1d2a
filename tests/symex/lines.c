/* Commands by `fgets`, `strncmp` and `sscanf`: "set NAME NUMBER" and "inc NUMBER", one a line. */
#include "symex.h"

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        char name[16];
        int number;
        if (strncmp(line, "set ", 4) == 0) {
            if (sscanf(line + 4, "%15s %d", name, &number) == 2)
                put(pool, (uint64_t)number);
        } else if (strncmp(line, "inc ", 4) == 0) {
            if (sscanf(line + 4, "%d", &number) == 1)
                add(pool, (uint64_t)number);
        }
    }
    return 0;
}

/* Commands by `sscanf`: "p KEY" and "a AMOUNT", one a line. */
#include "symex.h"

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        char command;
        unsigned number;
        if (sscanf(line, "%c %u", &command, &number) != 2)
            continue;
        if (command == 'p')
            put(pool, number);
        else if (command == 'a')
            add(pool, number);
    }
    return 0;
}

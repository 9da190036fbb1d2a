/* Commands by `sscanf`, one a line: "kKEY" and "+AMOUNT". Behind the first key, others are stored only if something was added. */
#include "symex.h"

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        char command;
        int number;
        if (sscanf(line, " %c%d", &command, &number) != 2)
            continue;
        switch (command) {
        case 'k':
            if (pool->puts == 0 || pool->total > 0)
                put(pool, (uint64_t)number);
            break;
        case '+':
            if (number > 0)
                add(pool, (uint64_t)number);
            break;
        }
    }
    return 0;
}

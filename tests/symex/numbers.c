/* Commands by `strtol`: a letter and a number, separated by anything. */
#include "symex.h"

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    char text[64] = {0};
    ssize_t length = read(0, text, sizeof text - 1);
    char *at = text, *end = text + (length > 0 ? length : 0);
    while (at < end) {
        char command = *at++;
        if (command != 'p' && command != 'a')
            continue;
        char *behind;
        long number = strtol(at, &behind, 10);
        if (behind == at)
            continue;
        at = behind;
        if (command == 'p')
            put(pool, (uint64_t)number);
        else
            add(pool, (uint64_t)number);
    }
    return 0;
}

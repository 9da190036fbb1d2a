/* Commands by `getline` and `strcmp`: "put" and "add", each with a number on the line behind it. */
#include "symex.h"

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    char *line = NULL;
    size_t size = 0;
    int wants = 0;
    ssize_t length;
    while ((length = getline(&line, &size, stdin)) > 0) {
        if (line[length - 1] == '\n')
            line[length - 1] = 0;
        if (wants == 'p')
            put(pool, (uint64_t)atoi(line));
        else if (wants == 'a')
            add(pool, (uint64_t)atoi(line));
        wants = 0;
        if (strcmp(line, "put") == 0)
            wants = 'p';
        else if (strcmp(line, "add") == 0)
            wants = 'a';
    }
    return 0;
}

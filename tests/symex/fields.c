/* Commands by `strtok` and `atoi`: "store:KEY" and "sum:AMOUNT", separated by blanks and ends of lines. */
#include "symex.h"

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    char text[128] = {0};
    ssize_t length = read(0, text, sizeof text - 1);
    if (length <= 0)
        return 1;
    char *rest;
    for (char *word = strtok_r(text, ": \n", &rest); word; word = strtok_r(NULL, ": \n", &rest)) {
        int is_store = strcmp(word, "store") == 0;
        if (!is_store && strcmp(word, "sum") != 0)
            continue;
        char *number = strtok_r(NULL, " \n", &rest);
        if (!number)
            break;
        if (is_store)
            put(pool, (uint64_t)atoi(number));
        else
            add(pool, (uint64_t)atoi(number));
    }
    return 0;
}

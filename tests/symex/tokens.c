/* Commands by a tokenizer of its own: words and numbers, commas between them, a semicolon behind each command. */
#include "symex.h"

static char text[128];
static int at, length;

static int next(void)
{
    return at < length ? (unsigned char)text[at++] : -1;
}

static int letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    ssize_t got = read(0, text, sizeof text);
    length = got > 0 ? (int)got : 0;
    int c = next();
    while (c >= 0) {
        uint64_t hash = 0, number = 0;
        int digits = 0;
        while (c >= 0 && !letter(c))
            c = next();
        for (; c >= 0 && letter(c); c = next())
            hash = hash * 31 + (uint64_t)c;
        if (c != ',')
            continue;
        for (c = next(); c >= '0' && c <= '9'; c = next(), digits++)
            number = number * 10 + (uint64_t)(c - '0');
        if (c != ';' || digits == 0)
            continue;
        switch (hash) {
        case 'p' * 31 + 't':
            put(pool, number);
            break;
        case 'a' * 31 + 'd':
            add(pool, number);
            break;
        }
    }
    return 0;
}

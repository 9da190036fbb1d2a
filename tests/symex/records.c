/* Records: a header, a length, and so many bytes. */
#include "symex.h"

struct header {
    uint32_t magic;
    uint16_t kind;
    uint16_t length;
};

static int all(void *to, size_t length)
{
    return read(0, to, length) == (ssize_t)length;
}

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    struct header header;
    while (all(&header, sizeof header)) {
        unsigned char body[16] = {0};
        if (header.magic != 0x4d504f42 || header.length > sizeof body)
            return 1;
        if (!all(body, header.length))
            return 1;
        uint64_t number = 0;
        for (int i = 0; i < header.length; i++)
            number = number << 8 | body[i];
        if (header.kind == 1)
            put(pool, number);
        else if (header.kind == 2)
            add(pool, number);
        else
            return 2;
    }
    return 0;
}

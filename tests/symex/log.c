/* A log in the pool: records of a length and so many bytes, behind each other, and no checksum. Recovery reads what it finds. With -DBUG it believes a length that
 * reaches behind the log; without, it does not. With an argument behind the pool, it adds a record instead.
 */
#include "symex.h"

#define RECORDS 64
#define END 1024

struct record {
    uint16_t kind;
    uint16_t length;
    unsigned char bytes[];
};

static void add_record(struct pool *pool, const char *text)
{
    unsigned char *at = (unsigned char *)pool + RECORDS;
    struct record *record = (struct record *)at;
    while (record->kind != 0) {
        at += sizeof *record + record->length;
        record = (struct record *)at;
    }
    record->length = strlen(text);
    memcpy(record->bytes, text, record->length);
    persist(record);
    record->kind = 7;
    persist(record);
}

/* The sum of all bytes of all records. */
static uint64_t recover(const struct pool *pool)
{
    const unsigned char *at = (const unsigned char *)pool + RECORDS;
    const unsigned char *end = (const unsigned char *)pool + END;
    uint64_t sum = 0;
    while (at + sizeof(struct record) <= end) {
        const struct record *record = (const struct record *)at;
        if (record->kind == 0)
            break;
        if (record->kind != 7)
            return sum;
#ifndef BUG
        if (record->length > end - record->bytes)
            return sum;
#endif
        for (unsigned n = 0; n < record->length; n++)
            sum += record->bytes[n]; /* @bug */
        at = record->bytes + record->length;
    }
    return sum;
}

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[1]);
    if (argc > 2)
        add_record(pool, argv[2]);
    else {
        pool->puts = recover(pool);
        persist(pool);
    }
    return 0;
}

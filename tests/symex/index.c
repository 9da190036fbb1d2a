/* A table in the pool, and records that name an entry of it by 16 bits. Nearly all that 16 bits can say are entries, but not all. With -DBUG nobody looks; without, a
 * record with another number is left out. With "signed" in front of the pool, numbers have a sign: then those below zero are what is wrong.
 */
#include "symex.h"

#define ENTRIES 65000

struct entry {
    uint64_t count;
    uint64_t last;
};

int main(int argc, char **argv)
{
    const char *path = argv[argc - 1];
    const size_t size = ENTRIES * sizeof(struct entry);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, size) != 0)
        return 3;
    struct entry *entries = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (entries == MAP_FAILED)
        return 3;
    struct {
        uint16_t number;
        uint16_t amount;
    } record;
    while (read(0, &record, sizeof record) == sizeof record) {
        long number = argc > 2 ? (long)(int16_t)record.number : (long)record.number;
#ifndef BUG
        if (number < 0 || number >= ENTRIES)
            continue;
#endif
        entries[number].count += record.amount; /* @bug */
        persist(&entries[number].count);
    }
    return 0;
}

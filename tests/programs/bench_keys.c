// Benchmark: keys of 16 bytes are built, hashed and looked up in ordinary memory; two words are appended to a log in the pool each time, and
// persisted by eights.
// build: dynamic
// args: POOL 50000
#include "pm_pool.h"

enum { SLOTS = 1 << 18, KEYS = SLOTS / 2, ENTRIES = 1 << 18, BATCH = 8 };

struct slot {
    char key[16];
    uint64_t value;
};

struct entry {
    uint64_t slot, value;
};

static void build(char key[16], uint64_t number)
{
    for (int i = 15; i >= 0; i--) {
        key[i] = (char)('0' + number % 10);
        number /= 10;
    }
}

__attribute__((noinline)) static struct slot *find(struct slot *table, const char key[16])
{
    uint64_t at = hash_bytes(0xCBF29CE484222325UL, key, 16) % SLOTS;
    while (table[at].key[0] != 0 && memcmp(table[at].key, key, 16) != 0)
        at = (at + 1) % SLOTS;
    return &table[at];
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000000;
    struct pool pool = pool_create(argc, argv, ENTRIES * sizeof(struct entry));
    struct entry *log = (struct entry *)pool.base;
    struct slot *table = calloc(SLOTS, sizeof *table);
    CHECK(table != NULL);
    uint64_t s = 1, sum = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        char key[16];
        build(key, next_random(&s) % KEYS);
        struct slot *slot = find(table, key);
        memcpy(slot->key, key, sizeof key);
        slot->value += i;
        struct entry *entry = &log[i % ENTRIES];
        PM_STORE64(&entry->slot, (uint64_t)(slot - table));
        PM_STORE64(&entry->value, slot->value);
        if (i % BATCH == BATCH - 1) {
            // Eight entries are two lines.
            PM_CLWB(entry - 7);
            PM_CLWB(entry - 3);
            PM_SFENCE();
        }
    }
    for (uint64_t i = 0; i < ENTRIES; i++)
        sum = sum * 31 + log[i].slot + log[i].value;
    printf("%lu keys, sum %lx\n", rounds, sum);
    free(table);
    return 0;
}

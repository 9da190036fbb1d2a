// Benchmark: open-addressing hash table in the pool; each insert stores key and value, writes back
// the line and fences.
// build: dynamic
// args: POOL 200000
#include "pm_pool.h"

struct slot {
    uint64_t key, value;
};

int main(int argc, char **argv)
{
    uint64_t ops = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
    uint64_t slots = 1 << 21, mask = slots - 1;
    struct pool pool = pool_create(argc, argv, slots * sizeof(struct slot));
    struct slot *table = (struct slot *)pool.base;
    uint64_t s = 88172645463325252UL, used = 0, updates = 0;
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t key = next_random(&s) % (slots / 2) + 1;
        uint64_t at = key * 0x9E3779B97F4A7C15UL >> 43 & mask;
        while (table[at].key != 0 && table[at].key != key)
            at = (at + 1) & mask;
        if (table[at].key == 0) {
            table[at].value = i;
            table[at].key = key;
            used++;
        } else {
            table[at].value = i;
            updates++;
        }
        PM_CLWB(&table[at]);
        PM_SFENCE();
    }
    uint64_t sum = 0;
    for (uint64_t i = 0; i < slots; i++)
        sum += table[i].key * 31 + table[i].value;
    printf("%lu used, %lu updates, sum %lx\n", used, updates, sum);
    return 0;
}

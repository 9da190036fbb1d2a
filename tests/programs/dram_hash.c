// Benchmark: chained hash table in ordinary memory, inserts, look-ups and removals.
// build: dynamic
// args: 300000
#include "harness.h"

struct node {
    struct node *next;
    uint64_t key, value;
};

static struct node **buckets;
static uint64_t bucket_count, count;

__attribute__((noinline)) static uint64_t hash(uint64_t k)
{
    k ^= k >> 33;
    k *= 0xff51afd7ed558ccdUL;
    k ^= k >> 33;
    return k;
}

static void grow(void)
{
    uint64_t bigger = bucket_count ? bucket_count * 2 : 64;
    struct node **fresh = calloc(bigger, sizeof *fresh);
    for (uint64_t i = 0; i < bucket_count; i++)
        for (struct node *n = buckets[i], *next; n; n = next) {
            next = n->next;
            uint64_t at = hash(n->key) & (bigger - 1);
            n->next = fresh[at];
            fresh[at] = n;
        }
    free(buckets);
    buckets = fresh;
    bucket_count = bigger;
}

__attribute__((noinline)) static struct node **find(uint64_t key)
{
    struct node **at = &buckets[hash(key) & (bucket_count - 1)];
    while (*at && (*at)->key != key)
        at = &(*at)->next;
    return at;
}

int main(int argc, char **argv)
{
    uint64_t ops = argc > 1 ? strtoull(argv[1], NULL, 10) : 4000000;
    uint64_t s = 1, sum = 0;
    grow();
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t r = next_random(&s), key = r % (ops / 4 + 1);
        struct node **at = find(key);
        switch (r >> 60) {
        case 0: case 1: case 2: case 3: case 4: case 5:
            if (!*at) {
                struct node *n = malloc(sizeof *n);
                *n = (struct node){NULL, key, i};
                *at = n;
                if (++count > bucket_count)
                    grow();
            } else
                (*at)->value += i;
            break;
        case 6: case 7:
            if (*at) {
                struct node *n = *at;
                *at = n->next;
                free(n);
                count--;
            }
            break;
        default:
            if (*at)
                sum += (*at)->value;
        }
    }
    printf("%lu entries, sum %lx\n", count, sum);
    return 0;
}

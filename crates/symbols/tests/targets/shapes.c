/* Stores whose destinations have names. Each is a function of its own, named after what it is; `main` prints where they are.
 *
 * The line above a store says what it must be called; several, if the compiler may do it in several ways. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noinline, noclone))

struct bucket {
    uint64_t key;
    uint32_t value, flags;
};
struct node {
    struct node *next;
    uint64_t count;
    union {
        uint64_t number;
        double fraction;
    };
    union {
        uint64_t whole;
        uint32_t half;
    } both;
};
struct map {
    uint64_t size;
    struct bucket buckets[8];
    struct node *first;
    unsigned few : 3, many : 5;
    uint8_t tail[];
};

struct node *root;
static struct map *shared;

APART void member(struct node *node) { node->count = 7; }
APART void through_a_global(void) { root->count = 8; }
APART void element(struct map *map) { map->buckets[3].key = 9; }
APART void element_by_variable(struct map *map, uint64_t i) { map->buckets[i].key = i; }
APART void element_of_pointer(struct bucket *bucket, uint64_t i) { bucket[i].value = 3; }
APART void two_pointers(struct map *map) { map->first->count = 10; }
APART void whole_union(struct node *node) { node->both.whole = 11; }
APART void half_of_a_union(struct node *node) { node->both.half = 12; }
APART void either_of_a_union(struct node *node) { node->number = 13; }
APART void bits(struct map *map) { map->many = 14; }
APART void beyond(struct node *node) { node[1].count = 15; }
APART void by_cast(void *memory) { *(uint64_t *)((char *)memory + 8) = 16; }
APART void of_number(uint32_t *number) { *number = 17; }

/* The parameter's register holds something else when the store is made. */
APART uint64_t used_again(struct node *node, struct node *other) {
    uint64_t sum = node->count + other->count;
    node = other->next;
    node->count = sum;
    return sum;
}

/* What was read has changed before the store. */
APART void stale(struct map *map, struct node *other) {
    struct node *old = map->first;
    map->first = other;
    old->count = 18;
}

/* Two ways lead to the store. */
APART void joined(struct node *a, struct node *b, int which) {
    (which ? a : b)->count = 19;
}

int main(void) {
    root = calloc(4, sizeof *root);
    shared = calloc(1, sizeof *shared + 64);
    shared->first = root;
    root->next = root + 2;
    member(root);
    through_a_global();
    element(shared);
    element_by_variable(shared, 2);
    element_of_pointer(shared->buckets, 1);
    two_pointers(shared);
    whole_union(root);
    half_of_a_union(root);
    either_of_a_union(root);
    bits(shared);
    beyond(root);
    by_cast(root);
    of_number((uint32_t *)shared->tail);
    stale(shared, root);
    joined(root, root + 1, (int)used_again(root, root));
    return 0;
}

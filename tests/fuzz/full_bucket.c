/* A hash table with four slots a bucket. When a bucket overflows, the table is built again with twice as many. Which slot of a bucket is free again is
 * remembered in ordinary memory.
 *
 *     i KEY   insert     r KEY   remove     c KEY   check     p   print     q   end
 *
 * Wrong: building the table again gives that memory back and takes no other. Removing a key from a full bucket, which has its first free slot
 * then, follows a null pointer. Nothing about persistence is wrong.
 * Right: there is new memory for the new buckets.
 *
 * seed: i 5, r 5, p
 * trigger: i 0, i 2, i 4, i 8, i 12, r 0
 * shows: signal
 */
#include "pm.h"

enum { SLOTS = 4, FIRST = 2, MOST = 32 };

struct bucket {
    PM_ALIGNED uint64_t slots[SLOTS]; /* one more than the key; 0: free */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t table; /* how many buckets, and in the upper half which of the two tables counts */
    struct bucket tables[2][MOST];
};

/* For each bucket, one more than the slot that was freed last. */
static unsigned char *freed;

static uint64_t buckets(const struct pool *pool)
{
    return pool->table & 0xffffffff;
}

static struct bucket *bucket_of(struct pool *pool, uint64_t key)
{
    return &pool->tables[pool->table >> 32][key % buckets(pool)];
}

static void forget_freed(struct pool *pool)
{
    freed = calloc(buckets(pool), 1);
    if (!freed)
        abort();
}

static void open_pool(struct pool *pool)
{
    if (pm_is_new(&pool->magic)) {
        pool->table = FIRST;
        pm_persist(&pool->table, sizeof pool->table);
        pm_created(&pool->magic);
    }
    forget_freed(pool);
}

static uint64_t *find(struct pool *pool, uint64_t key)
{
    struct bucket *bucket = bucket_of(pool, key);
    for (int i = 0; i < SLOTS; i++) {
        if (bucket->slots[i] == key + 1)
            return &bucket->slots[i];
    }
    return NULL;
}

/* A free slot of this bucket; NULL if it is full. */
static uint64_t *free_slot(struct bucket *bucket)
{
    for (int i = 0; i < SLOTS; i++) {
        if (bucket->slots[i] == 0)
            return &bucket->slots[i];
    }
    return NULL;
}

/* Builds the other table, large enough that `extra` fits as well; false if none is. */
static bool rebuild(struct pool *pool, uint64_t extra)
{
    uint64_t which = pool->table >> 32, other = 1 - which;
    for (uint64_t size = 2 * buckets(pool); size <= MOST; size *= 2) {
        struct bucket *to = pool->tables[other];
        memset(to, 0, size * sizeof *to);
        bool fits = true;
        for (uint64_t i = 0; i < buckets(pool) * SLOTS && fits; i++) {
            uint64_t slot = pool->tables[which][i / SLOTS].slots[i % SLOTS];
            uint64_t *place = slot ? free_slot(&to[(slot - 1) % size]) : NULL;
            if (place)
                *place = slot;
            fits = place || !slot;
        }
        pm_persist(to, size * sizeof *to);
        if (!fits || !free_slot(&to[extra % size]))
            continue;
        pool->table = other << 32 | size;
        pm_persist(&pool->table, sizeof pool->table);
        free(freed);
        freed = NULL;
#ifndef BUG
        forget_freed(pool);
#endif
        return true;
    }
    return false;
}

static void insert(struct pool *pool, uint64_t key)
{
    if (key == UINT64_MAX || find(pool, key)) {
        pm_print("there\n");
        return;
    }
    uint64_t hint = freed ? freed[key % buckets(pool)] : 0;
    uint64_t *slot = hint ? &bucket_of(pool, key)->slots[hint - 1] : NULL;
    if (!slot || *slot)
        slot = free_slot(bucket_of(pool, key));
    if (!slot && rebuild(pool, key))
        slot = free_slot(bucket_of(pool, key));
    if (!slot) {
        pm_print("full\n");
        return;
    }
    *slot = key + 1;
    pm_persist(slot, sizeof *slot);
}

static void removal(struct pool *pool, uint64_t key)
{
    uint64_t *slot = find(pool, key);
    if (!slot) {
        pm_print("none\n");
        return;
    }
    struct bucket *bucket = bucket_of(pool, key);
    if (!free_slot(bucket))
        freed[key % buckets(pool)] = (unsigned char)(slot - bucket->slots + 1);
    *slot = 0;
    pm_persist(slot, sizeof *slot);
}

/* Ascending, so that it does not matter how many buckets there are. */
static void print(struct pool *pool)
{
    uint64_t least = 0;
    for (;;) {
        uint64_t next = 0;
        for (uint64_t i = 0; i < buckets(pool) * SLOTS; i++) {
            uint64_t slot = pool->tables[pool->table >> 32][i / SLOTS].slots[i % SLOTS];
            if (slot > least && (next == 0 || slot < next))
                next = slot;
        }
        if (next == 0)
            return;
        pm_print("%lu\n", next - 1);
        least = next;
    }
}

static void command(struct pool *pool, char letter, char *rest)
{
    uint64_t key;
    if (letter == 'p')
        print(pool);
    else if (letter == 'i' && pm_number(&rest, &key))
        insert(pool, key);
    else if (letter == 'r' && pm_number(&rest, &key))
        removal(pool, key);
    else if (letter == 'c' && pm_number(&rest, &key))
        pm_print("%d\n", key != UINT64_MAX && find(pool, key));
    else
        pm_print("?\n");
}

PM_MAIN

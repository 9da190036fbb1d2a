/* Eight records that name blocks. Nothing is repaired on opening: a record that a crash has left half done is undone by the first command that
 * meets it.
 *
 *     s KEY VALUE   set     g KEY   get     d KEY   delete     p   print all     q   end
 *
 * Wrong: `g`, `d` and `s` take a half done record for a whole one. It names no block yet, so reading its value faults. Opening the pool, printing it and
 * commands with other keys work well.
 * Right: whoever finds a half done record empties it.
 *
 * seed: s 1 5, p
 * trigger: s 1 5 !2 | g 1
 * shows: signal
 */
#include "pm.h"

enum { RECORDS = 8, BLOCKS = RECORDS + 1 };
enum { EMPTY, BUSY, FULL };
/* Far beyond any mapping. */
#define NO_BLOCK (1ULL << 40)

struct record {
    PM_ALIGNED uint64_t state;
    uint64_t key;
    uint64_t block;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct record records[RECORDS];
    struct {
        PM_ALIGNED uint64_t value;
    } blocks[BLOCKS];
};

static void open_pool(struct pool *pool)
{
    if (pm_is_new(&pool->magic))
        pm_created(&pool->magic);
}

static void set_state(struct record *record, uint64_t state)
{
    record->state = state;
    pm_persist(&record->state, sizeof record->state);
}

static struct record *find(struct pool *pool, uint64_t key)
{
    for (int i = 0; i < RECORDS; i++) {
        struct record *record = &pool->records[i];
        if (record->state == EMPTY || record->key != key)
            continue;
#ifndef BUG
        if (record->state == BUSY) {
            set_state(record, EMPTY);
            continue;
        }
#endif
        return record;
    }
    return NULL;
}

/* There is always one: there are more blocks than records. */
static uint64_t free_block(struct pool *pool)
{
    uint64_t block = 0;
    for (int i = 0; i < RECORDS; i++) {
        if (pool->records[i].state == FULL && pool->records[i].block == block) {
            block++;
            i = -1;
        }
    }
    return block;
}

static void set(struct pool *pool, uint64_t key, uint64_t value)
{
    struct record *record = find(pool, key);
    uint64_t block = free_block(pool);
    if (record) {
        pool->blocks[block].value = value;
        pm_persist(&pool->blocks[block], sizeof pool->blocks[block]);
        record->block = block;
        pm_persist(&record->block, sizeof record->block);
        return;
    }
    for (int i = 0; i < RECORDS && !record; i++) {
        if (pool->records[i].state != FULL)
            record = &pool->records[i];
    }
    if (!record) {
        pm_print("full\n");
        return;
    }
    /* One line, in this order: whatever survives is either not there or half done. */
    record->key = key;
    record->block = NO_BLOCK;
    pm_barrier();
    set_state(record, BUSY);
    pool->blocks[block].value = value;
    pm_persist(&pool->blocks[block], sizeof pool->blocks[block]);
    record->block = block;
    pm_persist(&record->block, sizeof record->block);
    set_state(record, FULL);
}

/* Ascending, so that it does not matter in which record something lies. */
static void print(struct pool *pool)
{
    uint64_t from = 0;
    for (;;) {
        struct record *next = NULL;
        for (int i = 0; i < RECORDS; i++) {
            struct record *record = &pool->records[i];
            if (record->state == FULL && record->key >= from && (!next || record->key < next->key))
                next = record;
        }
        if (!next)
            return;
        pm_print("%lu = %lu\n", next->key, pool->blocks[next->block].value);
        if (next->key == UINT64_MAX)
            return;
        from = next->key + 1;
    }
}

static void command(struct pool *pool, char letter, char *rest)
{
    uint64_t key, value;
    if (letter == 'p') {
        print(pool);
    } else if (letter == 's' && pm_number(&rest, &key) && pm_number(&rest, &value)) {
        set(pool, key, value);
    } else if ((letter == 'g' || letter == 'd') && pm_number(&rest, &key)) {
        struct record *record = find(pool, key);
        if (!record)
            pm_print("none\n");
        else if (letter == 'g')
            pm_print("%lu\n", pool->blocks[record->block].value);
        else
            set_state(record, EMPTY);
    } else {
        pm_print("?\n");
    }
}

PM_MAIN

/* Sorted keys in leaves of six, which split when a seventh comes. Every leaf but the first knows its smallest key.
 *
 *     i KEY   insert     r KEY   remove     c KEY   check     p   print     q   end
 *
 * Wrong: when the smallest key of a leaf that a split has made is removed, and others are left in it, the new smallest key is stored and never
 * written back.
 * Right: it is logged and written back like all that changes.
 *
 * seed: i 5, r 5, p
 * trigger: i 1, i 2, i 3, i 4, i 5, i 6, i 7, r 4 | p
 * shows: exit
 * bug: missing-flush @ separator
 */
#include "pm.h"

enum { LEAVES = 8, KEYS = 6 };

struct leaf {
    PM_ALIGNED uint64_t low; /* the smallest key; nothing in the first leaf */
    uint64_t next;           /* number of a leaf; 0: last, because nothing comes before the first */
    uint64_t used;
    PM_ALIGNED uint64_t count;
    uint64_t keys[KEYS];
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct pm_undo undo;
    struct leaf leaves[LEAVES];
};

static void open_pool(struct pool *pool)
{
    if (pm_is_new(&pool->magic)) {
        pm_created(&pool->magic);
        return;
    }
    pm_undo_recover(&pool->undo);
    for (uint64_t at = pool->leaves[0].next; at != 0; at = pool->leaves[at].next) {
        struct leaf *leaf = &pool->leaves[at];
        if (leaf->count == 0 || leaf->low != leaf->keys[0])
            pm_fail("leaf %lu does not begin with %lu", at, leaf->low);
    }
}

/* The leaf that has this key, if any has; the one before it goes to `before`. */
static struct leaf *find(struct pool *pool, uint64_t key, struct leaf **before)
{
    struct leaf *leaf = &pool->leaves[0];
    *before = NULL;
    while (leaf->next != 0 && pool->leaves[leaf->next].low <= key) {
        *before = leaf;
        leaf = &pool->leaves[leaf->next];
    }
    return leaf;
}

/* Where this key is in a leaf, or would be. */
static uint64_t place(const struct leaf *leaf, uint64_t key)
{
    uint64_t at = 0;
    while (at < leaf->count && leaf->keys[at] < key)
        at++;
    return at;
}

static bool has(const struct leaf *leaf, uint64_t key)
{
    uint64_t at = place(leaf, key);
    return at < leaf->count && leaf->keys[at] == key;
}

static size_t head_size(void)
{
    return offsetof(struct leaf, count);
}

static void log_keys(struct pool *pool, struct leaf *leaf)
{
    pm_undo_add(&pool->undo, &leaf->count, sizeof *leaf - head_size());
}

static void insert(struct pool *pool, uint64_t key)
{
    struct leaf *before, *leaf = find(pool, key, &before);
    if (has(leaf, key)) {
        pm_print("there\n");
        return;
    }
    if (leaf->count == KEYS) {
        uint64_t made = 1;
        while (made < LEAVES && pool->leaves[made].used)
            made++;
        if (made == LEAVES) {
            pm_print("full\n");
            return;
        }
        struct leaf *right = &pool->leaves[made];
        pm_undo_add(&pool->undo, right, head_size());
        log_keys(pool, right);
        pm_undo_add(&pool->undo, leaf, head_size());
        log_keys(pool, leaf);
        right->used = 1;
        right->count = KEYS / 2;
        memcpy(right->keys, leaf->keys + KEYS / 2, KEYS / 2 * sizeof leaf->keys[0]);
        right->low = right->keys[0];
        right->next = leaf->next;
        leaf->next = made;
        leaf->count = KEYS / 2;
        if (key > right->low)
            leaf = right;
    } else {
        log_keys(pool, leaf);
    }
    uint64_t at = place(leaf, key);
    memmove(leaf->keys + at + 1, leaf->keys + at, (leaf->count - at) * sizeof leaf->keys[0]);
    leaf->keys[at] = key;
    leaf->count++;
    pm_undo_commit(&pool->undo);
}

static void removal(struct pool *pool, uint64_t key)
{
    struct leaf *before, *leaf = find(pool, key, &before);
    if (!has(leaf, key)) {
        pm_print("none\n");
        return;
    }
    uint64_t at = place(leaf, key);
    log_keys(pool, leaf);
    leaf->count--;
    memmove(leaf->keys + at, leaf->keys + at + 1, (leaf->count - at) * sizeof leaf->keys[0]);
    if (before && leaf->count == 0) {
        pm_undo_add(&pool->undo, before, head_size());
        pm_undo_add(&pool->undo, leaf, head_size());
        before->next = leaf->next;
        leaf->used = 0;
    } else if (before && at == 0) {
#ifndef BUG
        pm_undo_add(&pool->undo, leaf, head_size());
#endif
        leaf->low = leaf->keys[0]; /* @separator */
    }
    pm_undo_commit(&pool->undo);
}

static void command(struct pool *pool, char letter, char *rest)
{
    uint64_t key;
    struct leaf *before;
    if (letter == 'p') {
        const struct leaf *leaf = &pool->leaves[0];
        for (;;) {
            for (uint64_t i = 0; i < leaf->count; i++)
                pm_print("%lu\n", leaf->keys[i]);
            if (leaf->next == 0)
                break;
            leaf = &pool->leaves[leaf->next];
        }
    } else if (letter == 'i' && pm_number(&rest, &key)) {
        insert(pool, key);
    } else if (letter == 'r' && pm_number(&rest, &key)) {
        removal(pool, key);
    } else if (letter == 'c' && pm_number(&rest, &key)) {
        pm_print("%d\n", has(find(pool, key, &before), key));
    } else {
        pm_print("?\n");
    }
}

PM_MAIN

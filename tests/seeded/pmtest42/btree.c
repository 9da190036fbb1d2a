/* A B-tree of height two at most: leaves of four keys, sorted; a full leaf is split and the root gets a separator.
 *
 * case 1: backup, tx-unlogged-store @ shift|place|leaf-count
 * case 2: backup, tx-unlogged-store @ leaf-count
 * case 3: backup, tx-unlogged-store @ shift|place
 * case 4: backup, tx-unlogged-store @ cut
 * case 5: backup, tx-unlogged-store @ separator|root-count
 * case 6: backup, tx-unlogged-store @ root-count
 * case 7: completion, tx-not-persisted @ root-count
 * case 8: completion, tx-not-persisted @ stamp
 * case 9: duplicate log, duplicate-log @ leaf-log
 *
 * 1: an insertion does not log the leaf. 2: it logs the keys and not their number. 3: it logs the leaf after its keys
 * were moved. 4: a split does not log the leaf that it cuts. 5: a split does not log the root. 6: it logs the root's
 * separators and not their number. 7: the commit writes back one range too few. 8: the root is stamped after the
 * commit's write-back. 9: a split logs the leaf, and the insertion into it once more.
 */
#include "tx.h"

enum { KEYS = 4, LEAVES = 4, INSERTIONS = 8 };

struct leaf {
    PM_ALIGNED uint64_t count;
    PM_ALIGNED uint64_t keys[KEYS];
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct tx_log log;
    PM_ALIGNED uint64_t leaves_used; /* leaf 0 is always there, so one more than this */
    uint64_t stamp;                  /* of the last split */
    PM_ALIGNED uint64_t separators[LEAVES];
    uint64_t children[LEAVES]; /* leaf to the right of the separator */
    struct leaf leaves[LEAVES];
};

static const uint64_t input[INSERTIONS] = {40, 10, 30, 20, 25, 50, 60, 5};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    tx_recover(&pool->log);
}

static uint64_t child_of(struct pool *pool, uint64_t key)
{
    uint64_t child = 0;
    for (uint64_t n = 0; n < pool->leaves_used && key >= pool->separators[n]; n++)
        child = pool->children[n];
    return child;
}

/* `logged`: the caller has logged or allocated the leaf. */
static void insert_into(struct pool *pool, struct leaf *leaf, uint64_t key, bool logged)
{
    if (BUGGY(2) && !logged)
        tx_add(&pool->log, leaf->keys, sizeof leaf->keys);
    else if (!BUGGY(1) && !BUGGY(3) && !logged)
        tx_add(&pool->log, leaf, sizeof *leaf);
    else if (BUGGY(9) && logged)
        tx_add(&pool->log, leaf, sizeof *leaf); /* @leaf-log */
    uint64_t at = leaf->count;
    for (; at > 0 && leaf->keys[at - 1] > key; at--)
        leaf->keys[at] = leaf->keys[at - 1]; /* @shift */
    leaf->keys[at] = key;                    /* @place */
    if (BUGGY(3) && !logged)
        tx_add(&pool->log, leaf, sizeof *leaf);
    leaf->count++; /* @leaf-count */
}

static void split(struct pool *pool, struct leaf *leaf, uint64_t key)
{
    uint64_t number = pool->leaves_used + 1;
    struct leaf *right = &pool->leaves[number];
    tx_alloc(right, sizeof *right);
    right->count = KEYS / 2;
    for (int n = 0; n < KEYS / 2; n++)
        right->keys[n] = leaf->keys[KEYS / 2 + n];
    if (!BUGGY(4))
        tx_add(&pool->log, leaf, sizeof *leaf);
    leaf->count = KEYS / 2; /* @cut */
    for (int n = KEYS / 2; n < KEYS; n++)
        leaf->keys[n] = 0; /* @cut */
    /* The new key goes to the left half if it belongs there; the cut leaf was logged just now. */
    if (key < right->keys[0])
        insert_into(pool, leaf, key, !BUGGY(4));
    else
        insert_into(pool, right, key, true);
    if (!BUGGY(5)) {
        tx_add(&pool->log, pool->separators, sizeof pool->separators + sizeof pool->children);
        if (!BUGGY(6))
            tx_add(&pool->log, &pool->leaves_used, 2 * sizeof(uint64_t));
    }
    uint64_t at = pool->leaves_used;
    for (; at > 0 && pool->separators[at - 1] > right->keys[0]; at--) {
        pool->separators[at] = pool->separators[at - 1]; /* @separator */
        pool->children[at] = pool->children[at - 1];     /* @separator */
    }
    pool->separators[at] = right->keys[0]; /* @separator */
    pool->children[at] = number;           /* @separator */
    pool->leaves_used = number;            /* @root-count */
}

static void operation(struct pool *pool, int i)
{
    struct leaf *leaf = &pool->leaves[child_of(pool, input[i])];
    bool full = leaf->count == KEYS;
    tx_begin(&pool->log);
    if (full)
        split(pool, leaf, input[i]);
    else
        insert_into(pool, leaf, input[i], false);
    tx_write_back(BUGGY(7) && full ? tx_range_count - 1 : TX_ALL);
    if (full && BUGGY(8))
        pool->stamp = input[i]; /* @stamp */
    pm_fence();
    tx_end(&pool->log);
}

static void check(struct pool *pool)
{
    uint64_t last = 0;
    for (uint64_t n = 0; n <= pool->leaves_used; n++) {
        struct leaf *leaf = &pool->leaves[n == 0 ? 0 : pool->children[n - 1]];
        if (leaf->count > KEYS || (n > 0 && leaf->keys[0] != pool->separators[n - 1]))
            pm_fail("leaf %lu is damaged", n);
        for (uint64_t k = 0; k < leaf->count; last = leaf->keys[k++]) {
            if (leaf->keys[k] <= last)
                pm_fail("key %lu is out of place", leaf->keys[k]);
            pm_print("%lu\n", leaf->keys[k]);
        }
    }
}

PM_CASES_MAIN(INSERTIONS)

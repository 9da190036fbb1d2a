/* A skip list of two levels: even keys are on both. Insertions and one removal, each a transaction in a section of its
 * own.
 *
 * case 1: backup, tx-unlogged-store @ link-low
 * case 2: backup, tx-unlogged-store @ link-high
 * case 3: backup, tx-unlogged-store @ link-low
 * case 4: backup, tx-unlogged-store @ unlink-low
 * case 5: backup, tx-unlogged-store @ unlink-high
 * case 6: completion, missing-flush @ unlink-low|unlink-high
 * case 7: completion, missing-flush @ node|link-low|link-high
 * case 8: duplicate log, duplicate-log @ low-log
 *
 * 1: an insertion does not log the predecessor on the lower level. 2: nor on the upper. 3: it logs the lower one after
 * the change. 4: the removal does not log the lower predecessor. 5: it logs the upper one too late. 6: the removal
 * returns early and never commits. 7: the last insertion ends the inner transaction and leaves the outer one open,
 * which alone would write back. 8: the lower predecessor is logged twice.
 */
#include "tx.h"

enum { NODES = 6, INSERTIONS = 5, OPERATIONS = 6 };

struct node {
    PM_ALIGNED uint64_t key;
    PM_ALIGNED uint64_t low; /* number of the next node; node 0 is the head */
    PM_ALIGNED uint64_t high;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct tx_log log;
    struct node nodes[NODES];
};

static const uint64_t input[INSERTIONS] = {14, 5, 8, 21, 17};
enum { REMOVED = 8 };

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    tx_recover(&pool->log);
}

static struct node *before_low(struct pool *pool, uint64_t key)
{
    struct node *node = &pool->nodes[0];
    while (node->low != 0 && pool->nodes[node->low].key < key)
        node = &pool->nodes[node->low];
    return node;
}

static struct node *before_high(struct pool *pool, uint64_t key)
{
    struct node *node = &pool->nodes[0];
    while (node->high != 0 && pool->nodes[node->high].key < key)
        node = &pool->nodes[node->high];
    return node;
}

static void insert(struct pool *pool, uint64_t number, uint64_t key)
{
    struct node *node = &pool->nodes[number], *low = before_low(pool, key), *high = before_high(pool, key);
    bool both = key % 2 == 0;
    tx_alloc(node, sizeof *node);
    node->key = key;                   /* @node */
    node->low = low->low;              /* @node */
    node->high = both ? high->high : 0; /* @node */
    if (!BUGGY(1) && !BUGGY(3))
        tx_add(&pool->log, &low->low, sizeof low->low);
    if (BUGGY(8))
        tx_add(&pool->log, &low->low, sizeof low->low); /* @low-log */
    low->low = number; /* @link-low */
    if (BUGGY(3))
        tx_add(&pool->log, &low->low, sizeof low->low);
    if (!both)
        return;
    if (!BUGGY(2))
        tx_add(&pool->log, &high->high, sizeof high->high);
    high->high = number; /* @link-high */
}

static void delete(struct pool *pool, uint64_t key)
{
    struct node *low = before_low(pool, key), *high = before_high(pool, key);
    if (!BUGGY(4))
        tx_add(&pool->log, &low->low, sizeof low->low);
    low->low = pool->nodes[low->low].low; /* @unlink-low */
    if (!BUGGY(5))
        tx_add(&pool->log, &high->high, sizeof high->high);
    high->high = pool->nodes[high->high].high; /* @unlink-high */
    if (BUGGY(5))
        tx_add(&pool->log, &high->high, sizeof high->high);
}

/* Whether the operation came to its commit. */
static bool transaction(struct pool *pool, int i)
{
    bool last_insertion = i == OPERATIONS - 1;
    tx_begin(&pool->log);
    if (i == OPERATIONS - 2) {
        delete(pool, REMOVED);
    } else {
        int n = last_insertion ? INSERTIONS - 1 : i;
        brownout_tx_begin();
        insert(pool, (uint64_t)n + 1, input[n]);
        brownout_tx_end();
        if (BUGGY(7) && last_insertion)
            return false;
    }
    tx_write_back(TX_ALL);
    pm_fence();
    tx_end(&pool->log);
    return true;
}

static void operation(struct pool *pool, int i)
{
    /* Case 6 needs the removal to be the last thing that is done. */
    if (BUGGY(6) && i >= OPERATIONS - 2) {
        if (i == OPERATIONS - 1) {
            brownout_section_begin();
            tx_begin(&pool->log);
            delete(pool, REMOVED);
            brownout_section_end();
        }
        return;
    }
    brownout_section_begin();
    transaction(pool, i);
    brownout_section_end();
}

static void check(struct pool *pool)
{
    uint64_t high = pool->nodes[0].high, last = 0;
    for (uint64_t at = pool->nodes[0].low; at != 0; at = pool->nodes[at].low) {
        if (at >= NODES || pool->nodes[at].key <= last)
            pm_fail("node %lu is out of place", at);
        last = pool->nodes[at].key;
        if (last % 2 == 0) {
            if (high != at)
                pm_fail("key %lu is missing on the upper level", last);
            high = pool->nodes[at].high;
        }
        pm_print("%lu\n", last);
    }
    if (high != 0)
        pm_fail("the upper level leads on");
}

PM_CASES_MAIN(OPERATIONS)

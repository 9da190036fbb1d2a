/* A chained hash map: insertion, update, removal, each a transaction.
 *
 * case 1: backup, tx-unlogged-store @ head
 * case 2: backup, tx-unlogged-store @ head
 * case 3: backup, tx-unlogged-store @ head
 * case 4: backup, tx-unlogged-store @ count
 * case 5: backup, tx-unlogged-store @ value
 * case 6: backup, tx-unlogged-store @ unlink
 * case 7: completion, tx-not-persisted @ node|head|count
 * case 8: completion, tx-not-persisted @ node|head|count
 * case 9: duplicate log, duplicate-log @ count-log
 * case 10: duplicate log, fresh-log @ node-log
 *
 * 1: an insertion does not log the bucket. 2: it logs it after the change. 3: it logs the next bucket. 4: the count is
 * not logged. 5: an update does not log the value. 6: a removal does not log the link. 7: the commit of an insertion
 * writes nothing back. 8: it does not fence. 9: the count is logged twice. 10: an insertion logs the node that it has
 * allocated.
 * needs: clflushopt
 */
#include "tx.h"

enum { BUCKETS = 4, NODES = 5, OPERATIONS = 6 };

struct node {
    PM_ALIGNED uint64_t key;
    uint64_t value;
    PM_ALIGNED uint64_t next; /* number of a node, from 1 */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct tx_log log;
    PM_ALIGNED uint64_t count;
    struct {
        PM_ALIGNED uint64_t head;
    } buckets[BUCKETS];
    struct node nodes[NODES];
};

static const uint64_t keys[OPERATIONS] = {1, 5, 2, 3, 5, 1};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    tx_recover(&pool->log);
}

static void log_count(struct pool *pool)
{
    if (!BUGGY(4))
        tx_add(&pool->log, &pool->count, sizeof pool->count);
    if (BUGGY(9))
        tx_add(&pool->log, &pool->count, sizeof pool->count); /* @count-log */
}

static void insert(struct pool *pool, int i)
{
    uint64_t bucket = keys[i] % BUCKETS, *head = &pool->buckets[bucket].head;
    struct node *node = &pool->nodes[i];
    tx_alloc(node, sizeof *node);
    if (BUGGY(10))
        tx_add(&pool->log, node, sizeof *node); /* @node-log */
    node->key = keys[i];     /* @node */
    node->value = 1000 + keys[i]; /* @node */
    node->next = *head;      /* @node */
    if (BUGGY(3))
        tx_add(&pool->log, &pool->buckets[(bucket + 1) % BUCKETS], sizeof *head);
    else if (!BUGGY(1) && !BUGGY(2))
        tx_add(&pool->log, head, sizeof *head);
    *head = (uint64_t)i + 1; /* @head */
    if (BUGGY(2))
        tx_add(&pool->log, head, sizeof *head);
    log_count(pool);
    pool->count++; /* @count */
}

/* Where the number of the key's node stands. */
static uint64_t *find(struct pool *pool, uint64_t key)
{
    uint64_t *link = &pool->buckets[key % BUCKETS].head;
    while (*link != 0 && pool->nodes[*link - 1].key != key)
        link = &pool->nodes[*link - 1].next;
    return link;
}

static void update(struct pool *pool, uint64_t key)
{
    struct node *node = &pool->nodes[*find(pool, key) - 1];
    if (!BUGGY(5))
        tx_add(&pool->log, &node->value, sizeof node->value);
    node->value++; /* @value */
}

static void delete(struct pool *pool, uint64_t key)
{
    uint64_t *link = find(pool, key);
    if (!BUGGY(6))
        tx_add(&pool->log, link, sizeof *link);
    *link = pool->nodes[*link - 1].next; /* @unlink */
    log_count(pool);
    pool->count--; /* @count */
}

static void operation(struct pool *pool, int i)
{
    tx_begin(&pool->log);
    if (i < 4)
        insert(pool, i);
    else if (i == 4)
        update(pool, keys[i]);
    else
        delete(pool, keys[i]);
    if (!BUGGY(7) || i >= 4)
        tx_write_back(TX_ALL);
    if (!BUGGY(8) || i >= 4)
        pm_fence();
    tx_end(&pool->log);
}

static void check(struct pool *pool)
{
    uint64_t count = 0;
    for (uint64_t bucket = 0; bucket < BUCKETS; bucket++)
        for (uint64_t at = pool->buckets[bucket].head; at != 0; at = pool->nodes[at - 1].next) {
            if (at > NODES || ++count > NODES || pool->nodes[at - 1].key % BUCKETS != bucket)
                pm_fail("bucket %lu is damaged", bucket);
            pm_print("%lu: %lu\n", pool->nodes[at - 1].key, pool->nodes[at - 1].value);
        }
    if (count != pool->count)
        pm_fail("%lu keys are counted, %lu are there", pool->count, count);
}

PM_CASES_MAIN(OPERATIONS)

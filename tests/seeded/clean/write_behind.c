/* A table that is written behind a log: an update is acknowledged when its log entry is durable; the table follows, unfenced.
 *
 * Clean: log entries carry a checksum; recovery replays all of them, oldest first, and that is idempotent. The table's own
 * stores are flushed by a checkpoint only, half-way and at the end, which then moves the start of the log.
 *
 * clean
 */
#include "../pm.h"

enum { KEYS = 3, UPDATES = 7, LOG = 8 };

struct pool {
    PM_ALIGNED uint64_t start;
    struct {
        PM_ALIGNED uint64_t number, key, value, checksum;
    } log[LOG];
    struct {
        PM_ALIGNED uint64_t value;
    } table[KEYS];
};

static uint64_t sum(uint64_t number, uint64_t key, uint64_t value)
{
    return ((number * 31 + key) * 0x100000001b3 + value) ^ 0x5bd1e995;
}

static uint64_t replay(struct pool *pool)
{
    uint64_t n = pool->start;
    for (; n < LOG; n++) {
        if (pool->log[n].number != n + 1 || pool->log[n].checksum != sum(n + 1, pool->log[n].key, pool->log[n].value))
            break;
        pool->table[pool->log[n].key].value = pool->log[n].value;
    }
    return n;
}

static void open_pool(struct pool *pool)
{
    replay(pool);
}

static void operation(struct pool *pool, int i)
{
    uint64_t key = (uint64_t)i % KEYS, value = (uint64_t)i + 300;
    pool->log[i].number = (uint64_t)i + 1;
    pool->log[i].key = key;
    pool->log[i].value = value;
    pool->log[i].checksum = sum((uint64_t)i + 1, key, value);
    pm_persist(&pool->log[i], sizeof pool->log[i]);
    pm_ack(i);
    pool->table[key].value = value;
    if (i == 3 || i + 1 == pm_job.operations) {
        pm_persist(pool->table, sizeof pool->table);
        pool->start = (uint64_t)i + 1;
        pm_persist(&pool->start, sizeof pool->start);
    }
}

static void check(struct pool *pool)
{
    for (int key = 0; key < KEYS; key++)
        if (pool->table[key].value)
            pm_print("key %d: %d\n", key, (int)pool->table[key].value);
}

PM_MAIN(UPDATES)

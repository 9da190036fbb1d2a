/* Transfers with a redo log: two entries in two lines, a commit mark in a third; replayed in place, then cleared.
 *
 * Wrong: entries and mark are made durable together, by one fence, and the entries carry no checksum. The mark may
 * arrive alone; recovery then replays what the entries held before: zeros, or the previous transfer.
 * Right: the entries are durable before the mark is stored.
 *
 * check: none
 * assert: not-ordered @ entry-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ entry-store
 * needs: clflushopt
 */
#include "../bank.h"

struct redo {
    struct {
        PM_ALIGNED uint64_t account;
        uint64_t balance;
    } entries[2];
    PM_ALIGNED uint64_t committed;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct redo redo;
    struct account accounts[ACCOUNTS];
};

/* Absolute values: replaying twice is replaying once. */
static void replay(struct pool *pool)
{
    struct redo *redo = &pool->redo;
    for (int n = 0; n < 2; n++) {
        uint64_t account = redo->entries[n].account;
        if (account >= ACCOUNTS)
            pm_fail("the log names account %lu", account);
        pool->accounts[account].balance = redo->entries[n].balance;
        pm_flush(&pool->accounts[account], sizeof(struct account));
    }
    pm_fence();
    redo->committed = 0;
    pm_persist(&redo->committed, sizeof redo->committed);
}

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC)
        bank_create(&pool->magic, pool->accounts);
    if (pool->redo.committed)
        replay(pool);
}

static void operation(struct pool *pool, int i)
{
    struct redo *redo = &pool->redo;
    uint64_t from = (uint64_t)i % ACCOUNTS, to = (from + 1) % ACCOUNTS, amount = 10 + (uint64_t)i;
    redo->entries[0].account = from; /* @entry-store */
    redo->entries[0].balance = pool->accounts[from].balance - amount; /* @entry-store */
    redo->entries[1].account = to; /* @entry-store */
    redo->entries[1].balance = pool->accounts[to].balance + amount; /* @entry-store */
    pm_flush(redo->entries, sizeof redo->entries);
#ifndef BUG
    pm_fence();
#endif
    redo->committed = 1;
    PM_ASSERT_ORDERED(redo->entries, sizeof redo->entries, &redo->committed, sizeof redo->committed);
    pm_persist(&redo->committed, sizeof redo->committed);
    replay(pool);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    bank_check(pool->accounts);
}

PM_MAIN(TRANSFERS)

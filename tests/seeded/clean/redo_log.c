/* Transfers with a redo log: entries, fence, commit mark, fence, replay in place, fence, clear the mark.
 *
 * Clean: a set mark implies durable entries, and stays set until the replayed balances are durable. Replay stores
 * absolute values, so it may be cut short and begun again.
 *
 * clean
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

static void replay(struct pool *pool)
{
    for (int n = 0; n < 2; n++) {
        struct account *account = &pool->accounts[pool->redo.entries[n].account];
        account->balance = pool->redo.entries[n].balance;
        pm_flush(account, sizeof *account);
    }
    pm_fence();
    pool->redo.committed = 0;
    pm_persist(&pool->redo.committed, sizeof(uint64_t));
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
    redo->entries[0].account = from;
    redo->entries[0].balance = pool->accounts[from].balance - amount;
    redo->entries[1].account = to;
    redo->entries[1].balance = pool->accounts[to].balance + amount;
    pm_persist(redo->entries, sizeof redo->entries);
    redo->committed = 1;
    pm_persist(&redo->committed, sizeof redo->committed);
    replay(pool);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    bank_check(pool->accounts);
}

PM_MAIN(TRANSFERS)

/* Transfers with a one-line undo record (see undo_entry_unfenced.c).
 *
 * Wrong: the record is invalidated before the changed balances are written back. A crash then finds no record, and one
 * balance evicted, the other not.
 * Right: the balances are durable before the record goes.
 *
 * check: none
 * assert: not-ordered @ pay
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ pay|receive
 */
#include "../bank.h"

struct undo {
    PM_ALIGNED uint64_t from;
    uint64_t from_balance;
    uint64_t to;
    uint64_t to_balance;
    uint64_t valid;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct undo undo;
    struct account accounts[ACCOUNTS];
};

static void persist_both(struct pool *pool, uint64_t from, uint64_t to)
{
    pm_flush(&pool->accounts[from], sizeof(struct account));
    pm_flush(&pool->accounts[to], sizeof(struct account));
    pm_fence();
}

static void invalidate(struct undo *undo)
{
    undo->valid = 0;
    pm_persist(&undo->valid, sizeof undo->valid);
}

static void open_pool(struct pool *pool)
{
    struct undo *undo = &pool->undo;
    if (pool->magic != PM_MAGIC)
        bank_create(&pool->magic, pool->accounts);
    if (undo->valid) {
        pool->accounts[undo->from].balance = undo->from_balance;
        pool->accounts[undo->to].balance = undo->to_balance;
        persist_both(pool, undo->from, undo->to);
        invalidate(undo);
    }
}

static void operation(struct pool *pool, int i)
{
    struct undo *undo = &pool->undo;
    uint64_t from = (uint64_t)i % ACCOUNTS, to = (from + 1) % ACCOUNTS, amount = 10 + (uint64_t)i;
    undo->from = from;
    undo->from_balance = pool->accounts[from].balance;
    undo->to = to;
    undo->to_balance = pool->accounts[to].balance;
    pm_compiler_barrier();
    undo->valid = 1;
    pm_persist(undo, sizeof *undo);
    pool->accounts[from].balance -= amount; /* @pay */
    pool->accounts[to].balance += amount; /* @receive */
#ifdef BUG
    invalidate(undo);
    persist_both(pool, from, to);
#else
    persist_both(pool, from, to);
    invalidate(undo);
#endif
    PM_ASSERT_ORDERED(&pool->accounts[from], sizeof(uint64_t), &undo->valid, sizeof undo->valid);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    bank_check(pool->accounts);
}

PM_MAIN(TRANSFERS)

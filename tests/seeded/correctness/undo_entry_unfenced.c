/* Transfers with a one-line undo record: accounts, old balances, and `valid`, stored last. A line survives as a prefix
 * of the stores to it, so a valid record is whole.
 *
 * Wrong: the record is written back but not fenced before the balances change in place. A changed balance may be
 * evicted while the record is not durable yet: after the crash half a transfer stands and nothing undoes it.
 * Right: a fence before the first change.
 *
 * check: none
 * assert: not-ordered @ record-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ record-store
 * needs: clflushopt
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

static void set(struct pool *pool, uint64_t account, uint64_t balance)
{
    pool->accounts[account].balance = balance;
    pm_flush(&pool->accounts[account], sizeof(struct account));
}

static void finish(struct undo *undo)
{
    pm_fence();
    undo->valid = 0;
    pm_persist(&undo->valid, sizeof undo->valid);
}

static void open_pool(struct pool *pool)
{
    struct undo *undo = &pool->undo;
    if (pool->magic != PM_MAGIC)
        bank_create(&pool->magic, pool->accounts);
    if (undo->valid) {
        set(pool, undo->from, undo->from_balance);
        set(pool, undo->to, undo->to_balance);
        finish(undo);
    }
}

static void operation(struct pool *pool, int i)
{
    struct undo *undo = &pool->undo;
    uint64_t from = (uint64_t)i % ACCOUNTS, to = (from + 1) % ACCOUNTS, amount = 10 + (uint64_t)i;
    undo->from = from; /* @record-store */
    undo->from_balance = pool->accounts[from].balance; /* @record-store */
    undo->to = to; /* @record-store */
    undo->to_balance = pool->accounts[to].balance; /* @record-store */
    pm_compiler_barrier();
    undo->valid = 1; /* @record-store */
    pm_flush(undo, sizeof *undo);
#ifndef BUG
    pm_fence();
#endif
    set(pool, from, pool->accounts[from].balance - amount);
    set(pool, to, pool->accounts[to].balance + amount);
    PM_ASSERT_ORDERED(undo, sizeof *undo, &pool->accounts[from], sizeof(uint64_t));
    finish(undo);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    bank_check(pool->accounts);
}

PM_MAIN(TRANSFERS)

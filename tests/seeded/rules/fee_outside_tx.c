/* Transfers between accounts, made atomic by an undo log. The bank keeps a fee of each.
 *
 * Wrong: the fee is booked after the commit, in place, with nothing to undo it. A crash after it was taken from the
 * account and before it reached the bank's own loses it.
 * Right: it is part of the transfer's transaction.
 *
 * The accounts are declared to change in transactions only, once creation and recovery are done with them.
 *
 * check: none
 * assert: store-outside-tx @ take-fee
 * assert: store-outside-tx @ keep-fee
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ book-fee
 */
#include "../bank.h"
#include "../undo.h"

enum { FEE = 1 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct undo_log log;
    struct account accounts[ACCOUNTS];
    struct account fees;
};

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC)
        bank_create(&pool->magic, pool->accounts);
    tx_recover(&pool->log);
    TX_NOTE(brownout_tx_only(pool->accounts, sizeof pool->accounts));
    TX_NOTE(brownout_tx_only(&pool->fees, sizeof pool->fees));
}

static void transfer(struct pool *pool, uint64_t *from, uint64_t *to, uint64_t amount, uint64_t fee)
{
    tx_log(&pool->log, from, sizeof *from);
    tx_log(&pool->log, to, sizeof *to);
    tx_set(from, *from - amount - fee);
    tx_set(to, *to + amount);
}

#ifdef BUG
static void book_fee(struct pool *pool, uint64_t *from)
{
    *from -= FEE; /* @take-fee */
    pm_persist(from, sizeof *from);
    pool->fees.balance += FEE; /* @keep-fee */
    pm_persist(&pool->fees, sizeof pool->fees);
}
#endif

static void operation(struct pool *pool, int i)
{
    uint64_t *from = &pool->accounts[i % ACCOUNTS].balance, *to = &pool->accounts[(i + 1) % ACCOUNTS].balance;
    uint64_t amount = 10 + (uint64_t)i;
    tx_begin(&pool->log);
#ifdef BUG
    transfer(pool, from, to, amount, 0);
    tx_commit(&pool->log);
    book_fee(pool, from); /* @book-fee */
#else
    tx_log(&pool->log, &pool->fees, sizeof pool->fees.balance);
    transfer(pool, from, to, amount, FEE);
    tx_set(&pool->fees.balance, pool->fees.balance + FEE);
    tx_commit(&pool->log);
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
    uint64_t sum = pool->fees.balance;
    for (int i = 0; i < ACCOUNTS; i++)
        sum += pool->accounts[i].balance;
    if (sum != ACCOUNTS * OPENING_BALANCE)
        pm_fail("the sum is %lu", sum);
    for (int i = 0; i < ACCOUNTS; i++)
        pm_print("account %d: %lu\n", i, pool->accounts[i].balance);
    pm_print("fees: %lu\n", pool->fees.balance);
}

PM_MAIN(TRANSFERS)

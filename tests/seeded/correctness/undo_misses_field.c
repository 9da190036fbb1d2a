/* Transfers between accounts, made atomic by an undo log.
 *
 * Wrong: the receiving account is changed without having been logged. A crash between its write-back and the commit
 * rolls the paying account back and not the receiving one: money appears.
 * Right: both are logged before either changes.
 *
 * check: none
 * assert: tx-unlogged-store @ receive
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ receive|commit
 */
#include "../bank.h"
#include "../undo.h"

struct pool {
    PM_ALIGNED uint64_t magic;
    struct undo_log log;
    struct account accounts[ACCOUNTS];
};

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC)
        bank_create(&pool->magic, pool->accounts);
    tx_recover(&pool->log);
}

static void operation(struct pool *pool, int i)
{
    uint64_t *from = &pool->accounts[i % ACCOUNTS].balance, *to = &pool->accounts[(i + 1) % ACCOUNTS].balance;
    uint64_t amount = 10 + (uint64_t)i;
    tx_begin(&pool->log);
    tx_log(&pool->log, from, sizeof *from);
#ifndef BUG
    tx_log(&pool->log, to, sizeof *to);
#endif
    tx_set(from, *from - amount);
    tx_set(to, *to + amount); /* @receive */
    tx_commit(&pool->log); /* @commit */
    pm_ack(i);
}

static void check(struct pool *pool)
{
    bank_check(pool->accounts);
}

PM_MAIN(TRANSFERS)

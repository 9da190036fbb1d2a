/* Transfers between accounts, made atomic by an undo log.
 *
 * Wrong: the paying account is logged after it was changed, so the log holds the new balance. A crash before the
 * commit "restores" that, while the receiving account is rolled back or not yet changed: money is gone.
 * Right: log, then change.
 *
 * check: none
 * assert: tx-unlogged-store @ pay
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ pay|backup|commit
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
    tx_log(&pool->log, to, sizeof *to);
#ifdef BUG
    tx_set(from, *from - amount); /* @pay */
    tx_log(&pool->log, from, sizeof *from); /* @backup */
#else
    tx_log(&pool->log, from, sizeof *from);
    tx_set(from, *from - amount);
#endif
    tx_set(to, *to + amount);
    tx_commit(&pool->log); /* @commit */
    pm_ack(i);
}

static void check(struct pool *pool)
{
    bank_check(pool->accounts);
}

PM_MAIN(TRANSFERS)

/* Transfers between accounts, made atomic by an undo log.
 *
 * Wrong: opening the pool does not run the recovery. After a crash between the two changes the log has what is needed,
 * and nobody looks at it.
 * Right: recovery before anything else.
 *
 * check: none
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ change
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
#ifndef BUG
    tx_recover(&pool->log);
#endif
}

static void operation(struct pool *pool, int i)
{
    uint64_t *from = &pool->accounts[i % ACCOUNTS].balance, *to = &pool->accounts[(i + 1) % ACCOUNTS].balance;
    uint64_t amount = 10 + (uint64_t)i;
    tx_begin(&pool->log);
    tx_log(&pool->log, from, sizeof *from);
    tx_log(&pool->log, to, sizeof *to);
    tx_set(from, *from - amount); /* @change */
    tx_set(to, *to + amount); /* @change */
    tx_commit(&pool->log);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    bank_check(pool->accounts);
}

PM_MAIN(TRANSFERS)

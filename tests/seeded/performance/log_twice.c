/* Transfers between accounts, made atomic by an undo log.
 *
 * Wasteful: paying and receiving each log what they need, and the accounts' shared counter of transfers is logged by
 * both.
 * Right: it is logged once.
 * Both are crash consistent: the older entry is restored last, and it holds the older value.
 *
 * assert: duplicate-log @ second-log
 * explore: no
 */
#include "../bank.h"
#include "../undo.h"

struct pool {
    PM_ALIGNED uint64_t magic;
    struct undo_log log;
    PM_ALIGNED uint64_t transfers;
    struct account accounts[ACCOUNTS];
};

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC)
        bank_create(&pool->magic, pool->accounts);
    tx_recover(&pool->log);
}

static void pay(struct pool *pool, uint64_t *from, uint64_t amount)
{
    tx_log(&pool->log, &pool->transfers, sizeof pool->transfers);
    tx_log(&pool->log, from, sizeof *from);
    tx_set(from, *from - amount);
}

static void receive(struct pool *pool, uint64_t *to, uint64_t amount)
{
#ifdef BUG
    tx_log(&pool->log, &pool->transfers, sizeof pool->transfers); /* @second-log */
#endif
    tx_log(&pool->log, to, sizeof *to);
    tx_set(to, *to + amount);
    tx_set(&pool->transfers, pool->transfers + 1);
}

static void operation(struct pool *pool, int i)
{
    uint64_t amount = 10 + (uint64_t)i;
    tx_begin(&pool->log);
    pay(pool, &pool->accounts[i % ACCOUNTS].balance, amount);
    receive(pool, &pool->accounts[(i + 1) % ACCOUNTS].balance, amount);
    tx_commit(&pool->log);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    bank_check(pool->accounts);
    pm_print("%lu transfers\n", pool->transfers);
}

PM_MAIN(TRANSFERS)

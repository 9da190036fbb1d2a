/* Accounts, and a history of what was moved between them; each transfer a transaction.
 *
 * case 1: backup, tx-unlogged-store @ pay
 * case 2: backup, tx-unlogged-store @ receive
 * case 3: backup, tx-unlogged-store @ pay
 * case 4: backup, tx-unlogged-store @ history
 * case 5: backup, tx-unlogged-store @ history
 * case 6: backup, tx-unlogged-store @ length
 * case 7: completion, tx-not-persisted @ history
 * case 8: completion, tx-not-persisted @ history-nt
 * case 9: completion, tx-not-persisted @ pay|receive|history|length
 * case 10: duplicate log, duplicate-log @ accounts-log
 *
 * 1: the paying account is not logged. 2: nor the receiving one. 3: the paying one is logged after the change. 4: the
 * entry of the history is not logged. 5: only the first half of it is. 6: the history's length is not logged. 7: the
 * commit writes back eight bytes of each range, and the entry lies in two lines. 8: the entry is stored past the
 * cache, after the commit's fence. 9: the fence stands before the write-back. 10: the paying account is logged on its
 * own after both were logged together.
 * needs: clflushopt
 */
#include "tx.h"

enum { ACCOUNTS = 3, TRANSFERS = 3, OPENING_BALANCE = 100 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct tx_log log;
    PM_ALIGNED uint64_t balances[ACCOUNTS];
    PM_ALIGNED uint64_t length;
    PM_ALIGNED uint64_t padding[4];
    uint64_t history[TRANSFERS][8]; /* 64 bytes that begin in the middle of a line */
};

static void open_pool(struct pool *pool)
{
    if (pool->magic != PM_MAGIC) {
        for (int i = 0; i < ACCOUNTS; i++)
            pool->balances[i] = OPENING_BALANCE;
        pm_persist(pool->balances, sizeof pool->balances);
        pm_create(&pool->magic);
    }
    tx_recover(&pool->log);
}

static void operation(struct pool *pool, int i)
{
    uint64_t *from = &pool->balances[i % ACCOUNTS], *to = &pool->balances[(i + 1) % ACCOUNTS];
    uint64_t amount = 10 + (uint64_t)i, *entry = pool->history[i];
    size_t entry_bytes = sizeof pool->history[i];
    tx_begin(&pool->log);
    if (BUGGY(10)) {
        tx_add(&pool->log, pool->balances, sizeof pool->balances);
        tx_add(&pool->log, from, sizeof *from); /* @accounts-log */
    } else {
        if (!BUGGY(1) && !BUGGY(3))
            tx_add(&pool->log, from, sizeof *from);
        if (!BUGGY(2))
            tx_add(&pool->log, to, sizeof *to);
    }
    *from -= amount; /* @pay */
    if (BUGGY(3))
        tx_add(&pool->log, from, sizeof *from);
    *to += amount; /* @receive */
    if (!BUGGY(4))
        tx_add(&pool->log, entry, BUGGY(5) ? entry_bytes / 2 : entry_bytes);
    for (uint64_t n = 0; !BUGGY(8) && n < 8; n++)
        entry[n] = amount + n; /* @history */
    if (!BUGGY(6))
        tx_add(&pool->log, &pool->length, sizeof pool->length);
    pool->length = (uint64_t)i + 1; /* @length */
    if (BUGGY(9))
        pm_fence();
    if (BUGGY(7)) {
        /* Each range begins a line of its own but the balances, which share one. */
        pm_flush(from, sizeof *from);
        pm_flush(entry, sizeof *entry);
        pm_flush(&pool->length, sizeof pool->length);
    } else {
        tx_write_back(TX_ALL);
    }
    if (!BUGGY(9))
        pm_fence();
    for (uint64_t n = 0; BUGGY(8) && n < 8; n++)
        pm_nt_store(&entry[n], amount + n); /* @history-nt */
    tx_end(&pool->log);
}

static void check(struct pool *pool)
{
    uint64_t sum = 0;
    for (int i = 0; i < ACCOUNTS; i++)
        sum += pool->balances[i];
    if (sum != ACCOUNTS * OPENING_BALANCE || pool->length > TRANSFERS)
        pm_fail("the sum is %lu", sum);
    for (uint64_t i = 0; i < pool->length; i++) {
        for (uint64_t n = 0; n < 8; n++)
            if (pool->history[i][n] != 10 + i + n)
                pm_fail("transfer %lu is damaged", i);
        pm_print("%lu moved\n", 10 + i);
    }
}

PM_CASES_MAIN(TRANSFERS)

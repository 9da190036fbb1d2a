/* Eight accounts with 100 each, and transfers between them under an undo log.
 *
 *     t FROM TO AMOUNT   transfer     p   print     q   end
 *
 * Wrong: repair empties the log before it restores what the log holds. If it is cut short itself, half a transfer stays, and nothing knows of it
 * any more: the sum is wrong.
 * Right: the log is emptied last, so that repair can be done again.
 *
 * seed: t 1 2 5, p
 * trigger: t 1 2 5 !12 | !1 | p
 * shows: exit
 */
#include "pm.h"

enum { ACCOUNTS = 8, START = 100 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t valid;
    PM_ALIGNED struct {
        uint64_t from, to, from_old, to_old;
    } log;
    struct {
        PM_ALIGNED uint64_t balance;
    } accounts[ACCOUNTS];
};

static void set_balance(struct pool *pool, uint64_t account, uint64_t balance)
{
    pool->accounts[account].balance = balance;
    pm_persist(&pool->accounts[account], sizeof pool->accounts[account]);
}

static void set_valid(struct pool *pool, uint64_t valid)
{
    pool->valid = valid;
    pm_persist(&pool->valid, sizeof pool->valid);
}

static void open_pool(struct pool *pool)
{
    if (pm_is_new(&pool->magic)) {
        for (uint64_t i = 0; i < ACCOUNTS; i++)
            set_balance(pool, i, START);
        pm_created(&pool->magic);
        return;
    }
    if (pool->valid) {
#ifdef BUG
        set_valid(pool, 0);
#endif
        set_balance(pool, pool->log.from, pool->log.from_old);
        set_balance(pool, pool->log.to, pool->log.to_old);
#ifndef BUG
        set_valid(pool, 0);
#endif
    }
    uint64_t sum = 0;
    for (int i = 0; i < ACCOUNTS; i++)
        sum += pool->accounts[i].balance;
    if (sum != ACCOUNTS * START)
        pm_fail("the accounts hold %lu", sum);
}

static void transfer(struct pool *pool, uint64_t from, uint64_t to, uint64_t amount)
{
    if (from == to || from >= ACCOUNTS || to >= ACCOUNTS || pool->accounts[from].balance < amount) {
        pm_print("no\n");
        return;
    }
    pool->log.from = from;
    pool->log.to = to;
    pool->log.from_old = pool->accounts[from].balance;
    pool->log.to_old = pool->accounts[to].balance;
    pm_persist(&pool->log, sizeof pool->log);
    set_valid(pool, 1);
    set_balance(pool, from, pool->log.from_old - amount);
    set_balance(pool, to, pool->log.to_old + amount);
    set_valid(pool, 0);
}

static void command(struct pool *pool, char letter, char *rest)
{
    uint64_t from, to, amount;
    if (letter == 'p') {
        for (int i = 0; i < ACCOUNTS; i++)
            pm_print("%d: %lu\n", i, pool->accounts[i].balance);
    } else if (letter == 't' && pm_number(&rest, &from) && pm_number(&rest, &to) && pm_number(&rest, &amount)) {
        transfer(pool, from, to, amount);
    } else {
        pm_print("?\n");
    }
}

PM_MAIN

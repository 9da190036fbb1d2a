/* Transfers with an intent record that holds the *amount*. Each account's word carries the number of the last transfer
 * applied to it beside the balance, so that an account changes and remembers why in one 8-byte store.
 *
 * Wrong: recovery completes an interrupted transfer, but stores the new balance without the transfer's number. If
 * recovery itself is interrupted after that and before the intent is cleared, the next one applies the amount again.
 * One crash is survived; two are not.
 * Right: recovery stores both, as the operation does, and skips accounts that have the number already.
 *
 * check: none
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ redo
 * crashes: 2
 */
#include "../pm.h"

enum { ACCOUNTS = 3, TRANSFERS = 3, OPENING_BALANCE = 100 };

struct intent {
    PM_ALIGNED uint64_t from;
    uint64_t to;
    uint64_t amount;
    uint64_t number; /* of the transfer, from 1; 0: none under way. Stored last. */
};

struct account {
    PM_ALIGNED uint64_t word; /* number of the last transfer << 32 | balance */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct intent intent;
    struct account accounts[ACCOUNTS];
};

static uint64_t balance(struct account *account)
{
    return account->word & 0xffffffff;
}

static void set(struct account *account, uint64_t number, uint64_t balance)
{
    account->word = number << 32 | balance;
    pm_persist(account, sizeof *account);
}

static void clear(struct intent *intent)
{
    intent->number = 0;
    pm_persist(intent, sizeof *intent);
}

static void complete(struct account *account, uint64_t number, uint64_t change)
{
    uint64_t last = account->word >> 32;
    if (last == number)
        return;
#ifdef BUG
    set(account, last, balance(account) + change);
#else
    set(account, number, balance(account) + change);
#endif
}

static void open_pool(struct pool *pool)
{
    struct intent *intent = &pool->intent;
    if (pool->magic != PM_MAGIC) {
        for (int i = 0; i < ACCOUNTS; i++)
            pool->accounts[i].word = OPENING_BALANCE;
        pm_persist(pool->accounts, sizeof pool->accounts);
        pm_create(&pool->magic);
    }
    if (intent->number) {
        complete(&pool->accounts[intent->from], intent->number, -intent->amount); /* @redo */
        complete(&pool->accounts[intent->to], intent->number, intent->amount); /* @redo */
        clear(intent); /* @redo */
    }
}

static void operation(struct pool *pool, int i)
{
    struct intent *intent = &pool->intent;
    uint64_t from = (uint64_t)i % ACCOUNTS, to = (from + 1) % ACCOUNTS, amount = 10 + (uint64_t)i;
    uint64_t number = (uint64_t)i + 1;
    intent->from = from;
    intent->to = to;
    intent->amount = amount;
    pm_compiler_barrier();
    intent->number = number;
    pm_persist(intent, sizeof *intent);
    set(&pool->accounts[from], number, balance(&pool->accounts[from]) - amount);
    set(&pool->accounts[to], number, balance(&pool->accounts[to]) + amount);
    clear(intent);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    uint64_t sum = 0;
    for (int i = 0; i < ACCOUNTS; i++)
        sum += balance(&pool->accounts[i]);
    if (sum != ACCOUNTS * OPENING_BALANCE)
        pm_fail("the sum is %lu", sum);
    for (int i = 0; i < ACCOUNTS; i++)
        pm_print("account %d: %lu\n", i, balance(&pool->accounts[i]));
}

PM_MAIN(TRANSFERS)

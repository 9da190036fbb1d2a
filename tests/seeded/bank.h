/* Accounts for the programs about logging: each in its own line, the sum never changes.
 *
 * Transfers are the same in all of them: i moves 10 + i from account i to account i + 1 (mod ACCOUNTS).
 */
#ifndef BANK_H
#define BANK_H

#include "pm.h"

enum { ACCOUNTS = 3, TRANSFERS = 3, OPENING_BALANCE = 100 };

struct account {
    PM_ALIGNED uint64_t balance;
};

/* Durable when it returns; may be cut short and repeated, since nothing is valid before the magic. */
static inline void bank_create(uint64_t *magic, struct account *accounts)
{
    for (int i = 0; i < ACCOUNTS; i++)
        accounts[i].balance = OPENING_BALANCE;
    pm_persist(accounts, ACCOUNTS * sizeof *accounts);
    pm_create(magic);
}

static inline void bank_check(const struct account *accounts)
{
    uint64_t sum = 0;
    for (int i = 0; i < ACCOUNTS; i++)
        sum += accounts[i].balance;
    if (sum != ACCOUNTS * OPENING_BALANCE)
        pm_fail("the sum is %lu", sum);
    for (int i = 0; i < ACCOUNTS; i++)
        pm_print("account %d: %lu\n", i, accounts[i].balance);
}

#endif

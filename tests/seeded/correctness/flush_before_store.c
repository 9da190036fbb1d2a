/* A table of accounts, one line each, and the number of accounts.
 *
 * Wrong: the account's line is written back before it is stored to. The write-back does nothing, the fence has nothing
 * to complete, and the number that is persisted next counts an account that is only in the cache.
 * Right: store, then write back, then fence.
 *
 * bug: missing-flush @ account-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ account-store
 */
#include "../pm.h"

enum { ACCOUNTS = 3 };

struct account {
    PM_ALIGNED uint64_t id;
    uint64_t balance;
    uint64_t check; /* of the two above */
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t count;
    struct account accounts[ACCOUNTS];
};

static struct account account(uint64_t id)
{
    uint64_t balance = 100 * id;
    return (struct account){.id = id, .balance = balance, .check = ~(id ^ balance)};
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct account *new = &pool->accounts[i];
#ifdef BUG
    pm_flush(new, sizeof *new);
#endif
    *new = account((uint64_t)i + 1); /* @account-store */
#ifndef BUG
    pm_flush(new, sizeof *new);
#endif
    pm_fence();
    pool->count = (uint64_t)i + 1;
    pm_persist(&pool->count, sizeof pool->count);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count > ACCOUNTS)
        pm_fail("%lu accounts", pool->count);
    for (uint64_t i = 0; i < pool->count; i++) {
        struct account *old = &pool->accounts[i];
        if (old->id != i + 1 || old->check != ~(old->id ^ old->balance))
            pm_fail("account %lu is damaged", i + 1);
        pm_print("account %lu: %lu\n", old->id, old->balance);
    }
}

PM_MAIN(ACCOUNTS)

/* Four threads move money between accounts by libpmemobj's transactions, under its locks, which lie in the pool.
 *
 * Clean: each transaction takes the locks of what it changes, and libpmemobj keeps them until the change is durable.
 * Its locks know which run they belong to, and are free in the next.
 *
 * clean
 * setup
 * libs: -lpmemobj
 */
#include <libpmemobj.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { ACCOUNTS = 4, THREADS = 4, TRANSFERS = 3, START = 100 };

struct account {
    PMEMmutex lock;
    uint64_t money;
    uint64_t transfers;
};

struct root {
    uint64_t made;
    struct account accounts[ACCOUNTS];
};

static PMEMobjpool *pool;
static struct root *root;

/* The account with the smaller number is locked first. */
static void transfer(int from, int to, uint64_t amount)
{
    struct account *payer = &root->accounts[from], *payee = &root->accounts[to];
    PMEMmutex *first = from < to ? &payer->lock : &payee->lock, *second = from < to ? &payee->lock : &payer->lock;
    TX_BEGIN_PARAM(pool, TX_PARAM_MUTEX, first, TX_PARAM_MUTEX, second, TX_PARAM_NONE)
    {
        pmemobj_tx_add_range_direct(&payer->money, 2 * sizeof(uint64_t));
        pmemobj_tx_add_range_direct(&payee->money, 2 * sizeof(uint64_t));
        payer->money -= amount;
        payee->money += amount;
        payer->transfers++;
        payee->transfers++;
    }
    TX_END
}

static void *payer(void *argument)
{
    int index = (int)(intptr_t)argument;
    for (int i = 0; i < TRANSFERS; i++)
        transfer(index, (index + 1 + i) % ACCOUNTS, 5);
    return NULL;
}

static int check(void)
{
    uint64_t money = 0, transfers = 0;
    for (int i = 0; i < ACCOUNTS; i++) {
        money += root->accounts[i].money;
        transfers += root->accounts[i].transfers;
    }
    if (root->made && (money != ACCOUNTS * START || transfers % 2 != 0)) {
        fprintf(stderr, "inconsistent: %lu after %lu transfers\n", money, transfers / 2);
        return 1;
    }
    printf("%lu transfers\n", transfers / 2);
    return 0;
}

static void make(void)
{
    TX_BEGIN(pool)
    {
        pmemobj_tx_add_range_direct(root, sizeof *root);
        for (int i = 0; i < ACCOUNTS; i++)
            root->accounts[i].money = START;
        root->made = 1;
    }
    TX_END
}

int main(int argc, char **argv)
{
    const char *mode = argc == 3 ? argv[2] : "";
    if (argc < 2 || argc > 3)
        return 2;
    pool = strcmp(mode, "create") == 0 ? NULL : pmemobj_open(argv[1], "race");
    if (!pool && strcmp(mode, "recover") != 0)
        pool = pmemobj_create(argv[1], "race", PMEMOBJ_MIN_POOL, 0600);
    if (!pool) {
        fprintf(stderr, "%s: %s\n", argv[1], pmemobj_errormsg());
        return 1;
    }
    PMEMoid oid = pmemobj_root(pool, sizeof *root);
    root = pmemobj_direct(oid);
    if (!root->made)
        make();
    int status = 0;
    if (argc == 2) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, payer, (void *)(intptr_t)i);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    } else if (strcmp(mode, "continue") == 0) {
        transfer(0, 1, 7);
        transfer(3, 2, 7);
    }
    if (argc == 3)
        status = check();
    pmemobj_close(pool);
    return status;
}

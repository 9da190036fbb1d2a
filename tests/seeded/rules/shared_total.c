/* Two tellers, each a thread with an undo log of its own. A deposit changes the teller's count and the common total.
 *
 * Wrong: the second teller's transaction runs while the first one's is open, and both log the total. The first one's
 * log holds the total from before both. If a crash comes when only the second has committed, recovery brings that total
 * back, and the second deposit is counted and not in the total.
 * Right: the second begins when the first has committed.
 *
 * They take turns by plain loads and stores, so each run is the same. A round is two deposits, one of each teller.
 *
 * check: none
 * assert: cross-tx-overlap @ log-total
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ overlap
 * flags: -pthread
 */
#include "../pm.h"
#include "../undo.h"
#include <pthread.h>
#include <sched.h>

enum { TELLERS = 2, ROUNDS = 3 };

struct teller {
    struct undo_log log;
    PM_ALIGNED uint64_t deposits;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t total;
    struct teller tellers[TELLERS];
};

static struct pool *shared;
static int first_ready, second_done; /* rounds */

static void pass_on(int *turn, int round)
{
    __atomic_store_n(turn, round, __ATOMIC_RELEASE);
}

static void wait_for(int *turn, int round)
{
    while (__atomic_load_n(turn, __ATOMIC_ACQUIRE) < round)
        sched_yield();
}

static void begin_deposit(struct pool *pool, struct teller *teller)
{
    tx_begin(&teller->log);
    tx_log(&teller->log, &pool->total, sizeof pool->total); /* @log-total */
    tx_log(&teller->log, &teller->deposits, sizeof teller->deposits);
    tx_set(&pool->total, pool->total + 1);
    tx_set(&teller->deposits, teller->deposits + 1);
}

static void *second_teller(void *unused)
{
    for (int i = 0; i < pm_job.operations; i++) {
        wait_for(&first_ready, i + 1);
        begin_deposit(shared, &shared->tellers[1]); /* @overlap */
        tx_commit(&shared->tellers[1].log); /* @overlap */
        pass_on(&second_done, i + 1);
    }
    return unused;
}

static void open_pool(struct pool *pool)
{
    pthread_t second;
    pm_create(&pool->magic);
    for (int i = 0; i < TELLERS; i++)
        tx_recover(&pool->tellers[i].log);
    shared = pool;
    if (!pm_job.check && pthread_create(&second, NULL, second_teller, NULL) != 0)
        _exit(2);
}

static void operation(struct pool *pool, int i)
{
    struct teller *first = &pool->tellers[0];
    begin_deposit(pool, first); /* @overlap */
#ifdef BUG
    pass_on(&first_ready, i + 1);
    wait_for(&second_done, i + 1);
    tx_commit(&first->log); /* @overlap */
#else
    tx_commit(&first->log);
    pass_on(&first_ready, i + 1);
    wait_for(&second_done, i + 1);
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
    uint64_t first = pool->tellers[0].deposits, second = pool->tellers[1].deposits;
    if (pool->total != first + second)
        pm_fail("%lu and %lu deposits, and a total of %lu", first, second, pool->total);
    pm_print("%lu rounds\n", first < second ? first : second);
}

PM_MAIN(ROUNDS)

/* Commands from standard input, a line each, which two threads take in turn. Whether anything is wrong depends on the commands.
 *
 *     p K   adds one to counter K
 *     a K   adds one to counter K, the fast way
 *     c K   writes a receipt for what counter K stands at
 *
 * Wrong: the fast way makes the counter durable after its lock is released; a receipt that comes in between may be for a number that
 * the counter has not reached after a crash. Commands `p` and `c` alone never show it.
 * Right: the counter is durable before its lock is released.
 */
#include "../race.h"

enum { KEYS = 16, COMMANDS = 64, THREADS = 2 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t counter;
        PM_ALIGNED uint64_t receipt;
    } keys[KEYS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t dispatching = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char name;
    unsigned key;
} commands[COMMANDS];
static int count, taken;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void perform(struct pool *pool, char name, unsigned key)
{
    if (name == 'p' || name == 'a') {
        pthread_mutex_lock(&lock);
        pool->keys[key].counter++; /* @store */
#ifdef BUG
        int late = name == 'a';
#else
        int late = 0;
#endif
        if (!late)
            pm_persist_it(pool->keys[key].counter);
        pthread_mutex_unlock(&lock);
        if (late)
            pm_persist_it(pool->keys[key].counter);
    } else if (name == 'c') {
        pthread_mutex_lock(&lock);
        uint64_t number = pool->keys[key].counter; /* @read */
        pthread_mutex_unlock(&lock);
        pool->keys[key].receipt = number; /* @effect */
        pm_persist_it(pool->keys[key].receipt);
    }
}

static void thread(struct pool *pool, int index)
{
    (void)index;
    for (;;) {
        pthread_mutex_lock(&dispatching);
        int mine = taken < count ? taken++ : -1;
        pthread_mutex_unlock(&dispatching);
        if (mine < 0)
            return;
        perform(pool, commands[mine].name, commands[mine].key);
    }
}

static void work(struct pool *pool)
{
    char line[64];
    while (count < COMMANDS && fgets(line, sizeof line, stdin))
        if (sscanf(line, "%c %u", &commands[count].name, &commands[count].key) == 2)
            commands[count++].key %= KEYS;
    pm_threads(pool, THREADS, thread);
}

static void more(struct pool *pool)
{
    perform(pool, 'p', 0);
}

static void check(struct pool *pool)
{
    for (int key = 0; key < KEYS; key++)
        if (pool->keys[key].receipt > pool->keys[key].counter)
            pm_fail("there is a receipt for %lu of key %d, which is at %lu", pool->keys[key].receipt, key, pool->keys[key].counter);
    for (int key = 0; key < KEYS; key++)
        if (pool->keys[key].counter)
            pm_print("%d: %lu\n", key, pool->keys[key].counter);
}

RACE_MAIN

// Threads, a heap and a pool, to be built with one of the compiler's sanitizers as well. A second argument asks for the mistake
// that a sanitizer reports.
// build: dynamic
// libs: -lpthread
// args: POOL
#include "pm_pool.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 200, POOL_SIZE = 1 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool pool;
static const char *mistake = "";
static long shared;
static long *volatile kept;

static int makes(const char *what)
{
    return strcmp(mistake, what) == 0;
}

static void *work(void *argument)
{
    long number = (long)argument;
    volatile long *own = (volatile long *)pool.base + 512 * (1 + number);
    for (long i = 0; i < ROUNDS; i++) {
        long *copy = malloc(sizeof *copy * (size_t)(1 + i % 50));
        copy[i % 50] = i;
        own[i] = copy[i % 50];
        free(copy);
        if (!makes("race"))
            pthread_mutex_lock(&lock);
        shared++;
        ((volatile long *)pool.base)[0]++;
        if (!makes("race"))
            pthread_mutex_unlock(&lock);
    }
    return argument;
}

int main(int argc, char **argv)
{
    pool = pool_create(argc, argv, POOL_SIZE);
    if (argc > 2)
        mistake = argv[2];
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    if (!makes("race")) {
        CHECK_EQ(shared, THREADS * ROUNDS);
        CHECK_EQ(*(long *)pool.base, THREADS * ROUNDS);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(((long *)pool.base)[512 * (1 + i) + ROUNDS - 1], ROUNDS - 1);
    kept = malloc(10 * sizeof *kept);
    if (makes("overflow"))
        kept[argc + 7] = 1;
    if (makes("leak"))
        kept = NULL;
    int big = 0x7fffffff;
    if (makes("undefined"))
        big += argc;
    free(kept);
    pool_check_file(pool);
    puts(big ? "ok" : "");
    return 0;
}

/* Threads take numbers from a file beside the pool, which is mapped, too, and of no interest after a crash: it is made anew each time. What they do with
 * a number becomes durable in the pool.
 *
 * Clean.
 */
#include "../race.h"

enum { THREADS = 2, NUMBERS = 5 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t number; /* 0: none */
    } notes[THREADS][NUMBERS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile uint64_t *beside;

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    int fd = open("numbers", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        _exit(2);
    beside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (beside == MAP_FAILED)
        _exit(2);
    close(fd);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < NUMBERS; i++) {
        pthread_mutex_lock(&lock);
        uint64_t number = ++*beside;
        pthread_mutex_unlock(&lock);
        pool->notes[index][i].number = number;
        pm_persist_it(pool->notes[index][i].number);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, THREADS, thread);
}

static void more(struct pool *pool)
{
    (void)pool;
}

static void check(struct pool *pool)
{
    for (int index = 0; index < THREADS; index++)
        for (int i = 0; i < NUMBERS; i++)
            pm_print("%lu ", pool->notes[index][i].number);
    pm_print("\n");
}

RACE_MAIN

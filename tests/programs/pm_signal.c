// Signals that interrupt stores to the pool, with handlers that store there themselves.
// build: dynamic
// args: POOL
#include "pm_pool.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static struct pool pool;
static volatile uint64_t *words;
static volatile int ticks;

static void on_tick(int sig)
{
    (void)sig;
    ticks++;
    words[512 + ticks % 512]++;             // plain
    __atomic_add_fetch(&words[1500], 1, __ATOMIC_SEQ_CST);
    memset(pool.base + 65536, ticks, 300);  // string or vector
    PM_CLWB(pool.base + 65536);
    PM_SFENCE();
}

int main(int argc, char **argv)
{
    pool = pool_create(argc, argv, 1 << 20);
    words = (volatile uint64_t *)pool.base;
    struct sigaction sa = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
    struct itimerval it = {{0, 200}, {0, 200}};
    CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
    uint64_t rounds = 0;
    double end = now_seconds() + 0.7;
    while (now_seconds() < end || ticks < 50) {
        for (int i = 0; i < 512; i++)
            words[i] = rounds + (uint64_t)i;
        unsigned char *to = pool.base + 131072;
        size_t count = 5000;
        __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"((int)rounds) : "memory");
        __atomic_add_fetch(&words[1501], 1, __ATOMIC_SEQ_CST);
        for (int i = 0; i < 512; i++)
            CHECK_EQ(words[i], rounds + (uint64_t)i);
        for (int i = 0; i < 5000; i += 499)
            CHECK_EQ(pool.base[131072 + i], rounds & 255);
        rounds++;
    }
    it = (struct itimerval){0};
    CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
    CHECK_EQ(words[1501], rounds);
    CHECK_EQ(words[1500], (uint64_t)ticks);
    uint64_t sum = 0;
    for (int i = 0; i < 512; i++)
        sum += words[512 + i];
    CHECK_EQ(sum, (uint64_t)ticks);
    pool_check_file(pool);
    printf("interrupted stores ok\n");
    return 0;
}

// Threads that store and load, in every way that the engine records differently, until `main` returns.
// build: dynamic static
// args: POOL
// flags: -pthread -fno-strict-aliasing
//
// `POOL HOW` ends otherwise: `exec` becomes another program in the middle, `kill` dies by SIGKILL, `abort` by SIGABRT, `thread` lets another
// thread end the process.
#include "pm_pool.h"
#include <pthread.h>
#include <signal.h>

enum { THREADS = 4 };
static unsigned char *base;

static void *worker(void *arg)
{
    uintptr_t id = (uintptr_t)arg;
    volatile uint64_t *own = (volatile uint64_t *)(base + 4096 * (id + 1));
    volatile uint64_t *common = (volatile uint64_t *)base;
    uint64_t seed = id + 1, sum = 0;
    unsigned char bytes[256];
    memset(bytes, (int)id, sizeof bytes);
    for (uint64_t i = 0;; i++) {
        uint64_t r = next_random(&seed);
        own[r % 64] = i;
        own[64 + r % 64] += i;              // read and written by one instruction
        sum += common[r % 64];
        common[r % 64] = sum;
        *(volatile uint32_t *)((volatile char *)own + 1024 + r % 61) = (uint32_t)r; // may cross words
        __atomic_fetch_add(&common[64 + r % 8], 1, __ATOMIC_RELAXED);
        if (i % 8 == 0) {
            void *to = (void *)(own + 256);
            void *from = bytes;
            uint64_t n = r % sizeof bytes;
            __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
            PM_CLWB(own);
            PM_SFENCE();
        }
    }
    return NULL;
}

static void *ends(void *arg)
{
    usleep(3000);
    exit(0);
    return arg;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "nothing") == 0)
        return 0;
    const char *how = argc > 2 ? argv[2] : "";
    struct pool pool = pool_create(argc, argv, 1 << 16);
    base = pool.base;
    for (uintptr_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, i == 0 && strcmp(how, "thread") == 0 ? ends : worker, (void *)i) == 0);
    }
    volatile uint64_t *own = (volatile uint64_t *)(base + 4096 * (THREADS + 1));
    for (uint64_t i = 0; i < 300; i++)
        own[i % 64] += i;
    if (strcmp(how, "exec") == 0)
        execl(argv[0], argv[0], "nothing", (char *)NULL);
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "thread") == 0)
        for (;;)
            pause();
    return 0;
}

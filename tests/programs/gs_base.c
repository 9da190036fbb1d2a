// A program that uses the GS register, as emulators of other systems do.
// build: dynamic static
// refused: GS
#include "harness.h"
#include <asm/prctl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/time.h>

static volatile int ticks;
static void on_tick(int sig)
{
    (void)sig;
    ticks++;
}

static uint64_t gs_read(long offset)
{
    uint64_t v;
    __asm__ volatile("mov %%gs:(%1),%0" : "=r"(v) : "r"(offset));
    return v;
}
static void gs_write(long offset, uint64_t v)
{
    __asm__ volatile("mov %1,%%gs:(%0)" ::"r"(offset), "r"(v) : "memory");
}

static void *use_gs(void *arg)
{
    uint64_t *block = calloc(512, 8);
    CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, block) == 0);
    uint64_t id = (uint64_t)(uintptr_t)arg, back;
    for (int i = 0; i < 20000; i++) {
        gs_write(i % 500 * 8, id * 1000 + (uint64_t)i);
        CHECK_EQ(gs_read(i % 500 * 8), id * 1000 + (uint64_t)i);
        CHECK_EQ(block[i % 500], id * 1000 + (uint64_t)i);
        __asm__ volatile("lock addq $1,%%gs:8(,%0,8)" ::"r"((long)(i % 400)) : "memory");
    }
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &back) == 0);
    CHECK_EQ(back, (uintptr_t)block);
    return NULL;
}

int main(void)
{
    struct sigaction sa = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, NULL);
    struct itimerval it = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &it, NULL);
    use_gs((void *)9);
    pthread_t t[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, use_gs, (void *)i) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    if (getauxval(AT_HWCAP2) & 2) { // wrgsbase usable from user mode
        uint64_t *block = calloc(64, 8), v;
        block[3] = 33;
        for (int i = 0; i < 1000; i++) {
            __asm__ volatile("wrgsbase %0" ::"r"(block));
            CHECK_EQ(gs_read(24), 33);
            __asm__ volatile("rdgsbase %0" : "=r"(v));
            CHECK_EQ(v, (uintptr_t)block);
        }
    }
    printf("gs ok\n");
    return 0;
}

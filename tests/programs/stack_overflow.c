// Deep recursion, large frames, and stack overflow caught on an alternate stack; in threads too.
// build: dynamic static
// flags: -Wno-infinite-recursion
#include "harness.h"
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>

static __thread sigjmp_buf out;
static __thread volatile int overflows;
static __thread uintptr_t last_fault;

static void on_overflow(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    last_fault = (uintptr_t)info->si_addr;
    overflows++;
    siglongjmp(out, 1);
}

__attribute__((noinline)) static long recurse(long n)
{
    volatile char frame[64];
    frame[n & 63] = (char)n;
    if (n == 0)
        return 0;
    return recurse(n - 1) + 1 + (frame[n & 63] - (char)n);
}

__attribute__((noinline)) static int runaway(volatile int *previous)
{
    volatile int here[40];
    here[0] = *previous + 1;
    return runaway(here) + here[0];
}

__attribute__((noinline)) static long big_frame(int depth)
{
    volatile char frame[700000];
    for (unsigned i = 0; i < sizeof frame; i += 4096)
        frame[i] = (char)depth;
    long sum = depth > 0 ? big_frame(depth - 1) : 0;
    for (unsigned i = 0; i < sizeof frame; i += 4096)
        sum += frame[i];
    return sum;
}

__attribute__((noinline)) static long big_alloca(size_t n)
{
    volatile char *p = alloca(n);
    for (size_t i = 0; i < n; i += 4096)
        p[i] = 1;
    p[n - 1] = 2;
    return p[0] + p[n - 1];
}

static void overflow_some(int times)
{
    stack_t ss = {.ss_sp = malloc(65536), .ss_size = 65536};
    CHECK(sigaltstack(&ss, NULL) == 0);
    for (int i = 0; i < times; i++) {
        volatile int zero = 0;
        if (sigsetjmp(out, 1) == 0)
            runaway(&zero);
    }
    CHECK_EQ(overflows, times);
    ss.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&ss, NULL) == 0);
    free(ss.ss_sp);
}

static void *in_thread(void *arg)
{
    (void)arg;
    overflow_some(5);
    CHECK_EQ(recurse(3000), 3000);
    return NULL;
}

int main(void)
{
    struct sigaction sa = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
    CHECK_EQ(recurse(40000), 40000);
    long sum = big_frame(7);
    CHECK_EQ(big_alloca(5000000), 3);
    overflow_some(5);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 1 << 20);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], &attr, in_thread, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    printf("stacks ok %ld\n", sum);
    return 0;
}

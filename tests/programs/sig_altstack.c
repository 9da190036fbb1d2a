// sigaltstack: handlers run on it when asked, report it, leave it, and may nest.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { STACK = 128 * 1024 };

struct probe {
    char *base;
    int on, off, nested;
};
static __thread struct probe probe;

static int inside(const void *p)
{
    return (const char *)p >= probe.base && (const char *)p < probe.base + STACK;
}

static void on_alt(int sig, siginfo_t *info, void *context)
{
    (void)info;
    ucontext_t *uc = context;
    char local;
    CHECK(inside(&local));
    CHECK(inside(context));
    CHECK(uc->uc_stack.ss_sp == probe.base);
    stack_t current;
    CHECK(sigaltstack(NULL, &current) == 0);
    CHECK_EQ(current.ss_flags & SS_ONSTACK, SS_ONSTACK);
    stack_t other = {.ss_sp = probe.base, .ss_size = STACK};
    CHECK(sigaltstack(&other, NULL) == -1 && errno == EPERM);
    probe.on++;
    if (sig == SIGUSR1) {
        raise(SIGUSR2);
        CHECK_EQ(probe.nested, 1);
    }
    if (sig == SIGUSR2)
        probe.nested++;
}

static void on_normal(int sig)
{
    char local;
    (void)sig;
    CHECK(!inside(&local));
    probe.off++;
}

static sigjmp_buf escape;
static void on_escape(int sig)
{
    char local;
    (void)sig;
    CHECK(inside(&local));
    siglongjmp(escape, 1);
}

static void *run(void *arg)
{
    (void)arg;
    memset(&probe, 0, sizeof probe);
    probe.base = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(probe.base != MAP_FAILED);
    stack_t ss = {.ss_sp = probe.base, .ss_size = STACK}, old;
    CHECK(sigaltstack(&ss, &old) == 0);
    for (int i = 0; i < 200; i++) {
        probe.nested = 0;
        raise(SIGUSR1);
        raise(SIGHUP);
    }
    CHECK_EQ(probe.on, 400);
    CHECK_EQ(probe.off, 200);
    stack_t now;
    CHECK(sigaltstack(NULL, &now) == 0);
    CHECK(now.ss_sp == probe.base && now.ss_size == STACK && now.ss_flags == 0);
    ss.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&ss, NULL) == 0);
    CHECK(sigaltstack(NULL, &now) == 0);
    CHECK_EQ(now.ss_flags, SS_DISABLE);
    stack_t tiny = {.ss_sp = probe.base, .ss_size = 64};
    CHECK(sigaltstack(&tiny, NULL) == -1 && errno == ENOMEM);
    munmap(probe.base, STACK);
    return NULL;
}

int main(void)
{
    struct sigaction alt = {.sa_sigaction = on_alt, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &alt, NULL) == 0);
    CHECK(sigaction(SIGUSR2, &alt, NULL) == 0);
    struct sigaction normal = {.sa_handler = on_normal};
    CHECK(sigaction(SIGHUP, &normal, NULL) == 0);
    run(NULL);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, run, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);

    // Leaving by siglongjmp frees the alternate stack for the next signal.
    memset(&probe, 0, sizeof probe);
    probe.base = malloc(STACK);
    stack_t ss = {.ss_sp = probe.base, .ss_size = STACK};
    CHECK(sigaltstack(&ss, NULL) == 0);
    struct sigaction esc = {.sa_handler = on_escape, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGSEGV, &esc, NULL) == 0);
    volatile int escapes = 0;
    for (int i = 0; i < 500; i++) {
        if (sigsetjmp(escape, 1) == 0)
            *(volatile int *)8 = 1;
        else
            escapes++;
    }
    CHECK_EQ(escapes, 500);
    printf("alternate stacks ok\n");
    return 0;
}

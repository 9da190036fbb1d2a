// Coroutines by swapcontext and by a bare stack switch; across threads too.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

enum { COROUTINES = 50, SWITCHES = 400, STACK = 65536 };
static ucontext_t main_context, contexts[COROUTINES];
static long sums[COROUTINES];
static int finished;

static void body(int id)
{
    volatile double d = id + 0.5;
    long local = id;
    for (int i = 0; i < SWITCHES; i++) {
        local = local * 3 + i;
        swapcontext(&contexts[id], &main_context);
        d += 1;
    }
    CHECK(d == id + 0.5 + SWITCHES);
    sums[id] = local;
    finished++;
}

// The smallest switch there is: push callee-saved, exchange stacks, pop, ret.
void bare_switch(void **save, void *load);
__asm__(".text\n.globl bare_switch\nbare_switch:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");

static __thread void *home_sp, *coroutine_sp;
static __thread long ping;
static void bare_body(void)
{
    for (;;) {
        ping++;
        bare_switch(&coroutine_sp, home_sp);
    }
}

static void *bare(void *arg)
{
    void **top = (void **)((char *)malloc(STACK) + STACK - 64);
    top = (void **)((uintptr_t)top & ~15UL);
    *--top = NULL; // keeps the entry aligned as after a call
    *--top = (void *)bare_body;
    top -= 6;
    memset(top, 0, 48);
    coroutine_sp = top;
    ping = 0;
    for (int i = 0; i < 50000; i++)
        bare_switch(&home_sp, coroutine_sp);
    CHECK_EQ(ping, 50000);
    return arg;
}

static volatile int entries;
int main(void)
{
    for (int i = 0; i < COROUTINES; i++) {
        CHECK(getcontext(&contexts[i]) == 0);
        contexts[i].uc_stack.ss_sp = malloc(STACK);
        contexts[i].uc_stack.ss_size = STACK;
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], (void (*)(void))body, 1, i);
    }
    for (int round = 0; round <= SWITCHES; round++)
        for (int i = 0; i < COROUTINES; i++)
            CHECK(swapcontext(&main_context, &contexts[i]) == 0);
    CHECK_EQ(finished, COROUTINES);
    long total = 0;
    for (int i = 0; i < COROUTINES; i++)
        total = total * 7 + sums[i];

    // getcontext returns again after setcontext, with the mask of its time.
    ucontext_t again;
    sigset_t usr1, now;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    CHECK(getcontext(&again) == 0);
    if (entries++ < 100) {
        sigprocmask(SIG_BLOCK, &usr1, NULL);
        setcontext(&again);
    }
    sigprocmask(SIG_SETMASK, NULL, &now);
    CHECK(sigismember(&now, SIGUSR1) == 0);
    CHECK_EQ(entries, 101);

    bare(NULL);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, bare, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    printf("coroutines %lx\n", total);
    return 0;
}

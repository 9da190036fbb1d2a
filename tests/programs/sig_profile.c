// A sampling profiler's view: asynchronous handlers see program addresses and a walkable stack.
// build: dynamic nopie
//
// The interrupted RIP must lie in the program or a library that the loader knows (or the vDSO),
// never in a tool's own code, and `backtrace` must reach `main`.
#include "harness.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <ucontext.h>

static uintptr_t text_from[256], text_to[256];
static int text_count;
static int collect(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X)) {
            text_from[text_count] = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            text_to[text_count] = text_from[text_count] + info->dlpi_phdr[i].p_memsz;
            text_count++;
        }
    return 0;
}

static volatile int samples;
int main(int argc, char **argv);
static uintptr_t main_from, main_to;

static void on_prof(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    uintptr_t rip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    int known = 0;
    for (int i = 0; i < text_count; i++)
        known |= rip >= text_from[i] && rip < text_to[i];
    if (!known)
        FAIL("sample %d: RIP %#lx is in no known module", samples, (unsigned long)rip);
    void *frames[64];
    int n = backtrace(frames, 64);
    int reached = 0;
    for (int i = 0; i < n; i++)
        reached |= (uintptr_t)frames[i] >= main_from && (uintptr_t)frames[i] <= main_to;
    if (!reached)
        FAIL("sample %d: stack of %d frames from %#lx does not reach main", samples, n, (unsigned long)rip);
    samples++;
}

__attribute__((noinline)) static uint64_t fib(unsigned n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}
static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

__attribute__((noinline)) int main(int argc, char **argv)
{
    (void)argv;
    main_from = (uintptr_t)main;
    main_to = main_from + 4096; // generous: main is far smaller
    uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
    void *warm[4];
    backtrace(warm, 4); // loads libgcc_s outside the handler
    dl_iterate_phdr(collect, NULL);
    text_from[text_count] = vdso;
    text_to[text_count++] = vdso + 16384;

    struct sigaction sa = {.sa_sigaction = on_prof, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    uint64_t sum = 0, s = 42;
    static uint64_t values[20000];
    double end = now_seconds() + 0.6;
    while (now_seconds() < end || samples < 50) {
        sum += fib(20);
        for (int i = 0; i < 20000; i++)
            values[i] = next_random(&s);
        qsort(values, 20000, sizeof *values, compare);
        char text[64];
        snprintf(text, sizeof text, "%f", (double)values[0]);
        sum += strlen(text);
    }
    timer = (struct itimerval){0};
    setitimer(ITIMER_REAL, &timer, NULL);
    printf("samples plausible\n");
    return sum == 0 && argc == 77;
}

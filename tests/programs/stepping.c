// What a signal that arrives in the middle of a block must not leave behind: a trap flag that pushf can see, a signal mask that is not
// the program's. The code is mapped twice and writable, so its blocks compare themselves with their source at every entry: that is
// where most of the time goes and most signals arrive.
// build: dynamic nopie
#include "harness.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#define TF 0x100UL
enum { CODE_LEN = 4096, FAR = 256 };

static volatile sig_atomic_t ticks;
static unsigned char *guarded;
static volatile unsigned long faults, masks_seen;

static void on_tick(int signal)
{
    (void)signal;
    ticks++;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    ucontext_t *uc = context;
    CHECK(info->si_addr == (void *)guarded);
    faults++;
    masks_seen |= *(unsigned long *)&uc->uc_sigmask;
    CHECK((uc->uc_mcontext.gregs[REG_EFL] & TF) == 0);
    mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
}

static unsigned long mask_now(void)
{
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    return *(unsigned long *)&set;
}

int main(void)
{
    int fd = memfd_create("code", 0);
    CHECK(fd >= 0 && ftruncate(fd, CODE_LEN) == 0);
    unsigned char *code = mmap(NULL, CODE_LEN, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED, fd, 0);
    guarded = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED && guarded != MAP_FAILED);

    // pushf; pop rax; nops, which make the comparison long; ret
    unsigned char *flags_of = code;
    memset(flags_of, 0x90, FAR);
    memcpy(flags_of, "\x9c\x58", 2);
    flags_of[60] = 0xc3;
    // pushfw; movzx eax, word [rsp]; add rsp, 2; nops; ret
    unsigned char *word_of = code + FAR;
    memset(word_of, 0x90, FAR);
    memcpy(word_of, "\x66\x9c\x0f\xb7\x04\x24\x48\x83\xc4\x02", 10);
    word_of[60] = 0xc3;
    // mov [rdi], al; nops; ret
    unsigned char *touch = code + 2 * FAR;
    memset(touch, 0x90, FAR);
    memcpy(touch, "\x88\x07", 2);
    touch[60] = 0xc3;

    struct sigaction tick = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &tick, NULL);
    sigaction(SIGSEGV, &fault, NULL);
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};

    setitimer(ITIMER_REAL, &often, NULL);
    unsigned long leaks = 0;
    while (ticks < 1500) {
        leaks += (((unsigned long (*)(void))flags_of)() & TF) != 0;
        leaks += (((unsigned long (*)(void))word_of)() & TF) != 0;
    }
    CHECK_EQ(leaks, 0);

    ticks = 0;
    while (ticks < 1500 && masks_seen == 0) {
        mprotect(guarded, 4096, PROT_READ);
        ((void (*)(void *))touch)(guarded);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(faults > 0);
    CHECK_EQ(masks_seen, 0);
    CHECK_EQ(mask_now(), 0);

    // A stack in a page of code: the push itself is what finds out that the page was written.
    unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    // mov rdx, rsp; lea rsp, [rip + 2048]; pushf; pop rax; mov rsp, rdx; ret
    static const unsigned char on_page[] = "\x48\x89\xe2\x48\x8d\x25\x00\x08\x00\x00\x9c\x58\x48\x89\xd4\xc3";
    for (int i = 0; i < 8; i++) {
        memcpy(page + 16 * i, on_page, sizeof on_page - 1);
        unsigned long flags = ((unsigned long (*)(void))(page + 16 * i))();
        CHECK((flags & TF) == 0);
    }
    puts("no flag, no mask");
    return 0;
}

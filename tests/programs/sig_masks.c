// What a program reads back is what it set: masks, handlers, flags; and what exec and fork keep.
// build: dynamic static
//
// SIGSEGV, SIGBUS and SIGTRAP get special attention because a tool needs them for itself.
#include "harness.h"
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

static void handler(int sig)
{
    (void)sig;
}
static void info_handler(int sig, siginfo_t *i, void *c)
{
    (void)sig;
    (void)i;
    (void)c;
}

static int wait_status(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void describe_self(void)
{
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int s = 1; s < 32; s++) {
        struct sigaction sa;
        sigaction(s, NULL, &sa);
        if (sigismember(&mask, s))
            printf(" blocked:%d", s);
        if (sa.sa_handler == SIG_IGN)
            printf(" ignored:%d", s);
        else if (sa.sa_handler != SIG_DFL)
            printf(" handled:%d", s);
    }
    sigset_t pending;
    sigpending(&pending);
    for (int s = 1; s < 32; s++)
        if (sigismember(&pending, s))
            printf(" pending:%d", s);
    printf("\n");
    fflush(stdout);
}

static void *thread_main(void *arg)
{
    (void)arg;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CHECK(sigismember(&mask, SIGSEGV) == 1 && sigismember(&mask, SIGTRAP) == 1);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "describe")) {
        describe_self();
        return 0;
    }
    // sigaction returns the previous action, field by field.
    for (int s = 1; s < 32; s++) {
        if (s == SIGKILL || s == SIGSTOP) {
            struct sigaction sa = {.sa_handler = handler};
            CHECK(sigaction(s, &sa, NULL) == -1 && errno == EINVAL);
            continue;
        }
        struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_NODEFER}, old, back;
        sigaddset(&a.sa_mask, SIGUSR2);
        sigaddset(&a.sa_mask, SIGSEGV);
        CHECK(sigaction(s, &a, &old) == 0);
        CHECK(old.sa_handler == SIG_DFL);
        struct sigaction b = {.sa_sigaction = info_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        CHECK(sigaction(s, &b, &back) == 0);
        CHECK(back.sa_handler == handler);
        CHECK_EQ(back.sa_flags & ~0x04000000, SA_RESTART | SA_NODEFER);
        CHECK(sigismember(&back.sa_mask, SIGUSR2) == 1 && sigismember(&back.sa_mask, SIGSEGV) == 1);
        CHECK(sigismember(&back.sa_mask, SIGUSR1) == 0);
        signal(s, SIG_DFL);
    }
    // The mask reads back whole, including what a tool must keep open underneath.
    sigset_t all, got;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &got) == 0);
    for (int s = 1; s < 32; s++)
        CHECK_EQ(sigismember(&got, s), s != SIGKILL && s != SIGSTOP);
    pthread_t t;
    CHECK(pthread_create(&t, NULL, thread_main, NULL) == 0);
    pthread_join(t, NULL);
    // A blocked SIGSEGV that is sent, not caused, stays pending.
    kill(getpid(), SIGSEGV);
    kill(getpid(), SIGTRAP);
    sigpending(&got);
    CHECK(sigismember(&got, SIGSEGV) == 1 && sigismember(&got, SIGTRAP) == 1);
    signal(SIGSEGV, SIG_IGN); // discards it
    signal(SIGTRAP, SIG_IGN);
    sigpending(&got);
    CHECK(sigismember(&got, SIGSEGV) == 0 && sigismember(&got, SIGTRAP) == 0);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);

    // fork keeps mask and handlers; exec keeps mask and ignored, drops handlers.
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGHUP);
    sigaddset(&some, SIGSEGV);
    sigaddset(&some, SIGBUS);
    sigaddset(&some, SIGTERM);
    CHECK(sigprocmask(SIG_SETMASK, &some, NULL) == 0);
    signal(SIGUSR1, handler);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGTRAP, SIG_IGN);
    pid_t child = fork();
    if (child == 0) {
        describe_self();
        _exit(0);
    }
    CHECK_EQ(wait_status(child), 0);
    child = fork();
    if (child == 0) {
        raise(SIGTERM); // pending across exec
        execl("/proc/self/exe", "sig_masks", "describe", (char *)NULL);
        _exit(99);
    }
    CHECK_EQ(wait_status(child), 0);
    // posix_spawn attributes.
    posix_spawnattr_t attr;
    posix_spawnattr_init(&attr);
    sigset_t none, def;
    sigemptyset(&none);
    sigemptyset(&def);
    sigaddset(&def, SIGUSR2);
    sigaddset(&none, SIGALRM);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &def);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char *args[] = {"sig_masks", "describe", NULL};
    extern char **environ;
    CHECK_EQ(posix_spawn(&child, "/proc/self/exe", NULL, &attr, args, environ), 0);
    CHECK_EQ(wait_status(child), 0);

    // Default actions end the process with exactly that signal.
    CHECK(sigprocmask(SIG_SETMASK, &(sigset_t){0}, NULL) == 0);
    static const int fatal[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGTRAP, SIGABRT,
                                SIGBUS,  SIGFPE,  SIGKILL, SIGSEGV, SIGPIPE, SIGALRM,
                                SIGTERM, SIGXCPU, SIGSYS,  SIGIO,   34,      64};
    for (unsigned i = 0; i < sizeof fatal / sizeof *fatal; i++) {
        child = fork();
        if (child == 0) {
            signal(fatal[i], SIG_DFL);
            kill(getpid(), fatal[i]);
            _exit(98);
        }
        int status = wait_status(child);
        CHECK(WIFSIGNALED(status));
        CHECK_EQ(WTERMSIG(status), fatal[i]);
    }
    // The same for real faults, blocked or ignored ones too: the kernel forces those.
    for (int how = 0; how < 3; how++) {
        child = fork();
        if (child == 0) {
            sigset_t segv;
            sigemptyset(&segv);
            sigaddset(&segv, SIGSEGV);
            signal(SIGSEGV, how == 1 ? SIG_IGN : SIG_DFL);
            if (how == 2)
                sigprocmask(SIG_BLOCK, &segv, NULL);
            *(volatile int *)12 = 0;
            _exit(97);
        }
        int status = wait_status(child);
        CHECK(WIFSIGNALED(status));
        CHECK_EQ(WTERMSIG(status), SIGSEGV);
    }
    // Stop and continue. The child waits to be told to end, lest its end hide that it went on.
    int end[2];
    CHECK(pipe(end) == 0);
    child = fork();
    if (child == 0) {
        char c;
        raise(SIGSTOP);
        _exit(read(end[0], &c, 1) == 1 ? 5 : 6);
    }
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    kill(child, SIGCONT);
    CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
    CHECK(write(end[1], "x", 1) == 1);
    CHECK_EQ(wait_status(child), 5 << 8);
    printf("masks and actions ok\n");
    return 0;
}

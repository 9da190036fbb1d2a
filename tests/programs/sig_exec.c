// Signals that come while a process is being replaced by execve are neither lost nor doubled: they reach the old program's handler or
// the new program. The mask and what waits behind it are inherited.
// build: dynamic static
#include "harness.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 60, LOST = 99 };

static int handled = -1;

static void handler(int sig)
{
    (void)sig;
    CHECK(write(handled, "h", 1) == 1);
}

static void delay(int round)
{
    // From none to 6 ms: before, during and behind execve.
    struct timespec t = {0, (round * 37 % ROUNDS) * 100000};
    nanosleep(&t, NULL);
}

// What the new program does.
static int after(const char *what)
{
    sigset_t set;
    if (strcmp(what, "waits") == 0) {
        // Long enough for any signal.
        struct timespec t = {5, 0};
        nanosleep(&t, NULL);
        return LOST;
    }
    CHECK(sigprocmask(SIG_SETMASK, NULL, &set) == 0);
    CHECK(sigismember(&set, SIGUSR2) == 1 && sigismember(&set, SIGSEGV) == 1);
    CHECK(sigismember(&set, SIGUSR1) == 0 && sigismember(&set, SIGTERM) == 0 && sigismember(&set, SIGCHLD) == 0);
    CHECK(sigpending(&set) == 0);
    CHECK(sigismember(&set, SIGUSR2) == 1 && sigismember(&set, SIGSEGV) == 1 && sigismember(&set, SIGTERM) == 0);
    return 0;
}

static pid_t start(char *self, char *what)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char *argv[] = {self, what, NULL};
        execv("/proc/self/exe", argv);
        _exit(98);
    }
    return pid;
}

int main(int argc, char **argv)
{
    int status;
    if (argc > 1)
        return after(argv[1]);
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = start(argv[0], "waits");
        delay(i);
        CHECK(kill(pid, SIGTERM) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
    puts("a signal ends the old program or the new one");
    for (int i = 0; i < ROUNDS; i++) {
        int ends[2];
        char byte;
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        handled = ends[1];
        // Before the fork, so that it is in force in the child from the beginning.
        CHECK(signal(SIGUSR1, handler) != SIG_ERR);
        pid_t pid = start(argv[0], "waits");
        CHECK(signal(SIGUSR1, SIG_DFL) != SIG_ERR);
        close(ends[1]);
        delay(i);
        CHECK(kill(pid, SIGUSR1) == 0);
        // Ends with the old program's descriptor.
        ssize_t n = read(ends[0], &byte, 1);
        close(ends[0]);
        if (n == 1)
            CHECK(kill(pid, SIGKILL) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == (n == 1 ? SIGKILL : SIGUSR1));
    }
    puts("a handler sees it, or the new program does");
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = start(argv[0], "waits");
        delay(i);
        CHECK(kill(pid, SIGSTOP) == 0);
        CHECK(waitpid(pid, &status, WUNTRACED) == pid);
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
        CHECK(kill(pid, SIGTERM) == 0);
        CHECK(kill(pid, SIGCONT) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
    puts("a stop is a stop");
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        sigaddset(&set, SIGSEGV);
        CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
        CHECK(raise(SIGUSR2) == 0 && raise(SIGSEGV) == 0);
        execl("/proc/self/exe", argv[0], "inherits", NULL);
        _exit(98);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
    puts("mask and waiting signals are inherited");
    return 0;
}

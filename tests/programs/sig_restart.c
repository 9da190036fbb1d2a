// Which system calls restart after a handler and which fail with EINTR.
// build: dynamic static
//
// A helper thread sends one signal while the main thread is known to be asleep inside the call
// (its /proc state), so nothing depends on the scheduler.
#include "harness.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>

static volatile int handled;
static void on_signal(int sig)
{
    (void)sig;
    handled++;
    errno = 12345; // a handler that spoils errno must not change what the call reports
}

static pid_t main_tid;
static int wake_fd = -1; // written after the signal, lets a restarted read finish

static char state_of_main(void)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", main_tid);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK(n > 0);
    text[n] = 0;
    return strrchr(text, ')')[2];
}

static volatile int armed;
static void *poker(void *arg)
{
    (void)arg;
    while (!armed)
        sched_yield();
    // Asleep twice in a row, a little apart: in the call under test, not in passing.
    for (int asleep = 0; asleep < 3;) {
        asleep = state_of_main() == 'S' ? asleep + 1 : 0;
        sleep_ms(5);
    }
    syscall(SYS_tgkill, getpid(), main_tid, SIGUSR1);
    while (!handled)
        sched_yield();
    sleep_ms(20);
    if (wake_fd >= 0)
        CHECK(write(wake_fd, "x", 1) == 1);
    return NULL;
}

static pthread_t thread;
static void begin(int flags, int fd)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = flags};
    CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
    handled = 0;
    armed = 0;
    wake_fd = fd;
    CHECK(pthread_create(&thread, NULL, poker, NULL) == 0);
    armed = 1;
}
static void end(const char *what, long result, int error)
{
    pthread_join(thread, NULL);
    CHECK_EQ(handled, 1);
    printf("%-28s %ld %s\n", what, result, result < 0 ? strerrorname_np(error) : "-");
}

#define TRY(what, flags, fd, call)                                                                 \
    do {                                                                                           \
        begin(flags, fd);                                                                          \
        errno = 0;                                                                                 \
        long r_ = (call);                                                                          \
        int e_ = errno;                                                                            \
        end(what, r_, e_);                                                                         \
    } while (0)

int main(void)
{
    main_tid = (pid_t)syscall(SYS_gettid);
    int p[2], s[2];
    char c;
    CHECK(pipe(p) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    TRY("read", 0, -1, read(p[0], &c, 1));
    TRY("read restart", SA_RESTART, p[1], read(p[0], &c, 1));
    TRY("recv", 0, -1, recv(s[0], &c, 1, 0));
    TRY("recv restart", SA_RESTART, s[1], recv(s[0], &c, 1, 0));
    struct pollfd pfd = {p[0], POLLIN, 0};
    TRY("poll", 0, -1, poll(&pfd, 1, -1));
    TRY("poll restart", SA_RESTART, -1, poll(&pfd, 1, -1));
    struct timespec long_time = {100, 0}, left = {0, 0};
    TRY("nanosleep", 0, -1, nanosleep(&long_time, &left));
    CHECK(left.tv_sec >= 98 && left.tv_sec < 100);
    left.tv_sec = 0;
    TRY("nanosleep restart", SA_RESTART, -1, nanosleep(&long_time, &left));
    CHECK(left.tv_sec >= 98 && left.tv_sec < 100);
    TRY("pause", SA_RESTART, -1, pause());
    int ep = epoll_create1(0);
    struct epoll_event ev;
    TRY("epoll_wait restart", SA_RESTART, -1, epoll_wait(ep, &ev, 1, -1));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(p[0], &set);
    TRY("select restart", SA_RESTART, -1, select(p[0] + 1, &set, NULL, NULL, NULL));
    static uint32_t word;
    TRY("futex", 0, -1, syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL));
    sem_t sem;
    sem_init(&sem, 0, 0);
    TRY("sem_wait", 0, -1, sem_wait(&sem));

    // wait4 restarts: the child exits only once told to.
    int go[2];
    CHECK(pipe(go) == 0);
    for (int restart = 0; restart < 2; restart++) {
        pid_t child = fork();
        if (child == 0) {
            char b;
            _exit(read(go[0], &b, 1) == 1 ? 7 : 8);
        }
        int status = 0;
        if (restart) {
            begin(SA_RESTART, go[1]);
            pid_t r = waitpid(child, &status, 0);
            end("waitpid restart", r == child, 0);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        } else {
            TRY("waitpid", 0, -1, waitpid(child, &status, 0));
            CHECK(write(go[1], "x", 1) == 1);
            CHECK(waitpid(child, &status, 0) == child);
        }
    }

    // An absolute or relative clock_nanosleep that restarts still ends at the right time.
    double start = now_seconds();
    struct timespec short_time = {0, 300000000};
    begin(SA_RESTART, -1);
    int r = clock_nanosleep(CLOCK_MONOTONIC, 0, &short_time, &left);
    end("clock_nanosleep", r, 0);
    CHECK(r == EINTR || now_seconds() - start >= 0.3);
    return 0;
}

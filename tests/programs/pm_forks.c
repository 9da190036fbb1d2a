// Children that store when their parents are gone, have unmapped the pool, or have become another program.
// build: dynamic
// args: POOL
// flags: -pthread
//
// `POOL KIND ROUNDS` does one kind only, more often. Every child stores once, to a place of its own, and the program waits until it sees that.
#include "pm_pool.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

enum { KINDS = 11, ROUNDS_MAX = 400, THREADS = 2 };
struct layout {
    volatile uint64_t done[KINDS][ROUNDS_MAX];
    volatile uint64_t racing[THREADS][8];
};
static struct layout *shared;
static struct pool pool;
static char *own_name;

__attribute__((noreturn)) static void child_stores(int kind, int round)
{
    shared->done[kind][round] = 1 + (uint64_t)round;
    _exit(0);
}

static long plain_clone(unsigned long flags)
{
    return syscall(SYS_clone, flags, 0, 0, 0, 0);
}

struct place { int kind, round; };

static int in_shared_memory(void *arg)
{
    struct place *place = arg;
    // The parent ends first: then this is all that is left of it.
    while (getppid() == (int)place[1].kind)
        sched_yield();
    shared->done[place->kind][place->round] = 1 + (uint64_t)place->round;
    syscall(SYS_exit_group, 0);
    return 0;
}

static void *racing(void *arg)
{
    volatile uint64_t *own = shared->racing[(uintptr_t)arg];
    for (uint64_t i = 0;; i++)
        own[i % 8] = i;
    return NULL;
}

static void start_racing(void)
{
    for (uintptr_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, racing, (void *)i) == 0);
    }
}

__attribute__((noreturn)) static void become_another(void)
{
    execl(own_name, own_name, "nothing", (char *)NULL);
    _exit(9);
}

static void parent(int kind, int round)
{
    pid_t pid;
    switch (kind) {
    case 0: // a daemon
        if (fork() == 0)
            child_stores(kind, round);
        _exit(0);
    case 1: // the parent unmaps
        if (fork() == 0)
            child_stores(kind, round);
        CHECK(munmap(pool.base, pool.size) == 0);
        _exit(0);
    case 2: // the parent becomes another program
        if (fork() == 0)
            child_stores(kind, round);
        become_another();
    case 3: // a second fork in between, and a session of its own
        if (fork() == 0) {
            setsid();
            if (fork() == 0)
                child_stores(kind, round);
        }
        _exit(0);
    case 4: // a child of its grandparent
        pid = (pid_t)plain_clone(CLONE_PARENT | SIGCHLD);
        CHECK(pid >= 0);
        if (pid == 0)
            child_stores(kind, round);
        _exit(0);
    case 5: // a fork that fails changes nothing
        CHECK(plain_clone(CLONE_SIGHAND | SIGCHLD) == -1);
        child_stores(kind, round);
    case 6: // a child in its parent's memory that ends, or fails to become another, does not end its parent
        pid = vfork();
        if (pid == 0) {
            if (round % 2)
                execl("/nonexistent", "nonexistent", (char *)NULL);
            _exit(1);
        }
        CHECK(pid > 0);
        child_stores(kind, round);
    case 7: { // a process in its parent's memory that outlives it
        struct place *place = malloc(2 * sizeof *place);
        char *stack = malloc(65536);
        place[0] = (struct place){kind, round};
        place[1].kind = getpid();
        CHECK(clone(in_shared_memory, stack + 65536, CLONE_VM | SIGCHLD, place) > 0);
        syscall(SYS_exit_group, 0);
        _exit(0);
    }
    case 8: // the parent ends while other threads of it store
        start_racing();
        if (fork() == 0)
            child_stores(kind, round);
        exit(0);
    case 9: // the parent becomes another program while other threads of it store
        start_racing();
        if (fork() == 0)
            child_stores(kind, round);
        usleep(100);
        become_another();
    case 10: // the parent dies by its own hand while other threads of it store
        start_racing();
        if (fork() == 0)
            child_stores(kind, round);
        signal(SIGSEGV, SIG_DFL);
        __asm__ volatile("movl $0,8" : : : "memory");
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "nothing") == 0)
        return 0;
    own_name = argv[0];
    pool = pool_create(argc, argv, 1 << 16);
    shared = (struct layout *)pool.base;
    int first = argc > 2 ? atoi(argv[2]) : 0;
    int last = argc > 2 ? first + 1 : KINDS;
    int rounds = argc > 3 ? atoi(argv[3]) : 12;
    for (int kind = first; kind < last; kind++) {
        for (int round = 0; round < rounds; round++) {
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0)
                parent(kind, round);
            int status;
            CHECK_EQ(waitpid(pid, &status, 0), pid);
            CHECK(kind == 10 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
            double until = now_seconds() + 60;
            while (shared->done[kind][round] == 0) {
                if (now_seconds() > until)
                    FAIL("the child of kind %d, round %d, has not stored", kind, round);
                // Whoever spins here takes the processor from those that it waits for.
                usleep(100);
            }
            if (kind == 4)
                CHECK(waitpid(-1, &status, 0) > 0);
        }
    }
    puts("every child has stored");
    return 0;
}

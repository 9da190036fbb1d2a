// A process whose parent has ended is not told that whatever started this program is its parent now: it is the first process of the
// machine, or another that natively looks after orphans. So it cannot harm the tool by its number either.
// build: dynamic static
#include "harness.h"
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

// In the orphan, once it is one: before and behind execve, and in a child of its own.
static void look(pid_t starter)
{
    pid_t own = getpid();
    CHECK(getppid() != starter);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(getppid() == own);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    int ends[2], status;
    if (argc > 2) {
        look(atoi(argv[1]));
        CHECK(write(atoi(argv[2]), "x", 1) == 1);
        return 0;
    }
    pid_t first = getpid(), starter = getppid();
    CHECK(starter > 0);
    CHECK(pipe(ends) == 0);
    pid_t middle = fork();
    CHECK(middle >= 0);
    if (middle == 0) {
        pid_t own = getpid();
        CHECK(getppid() == first);
        pid_t orphan = fork();
        CHECK(orphan >= 0);
        if (orphan == 0) {
            while (getppid() == own)
                poll(NULL, 0, 1);
            look(starter);
            char parent[32], end[32];
            snprintf(parent, sizeof parent, "%d", starter);
            snprintf(end, sizeof end, "%d", ends[1]);
            execl("/proc/self/exe", argv[0], parent, end, NULL);
            _exit(98);
        }
        _exit(0);
    }
    CHECK(waitpid(middle, &status, 0) == middle && status == 0);
    close(ends[1]);
    char byte = 0;
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
    CHECK(getppid() == starter);
    puts("ok");
    return 0;
}

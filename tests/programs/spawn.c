// vfork, posix_spawn, system, popen: results, errors, descriptors, environment.
// build: dynamic static
#include "harness.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char **environ;

static int wait_for(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        const char *v = getenv("SPAWN_TEST");
        printf("child %s %s\n", argv[1], v ? v : "-");
        return atoi(argv[1]);
    }
    setenv("SPAWN_TEST", "value", 1);
    // vfork: the child's stores are seen here, as the parent waits.
    for (int i = 0; i < 20; i++) {
        fflush(stdout);
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        pid_t pid = vfork();
        if (pid == 0) {
            execl("/proc/self/exe", "spawn", number, (char *)NULL);
            _exit(127);
        }
        CHECK_EQ(WEXITSTATUS(wait_for(pid)), i);
    }
    // A failing exec after vfork.
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/nonexistent/program", "x", (char *)NULL);
        _exit(errno == ENOENT ? 33 : 34);
    }
    CHECK_EQ(WEXITSTATUS(wait_for(pid)), 33);

    char *args[] = {"spawn", "7", NULL};
    CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ), 0);
    CHECK_EQ(WEXITSTATUS(wait_for(pid)), 7);
    char *empty_env[] = {NULL};
    CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, empty_env), 0);
    CHECK_EQ(WEXITSTATUS(wait_for(pid)), 7);
    // Errors are reported by the call itself, with the right number.
    CHECK_EQ(posix_spawn(&pid, "/nonexistent/program", NULL, NULL, args, environ), ENOENT);
    CHECK_EQ(posix_spawn(&pid, "/etc", NULL, NULL, args, environ), EACCES);
    CHECK_EQ(posix_spawn(&pid, "/etc/passwd", NULL, NULL, args, environ), EACCES);
    char junk[] = "/tmp/spawn.XXXXXX";
    int fd = mkstemp(junk);
    CHECK(write(fd, "\1\2\3junk", 7) == 7);
    CHECK(fchmod(fd, 0700) == 0);
    close(fd);
    CHECK_EQ(posix_spawn(&pid, junk, NULL, NULL, args, environ), ENOEXEC);
    unlink(junk);
    CHECK_EQ(posix_spawnp(&pid, "no-such-command-anywhere", NULL, NULL, args, environ), ENOENT);
    CHECK_EQ(waitpid(-1, NULL, 0), -1); // and no child is left behind
    CHECK_EQ(errno, ECHILD);

    // File actions.
    int p[2];
    CHECK(pipe2(p, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, p[1], 1);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    args[1] = "11";
    CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", &fa, NULL, args, environ), 0);
    close(p[1]);
    char text[100] = {0};
    CHECK(read(p[0], text, 99) > 0);
    CHECK(!strcmp(text, "child 11 value\n"));
    CHECK_EQ(WEXITSTATUS(wait_for(pid)), 11);

    CHECK_EQ(WEXITSTATUS(system("exit 3")), 3);
    CHECK_EQ(WTERMSIG(system("kill -9 $$")), 9);
    FILE *f = popen("echo $((6*7)); exit 4", "r");
    CHECK(fgets(text, sizeof text, f) && !strcmp(text, "42\n"));
    CHECK_EQ(WEXITSTATUS(pclose(f)), 4);
    printf("spawning ok\n");
    return 0;
}

// exec in all its forms: itself again and again, from a thread, by descriptor, through scripts.
// build: dynamic static nopie
#include "harness.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char **environ;

static void *exec_from_thread(void *arg)
{
    char **argv = arg;
    execv("/proc/self/exe", argv);
    _exit(99);
}

static void run_step(int left, char *self)
{
    char number[16], env[64];
    snprintf(number, sizeof number, "%d", left - 1);
    snprintf(env, sizeof env, "STEP=%d", left);
    char *argv[] = {"exec_chain", "step", number, self, NULL};
    char *envp[] = {env, "KEEP=yes", NULL};
    switch (left % 4) {
    case 0:
        execve("/proc/self/exe", argv, envp);
        break;
    case 1: {
        int fd = open(self, O_RDONLY | O_CLOEXEC);
        fexecve(fd, argv, envp);
        break;
    }
    case 2: {
        pthread_t t;
        environ = envp;
        pthread_create(&t, NULL, exec_from_thread, argv);
        pthread_join(t, NULL);
        break;
    }
    default:
        execve(self, argv, envp);
    }
    FAIL("exec failed: %s", strerror(errno));
}

static void make_script(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0700);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

int main(int argc, char **argv)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0);
    self[n] = 0;
    if (argc >= 4 && !strcmp(argv[1], "step")) {
        int left = atoi(argv[2]);
        char expect[32];
        snprintf(expect, sizeof expect, "%d", left + 1);
        CHECK(getenv("STEP") && !strcmp(getenv("STEP"), expect));
        CHECK(getenv("KEEP") && !strcmp(getenv("KEEP"), "yes"));
        CHECK(!strcmp(self, argv[3]));
        CHECK(fcntl(100, F_GETFD) == -1); // closed on exec
        CHECK(fcntl(101, F_GETFD) == 0);  // kept
        if (left == 0)
            return 42;
        run_step(left, argv[3]);
    }
    if (argc >= 2 && !strcmp(argv[1], "args")) {
        for (int i = 2; i < argc; i++)
            // The folder's name is random.
            printf("[%s]", strchr(argv[i], '/') ? strrchr(argv[i], '/') : argv[i]);
        printf("\n");
        return 5;
    }
    if (argc >= 2 && !strcmp(argv[1], "many")) {
        char expect[40];
        CHECK_EQ(argc, 2999);
        for (int i = 2; i < argc; i++) {
            snprintf(expect, 40, "argument-number-%d", i);
            CHECK(!strcmp(argv[i], expect));
        }
        return 6;
    }
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(dup2(1, 101) == 101);
        CHECK(dup3(1, 100, O_CLOEXEC) == 100);
        run_step(25, self);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 42);

    // Scripts: #! with an argument, a script as the interpreter of a script, no newline, missing.
    char dir[] = "/tmp/exec_chain.XXXXXX", one[64], two[64], bad[64], text[5000];
    CHECK(mkdtemp(dir));
    snprintf(one, sizeof one, "%s/one", dir);
    snprintf(two, sizeof two, "%s/two", dir);
    snprintf(bad, sizeof bad, "%s/bad", dir);
    snprintf(text, sizeof text, "#!%s args\n", self);
    make_script(one, text);
    snprintf(text, sizeof text, "#!%s second level\n", one);
    make_script(two, text);
    make_script(bad, "#!/nonexistent/interpreter\n");
    const char *scripts[] = {one, two};
    for (int i = 0; i < 2; i++) {
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            execl(scripts[i], "ignored-name", "a", "b c", "", "last", (char *)NULL);
            _exit(98);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 5 << 8);
    }
    CHECK(execl(bad, bad, (char *)NULL) == -1 && errno == ENOENT);
    unlink(one);
    unlink(two);
    unlink(bad);
    rmdir(dir);
    // Long argument lists and environments arrive whole.
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        static char *many[3000];
        static char words[3000][40];
        many[0] = "exec_chain";
        many[1] = "many";
        for (int i = 2; i < 2999; i++) {
            snprintf(words[i], 40, "argument-number-%d", i);
            many[i] = words[i];
        }
        execv("/proc/self/exe", many);
        _exit(97);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 6 << 8);
    printf("exec ok\n");
    return 0;
}

// Robust mutexes: the owner dies (thread or process) and the next locker is told.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static pthread_mutex_t *m;
static void *dies_holding(void *arg)
{
    CHECK(pthread_mutex_lock(m) == 0);
    return arg;
}

int main(void)
{
    m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(m != MAP_FAILED);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_mutex_init(m, &attr) == 0);
    for (int i = 0; i < 100; i++) {
        pthread_t t;
        CHECK(pthread_create(&t, NULL, dies_holding, NULL) == 0);
        pthread_join(t, NULL);
        CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
        CHECK_EQ(pthread_mutex_consistent(m), 0);
        CHECK_EQ(pthread_mutex_unlock(m), 0);
    }
    for (int i = 0; i < 30; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            pthread_mutex_lock(m);
            if (i % 3 == 0)
                raise(SIGKILL);
            if (i % 3 == 1)
                *(volatile int *)4 = 1;
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(i % 3 == 2 ? WEXITSTATUS(status) : WTERMSIG(status), i % 3 == 0 ? SIGKILL : i % 3 == 1 ? SIGSEGV : 0);
        CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
        CHECK_EQ(pthread_mutex_consistent(m), 0);
        CHECK_EQ(pthread_mutex_unlock(m), 0);
    }
    printf("robust ok\n");
    return 0;
}

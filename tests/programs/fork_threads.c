// fork from several threads at once: children have one thread, working locks, their own memory.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <sys/wait.h>

static volatile int prepares, parents, children;
static void on_prepare(void) { __atomic_add_fetch(&prepares, 1, __ATOMIC_SEQ_CST); }
static void on_parent(void) { __atomic_add_fetch(&parents, 1, __ATOMIC_SEQ_CST); }
static void on_child(void) { children++; }

static __thread int tls_value;
static volatile int shared_counter;

static void *forker(void *arg)
{
    int id = (int)(intptr_t)arg;
    tls_value = id;
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            // The child: same thread-local value, no other threads, malloc and stdio usable,
            // threads can be started again.
            if (tls_value != id || children != 1)
                _exit(100);
            char *p = malloc(100000);
            memset(p, id, 100000);
            int status = p[99999];
            free(p);
            shared_counter += 1000;
            pid_t grandchild = fork();
            if (grandchild == 0)
                _exit(id + 1);
            int st;
            if (waitpid(grandchild, &st, 0) != grandchild || WEXITSTATUS(st) != id + 1)
                _exit(101);
            _exit(status);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), id);
        __atomic_add_fetch(&shared_counter, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void *noise(void *arg)
{
    volatile int *stop = arg;
    while (!*stop)
        free(malloc(1 + (size_t)(rand() % 2000)));
    return NULL;
}
static void *child_thread(void *arg)
{
    *(int *)arg += 5;
    return NULL;
}

int main(void)
{
    pthread_atfork(on_prepare, on_parent, on_child);
    volatile int stop = 0;
    pthread_t t[8], n[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&n[i], NULL, noise, (void *)&stop) == 0);
    for (intptr_t i = 0; i < 8; i++)
        CHECK(pthread_create(&t[i], NULL, forker, (void *)(i + 1)) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(n[i], NULL);
    CHECK_EQ(shared_counter, 96);
    CHECK_EQ(prepares, 96);
    CHECK_EQ(parents, 96);
    CHECK_EQ(children, 0);
    // A forked child may start threads.
    pid_t child = fork();
    if (child == 0) {
        int value = 1;
        pthread_t c;
        for (int i = 0; i < 10; i++) {
            CHECK(pthread_create(&c, NULL, child_thread, &value) == 0);
            pthread_join(c, NULL);
        }
        exit(value);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQ(WEXITSTATUS(status), 51);
    printf("forks ok\n");
    return 0;
}

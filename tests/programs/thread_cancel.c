// Thread cancellation: deferred at cancellation points, asynchronous in a tight loop, cleanup
// handlers in order, cancellation disabled.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

static int cleanups;
static void cleanup(void *arg)
{
    CHECK_EQ((intptr_t)arg, 2 - cleanups % 3);
    cleanups++;
}

static void *deferred(void *arg)
{
    int *fd = arg;
    char c;
    pthread_cleanup_push(cleanup, (void *)0);
    pthread_cleanup_push(cleanup, (void *)1);
    pthread_cleanup_push(cleanup, (void *)2);
    for (;;)
        if (read(fd[0], &c, 1) != 1)
            break;
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static volatile int spinning;
static volatile uint64_t spins;
static void *asynchronous(void *arg)
{
    (void)arg;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    spinning = 1;
    for (;;)
        spins++;
    return NULL;
}

static sem_t ready, go;
static volatile int past_disabled;
static void *disabled(void *arg)
{
    (void)arg;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    sem_post(&ready);
    while (sem_wait(&go) != 0)
        ;
    sleep_ms(1); // a cancellation point, but disabled
    past_disabled++;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_testcancel();
    past_disabled += 1000;
    return NULL;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static void unlock(void *arg)
{
    pthread_mutex_unlock(arg);
}
static void *in_cond_wait(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(unlock, &mutex);
    sem_post(&ready);
    for (;;)
        pthread_cond_wait(&cond, &mutex);
    pthread_cleanup_pop(1);
    return NULL;
}

int main(void)
{
    void *result;
    pthread_t t;
    int fd[2];
    CHECK(pipe(fd) == 0);
    sem_init(&ready, 0, 0);
    sem_init(&go, 0, 0);
    for (int i = 0; i < 50; i++) {
        CHECK(pthread_create(&t, NULL, deferred, fd) == 0);
        if (i % 2)
            sleep_ms(1);
        while (write(fd[1], "x", 1) != 1)
            ;
        CHECK(pthread_cancel(t) == 0);
        CHECK(pthread_join(t, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    // A thread cancelled before it started reading has run no cleanup; the others all three.
    CHECK_EQ(cleanups % 3, 0);
    for (int i = 0; i < 50; i++) {
        spinning = 0;
        CHECK(pthread_create(&t, NULL, asynchronous, NULL) == 0);
        while (!spinning)
            sched_yield();
        CHECK(pthread_cancel(t) == 0);
        CHECK(pthread_join(t, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    for (int i = 1; i <= 20; i++) {
        CHECK(pthread_create(&t, NULL, disabled, NULL) == 0);
        while (sem_wait(&ready) != 0)
            ;
        CHECK(pthread_cancel(t) == 0);
        sem_post(&go);
        CHECK(pthread_join(t, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
        CHECK_EQ(past_disabled, i);
    }
    for (int i = 0; i < 20; i++) {
        CHECK(pthread_create(&t, NULL, in_cond_wait, NULL) == 0);
        while (sem_wait(&ready) != 0)
            ;
        CHECK(pthread_cancel(t) == 0);
        CHECK(pthread_join(t, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
        CHECK(pthread_mutex_trylock(&mutex) == 0);
        pthread_mutex_unlock(&mutex);
    }
    printf("cancellation ok\n");
    return 0;
}

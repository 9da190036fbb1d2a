// 64 threads over every pthread primitive, thread-local storage included.
// build: dynamic static
#include "harness.h"
#include <pthread.h>
#include <semaphore.h>

enum { THREADS = 64, ROUNDS = 30 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t sem;
static int once_runs, turn, locked_sum, spin_sum, serials;
static long rw_value;
static _Atomic long atomic_sum;
static __thread long tls_a = 7;
static __thread char tls_b[100];
static pthread_key_t key;
static _Atomic int destroyed;

static void run_once(void) { once_runs++; }
static void destroy(void *p)
{
    destroyed++;
    free(p);
}

static void *worker(void *arg)
{
    int id = (int)(intptr_t)arg;
    CHECK_EQ(tls_a, 7);
    tls_a = id;
    memset(tls_b, id, sizeof tls_b);
    int *own = malloc(sizeof *own);
    *own = id;
    pthread_setspecific(key, own);
    pthread_once(&once, run_once);
    for (int r = 0; r < ROUNDS; r++) {
        // In turn, by condition variable.
        pthread_mutex_lock(&mutex);
        while (turn != id)
            pthread_cond_wait(&cond, &mutex);
        turn = (turn + 1) % THREADS;
        locked_sum += id;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);

        pthread_spin_lock(&spin);
        spin_sum++;
        pthread_spin_unlock(&spin);

        if (r % 5 == 0) {
            pthread_rwlock_wrlock(&rwlock);
            rw_value++;
            pthread_rwlock_unlock(&rwlock);
        } else {
            pthread_rwlock_rdlock(&rwlock);
            CHECK(rw_value <= THREADS * ROUNDS);
            pthread_rwlock_unlock(&rwlock);
        }
        while (sem_wait(&sem) != 0)
            ;
        atomic_sum += id;
        sem_post(&sem);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            serials++;
        pthread_barrier_wait(&barrier);
    }
    CHECK_EQ(tls_a, id);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(tls_b[i], id);
    CHECK_EQ(*(int *)pthread_getspecific(key), id);
    return (void *)(intptr_t)(id * 3);
}

int main(void)
{
    pthread_spin_init(&spin, 0);
    pthread_barrier_init(&barrier, NULL, THREADS);
    sem_init(&sem, 0, 3);
    pthread_key_create(&key, destroy);
    pthread_t t[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&t[i], NULL, worker, (void *)i) == 0);
    long results = 0;
    for (int i = 0; i < THREADS; i++) {
        void *r;
        CHECK(pthread_join(t[i], &r) == 0);
        CHECK_EQ((intptr_t)r, i * 3);
        results += (intptr_t)r;
    }
    CHECK_EQ(destroyed, THREADS);
    printf("%d %d %d %ld %ld %d %ld\n", once_runs, locked_sum, spin_sum, rw_value, (long)atomic_sum, serials, results);
    return 0;
}

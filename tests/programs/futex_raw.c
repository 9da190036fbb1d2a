// futex(2) called directly: wait/wake, bitsets, requeue, timeouts, wake-op, priority inheritance,
// shared between processes.
// build: dynamic static
#include "harness.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

static long futex(void *w, int op, unsigned v, const void *t, void *w2, unsigned v3)
{
    return syscall(SYS_futex, w, op, v, t, w2, v3);
}

static uint32_t word, word2;
static _Atomic int woken;
static void *waiter(void *arg)
{
    int op = (int)(intptr_t)arg;
    long r = futex(&word, op, 0, NULL, NULL, op == FUTEX_WAIT_BITSET ? 4 : 0);
    CHECK(r == 0 || errno == EAGAIN);
    woken++;
    return NULL;
}

static int wake_all(int op, uint32_t *w, unsigned v3, int want)
{
    int total = 0;
    while (total < want) {
        long r = futex(w, op, 100, NULL, NULL, v3);
        CHECK(r >= 0);
        total += (int)r;
        if (r == 0)
            sched_yield();
    }
    return total;
}

static void *pi_locker(void *arg)
{
    int *n = arg;
    for (int i = 0; i < 200; i++) {
        CHECK(futex(&word2, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
        ++*n;
        CHECK(futex(&word2, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    }
    return NULL;
}

int main(void)
{
    CHECK(futex(&word, FUTEX_WAIT, 1, NULL, NULL, 0) == -1 && errno == EAGAIN);
    struct timespec brief = {0, 10000000};
    double start = now_seconds();
    CHECK(futex(&word, FUTEX_WAIT, 0, &brief, NULL, 0) == -1 && errno == ETIMEDOUT);
    CHECK(now_seconds() - start >= 0.0099);
    CHECK(futex((void *)3, FUTEX_WAIT, 0, NULL, NULL, 0) == -1 && errno == EINVAL);
    CHECK(futex((void *)4, FUTEX_WAIT, 0, NULL, NULL, 0) == -1 && errno == EFAULT);

    pthread_t t[8];
    int ops[] = {FUTEX_WAIT, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, FUTEX_WAIT_BITSET};
    int wakes[] = {FUTEX_WAKE, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, FUTEX_WAKE_BITSET};
    for (int k = 0; k < 3; k++) {
        woken = 0;
        for (int i = 0; i < 8; i++)
            CHECK(pthread_create(&t[i], NULL, waiter, (void *)(intptr_t)ops[k]) == 0);
        if (k == 2)
            CHECK_EQ(futex(&word, FUTEX_WAKE_BITSET, 100, NULL, NULL, 8), 0); // other bit: nobody
        CHECK_EQ(wake_all(wakes[k], &word, 4, 8), 8);
        for (int i = 0; i < 8; i++)
            pthread_join(t[i], NULL);
        CHECK_EQ(woken, 8);
    }
    // Requeue: one wakes, the rest move to the second word.
    woken = 0;
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&t[i], NULL, waiter, (void *)(intptr_t)FUTEX_WAIT) == 0);
    sleep_ms(50);
    long requeued = futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)100L, &word2, 0);
    CHECK(requeued >= 0);
    CHECK(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)100L, &word2, 99) == -1 && errno == EAGAIN);
    // A slow starter may still come to wait on the first word, so wake both until all are out.
    while (woken < 8) {
        futex(&word, FUTEX_WAKE, 100, NULL, NULL, 0);
        futex(&word2, FUTEX_WAKE, 100, NULL, NULL, 0);
        sched_yield();
    }
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    CHECK_EQ(woken, 8);

    // FUTEX_WAKE_OP changes the second word atomically.
    word2 = 5;
    CHECK_EQ(futex(&word, FUTEX_WAKE_OP, 1, (void *)1L, &word2, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 5)), 0);
    CHECK_EQ(word2, 8);

    word2 = 0;
    int counts = 0;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, pi_locker, &counts) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    CHECK_EQ(counts, 800);

    // Between processes, in shared memory.
    uint32_t *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 300; i++) {
            while (__atomic_load_n(&s[0], __ATOMIC_SEQ_CST) == (uint32_t)i)
                futex(&s[0], FUTEX_WAIT, (unsigned)i, NULL, NULL, 0);
            __atomic_store_n(&s[1], i + 1, __ATOMIC_SEQ_CST);
            futex(&s[1], FUTEX_WAKE, 1, NULL, NULL, 0);
        }
        _exit(0);
    }
    for (int i = 0; i < 300; i++) {
        __atomic_store_n(&s[0], i + 1, __ATOMIC_SEQ_CST);
        futex(&s[0], FUTEX_WAKE, 1, NULL, NULL, 0);
        while (__atomic_load_n(&s[1], __ATOMIC_SEQ_CST) != (uint32_t)(i + 1))
            futex(&s[1], FUTEX_WAIT, (unsigned)i, NULL, NULL, 0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("futex ok\n");
    return 0;
}

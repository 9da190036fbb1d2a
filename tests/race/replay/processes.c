/* Three processes that share memory: a mutex, a condition variable and a bare futex between them. All note in the
 * same file.
 *
 * prints: sum 24, last 24
 */
#include "replay.h"
#include <linux/futex.h>

enum { CHILDREN = 2, ROUNDS = 8 };

static struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t sum, count;
    uint32_t gate;
} *shared;

static void work(uint64_t index)
{
    while (__atomic_load_n(&shared->gate, __ATOMIC_ACQUIRE) == 0)
        syscall(SYS_futex, &shared->gate, FUTEX_WAIT, 0, NULL, NULL, 0);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&shared->mutex);
        notes[index * 32 + (uint64_t)i] = index << 32 | shared->sum;
        _mm_clflush(&notes[index * 32 + (uint64_t)i]);
        _mm_sfence();
        shared->sum++;
        pthread_cond_signal(&shared->changed);
        pthread_mutex_unlock(&shared->mutex);
    }
}

int main(int argc, char **argv)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    uint64_t last;
    open_notes(argc, argv);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &mutex);
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared->changed, &cond);
    for (uint64_t i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            work(i + 1);
            _exit(0);
        }
    }
    __atomic_store_n(&shared->gate, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &shared->gate, FUTEX_WAKE, CHILDREN, NULL, NULL, 0);
    work(0);
    pthread_mutex_lock(&shared->mutex);
    while (shared->sum < (CHILDREN + 1) * ROUNDS)
        pthread_cond_wait(&shared->changed, &shared->mutex);
    last = shared->sum;
    pthread_mutex_unlock(&shared->mutex);
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        must(wait(&status) > 0 && status == 0, "wait");
    }
    printf("sum %lu, last %lu\n", shared->sum, last);
    return 0;
}

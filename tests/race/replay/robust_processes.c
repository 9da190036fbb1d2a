/* A robust mutex between processes, whose owners end without releasing it: by exit, in a thread that is not the one that
 * exits, and by a signal. Whoever waits gets it and is told.
 *
 * prints: inherited 3
 */
#include "replay.h"

static struct shared {
    pthread_mutex_t mutex;
    sem_t locked;
    int dummy;
} *shared;

static void *locks(void *argument)
{
    must(pthread_mutex_lock(&shared->mutex) == 0, "pthread_mutex_lock");
    sem_post(&shared->locked);
    if (argument)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_mutexattr_t attributes;
    int inherited = 0;
    open_notes(argc, argv);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &attributes);
    sem_init(&shared->locked, 1, 0);
    for (int way = 0; way < 3; way++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            pthread_t thread;
            struct timespec nap = {.tv_nsec = 2000000};
            if (way == 1) {
                must(pthread_create(&thread, NULL, locks, shared) == 0, "pthread_create");
                while (__atomic_load_n(&shared->dummy, __ATOMIC_ACQUIRE) == 0)
                    sched_yield();
            } else {
                locks(NULL);
            }
            nanosleep(&nap, NULL);
            if (way == 2)
                raise(SIGTERM);
            _exit(0);
        }
        while (sem_wait(&shared->locked) != 0)
            ;
        __atomic_store_n(&shared->dummy, 1, __ATOMIC_RELEASE);
        int result = pthread_mutex_lock(&shared->mutex);
        note((uint64_t)result);
        if (result == EOWNERDEAD) {
            inherited++;
            pthread_mutex_consistent(&shared->mutex);
        }
        pthread_mutex_unlock(&shared->mutex);
        __atomic_store_n(&shared->dummy, 0, __ATOMIC_RELEASE);
        int status;
        must(waitpid(child, &status, 0) == child, "waitpid");
    }
    printf("inherited %d\n", inherited);
    return 0;
}

/* A process is killed by another one while it holds a robust lock. Natively whoever waits for it is told.
 *
 *     killed_owner FILE
 */
#include "../replay/replay.h"

static struct shared {
    pthread_mutex_t mutex;
    sem_t locked;
} *shared;

int main(int argc, char **argv)
{
    pthread_mutexattr_t attributes;
    int status;
    open_notes(argc, argv);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &attributes);
    sem_init(&shared->locked, 1, 0);
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        pthread_mutex_lock(&shared->mutex);
        sem_post(&shared->locked);
        for (;;)
            pause();
    }
    while (sem_wait(&shared->locked) != 0)
        ;
    note(1);
    must(kill(child, SIGKILL) == 0, "kill");
    must(waitpid(child, &status, 0) == child, "waitpid");
    int result = pthread_mutex_lock(&shared->mutex);
    printf("inherited %d\n", result == EOWNERDEAD);
    return 0;
}

/* One semop of which one operation may wait and the other may not: the kernel does not say which could not be done, so the
 * wait is left to it.
 *
 *     mixed_semaphores FILE
 */
#include "../replay/replay.h"
#include <sys/sem.h>

static int semaphores;

static void *posts(void *argument)
{
    (void)argument;
    struct sembuf post = {.sem_num = 0, .sem_op = 1};
    note(1);
    must(semop(semaphores, &post, 1) == 0, "semop");
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    struct sembuf both[2] = {{.sem_num = 0, .sem_op = -1}, {.sem_num = 1, .sem_op = -1, .sem_flg = IPC_NOWAIT}};
    open_notes(argc, argv);
    semaphores = semget(IPC_PRIVATE, 2, 0600);
    must(semaphores >= 0 && semctl(semaphores, 1, SETVAL, 1) == 0, "semget");
    start_all(&thread, 1, posts);
    must(semop(semaphores, both, 2) == 0, "semop");
    join_all(&thread, 1);
    semctl(semaphores, 0, IPC_RMID);
    puts("done");
    return 0;
}

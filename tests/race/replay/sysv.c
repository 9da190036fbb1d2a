/* System V: a semaphore as a lock, one that counts, a wait that ends by the clock, and a message queue between threads and
 * a child process; then one that waits for a queue which is removed, or comes when it is gone.
 *
 * prints: sum 60, timed out 1, messages 12, removed 1
 */
#include "replay.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

enum { THREADS = 4, ROUNDS = 5, MESSAGES = 12 };

static int semaphores, queue;
static volatile int value;
static int sum, timed_out, removed;

static void change(unsigned short which, short by)
{
    struct sembuf operation = {.sem_num = which, .sem_op = by};
    int result;
    do
        result = semop(semaphores, &operation, 1);
    while (result != 0 && errno == EINTR);
    must(result == 0, "semop");
}

static void *adds(void *argument)
{
    for (int i = 0; i < ROUNDS; i++) {
        change(0, -1);
        int seen = value;
        note((uint64_t)(intptr_t)argument << 32 | (uint64_t)seen);
        value = seen + 3;
        change(0, 1);
    }
    /* Whoever waits for all of them is let go. */
    change(1, 1);
    return NULL;
}

static void *waits(void *argument)
{
    (void)argument;
    struct sembuf never = {.sem_num = 2, .sem_op = -1};
    struct timespec soon = {.tv_nsec = 2000000};
    timed_out = semtimedop(semaphores, &never, 1, &soon) != 0 && errno == EAGAIN;
    note(7);
    change(1, -THREADS);
    sum = value;
    return NULL;
}

struct message {
    long type;
    char text[64];
};

static void *hangs(void *argument)
{
    int *id = argument;
    struct message message;
    /* On a busy machine it may come only after the queue is gone: EINVAL. */
    removed = msgrcv(*id, &message, sizeof message.text, 0, 0) < 0 && (errno == EIDRM || errno == EINVAL);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS + 1];
    struct message message;
    open_notes(argc, argv);
    semaphores = semget(IPC_PRIVATE, 3, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    must(semaphores >= 0 && queue >= 0, "semget, msgget");
    must(semctl(semaphores, 0, SETVAL, 1) == 0, "semctl");
    start_all(threads, THREADS, adds);
    must(pthread_create(&threads[THREADS], NULL, waits, NULL) == 0, "pthread_create");
    join_all(threads, THREADS + 1);

    /* The queue holds a few messages only: its writer waits, too. */
    struct msqid_ds limits;
    must(msgctl(queue, IPC_STAT, &limits) == 0, "msgctl");
    limits.msg_qbytes = 3 * sizeof message.text;
    must(msgctl(queue, IPC_SET, &limits) == 0, "msgctl");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        for (int i = 0; i < MESSAGES; i++) {
            message = (struct message){.type = 1 + i % 2};
            message.text[0] = (char)i;
            must(msgsnd(queue, &message, sizeof message.text, 0) == 0, "msgsnd");
        }
        _exit(0);
    }
    int messages = 0, status;
    for (int i = 0; i < MESSAGES; i++) {
        must(msgrcv(queue, &message, sizeof message.text, 0, 0) > 0, "msgrcv");
        note(1000 + (uint64_t)message.text[0]);
        messages++;
    }
    must(waitpid(child, &status, 0) == child && status == 0, "waitpid");
    must(pthread_create(&threads[0], NULL, hangs, &queue) == 0, "pthread_create");
    struct timespec nap = {.tv_nsec = 20000000};
    nanosleep(&nap, NULL);
    must(msgctl(queue, IPC_RMID, NULL) == 0, "msgctl");
    pthread_join(threads[0], NULL);
    semctl(semaphores, 0, IPC_RMID);
    printf("sum %d, timed out %d, messages %d, removed %d\n", sum, timed_out, messages, removed);
    return 0;
}

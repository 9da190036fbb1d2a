/* A pool of six threads; a job may make two smaller ones, and the pool ends when there are none left.
 *
 * prints: jobs 31, leaves 16
 */
#include "replay.h"

enum { WORKERS = 6, DEPTH = 4, ROOM = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int queue[ROOM], first, last, pending, jobs, leaves;

/* Called with the mutex. */
static void submit(int depth)
{
    queue[last++ % ROOM] = depth;
    pending++;
    pthread_cond_signal(&changed);
}

static void *body(void *argument)
{
    uint64_t index = (uint64_t)(intptr_t)argument;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (first == last && pending > 0)
            pthread_cond_wait(&changed, &mutex);
        if (first == last)
            break;
        int depth = queue[first++ % ROOM];
        pthread_mutex_unlock(&mutex);
        note(index << 32 | (uint64_t)depth);
        pthread_mutex_lock(&mutex);
        jobs++;
        leaves += depth == DEPTH;
        for (int i = 0; i < 2 && depth < DEPTH; i++)
            submit(depth + 1);
        if (--pending == 0)
            pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[WORKERS];
    open_notes(argc, argv);
    submit(0);
    start_all(threads, WORKERS, body);
    join_all(threads, WORKERS);
    printf("jobs %d, leaves %d\n", jobs, leaves);
    return 0;
}

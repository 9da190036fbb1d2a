/* POSIX message queues: full and empty ones, priorities, and waits that end by the clock.
 *
 * prints: received 12, timed out 2
 */
#include "replay.h"
#include <mqueue.h>

enum { SENDERS = 3, EACH = 4 };

static mqd_t queue;

static void *sends(void *argument)
{
    unsigned index = (unsigned)(intptr_t)argument;
    for (unsigned i = 0; i < EACH; i++) {
        char text[2] = {(char)index, (char)i};
        must(mq_send(queue, text, sizeof text, i % 3) == 0, "mq_send");
        note(index << 8 | i);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[SENDERS];
    struct mq_attr room = {.mq_maxmsg = 2, .mq_msgsize = 8};
    char name[64], text[8];
    int received = 0, timed_out = 0;
    open_notes(argc, argv);
    snprintf(name, sizeof name, "/brownout-replay-%d", (int)getpid());
    mq_unlink(name);
    queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &room);
    must(queue != (mqd_t)-1 && mq_unlink(name) == 0, "mq_open");
    struct timespec soon = after(CLOCK_REALTIME, 3000000);
    timed_out += mq_timedreceive(queue, text, sizeof text, NULL, &soon) < 0 && errno == ETIMEDOUT;
    start_all(threads, SENDERS, sends);
    while (received < SENDERS * EACH) {
        unsigned priority;
        must(mq_receive(queue, text, sizeof text, &priority) == 2, "mq_receive");
        note(1 << 16 | priority << 8 | (unsigned)text[0]);
        received++;
    }
    join_all(threads, SENDERS);
    for (int i = 0; i < 2; i++)
        must(mq_send(queue, text, 1, 0) == 0, "mq_send");
    soon = after(CLOCK_REALTIME, 3000000);
    timed_out += mq_timedsend(queue, text, 1, 0, &soon) < 0 && errno == ETIMEDOUT;
    printf("received %d, timed out %d\n", received, timed_out);
    return 0;
}

/* An outbox: a message is sent to the world as soon as it is in the table.
 *
 * Wrong: a message is written back, and sent before a fence; the fence of the next message completes the write-back.
 * Every crash state is a proper outbox, so recovery has nothing to object to; only someone who counts what was sent
 * sees that a message is missing.
 * Right: a message is durable before it is sent.
 *
 * check: none
 * explore: yes
 * symptom: ops
 * explored: checker-failed @ message
 * needs: clflushopt
 */
#include "../pm.h"

enum { MESSAGES = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        PM_ALIGNED uint64_t text; /* 0: none */
    } messages[MESSAGES];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
#ifdef BUG
    if (i > 0)
        pm_fence();
#endif
    pool->messages[i].text = 61 + (uint64_t)i; /* @message */
    pm_flush(&pool->messages[i], sizeof(uint64_t));
#ifndef BUG
    pm_fence();
#endif
    pm_ack(i);
#ifdef BUG
    if (i == pm_job.operations - 1)
        pm_fence();
#endif
}

static void check(struct pool *pool)
{
    int count = 0;
    while (count < MESSAGES && pool->messages[count].text != 0)
        count++;
    if (count < pm_job.acknowledged)
        pm_fail("%d messages were sent, and %d are there", pm_job.acknowledged, count);
    for (int i = 0; i < count; i++)
        pm_print("message %lu\n", pool->messages[i].text);
}

PM_MAIN(MESSAGES)

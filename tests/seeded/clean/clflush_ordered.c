/* A list of messages: `clflush` the message, store the flag, `clflush` the flag. No fence anywhere.
 *
 * Clean: `clflush` goes through the store buffer like a store, so the flag is stored after the message is written
 * back, and the flag's write-back is complete when the next store is seen.
 *
 * clean
 */
#include "../pm.h"

enum { MESSAGES = 3 };

struct message {
    PM_ALIGNED uint64_t words[8];
    PM_ALIGNED uint64_t sent;
};

struct pool {
    struct message messages[MESSAGES];
};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    struct message *message = &pool->messages[i];
    for (uint64_t n = 0; n < 8; n++)
        message->words[n] = (uint64_t)i + n + 1;
    pm_clflush(message->words, sizeof message->words);
    message->sent = 1;
    pm_clflush(&message->sent, sizeof message->sent);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < MESSAGES; i++) {
        struct message *message = &pool->messages[i];
        if (!message->sent)
            continue;
        for (uint64_t n = 0; n < 8; n++)
            if (message->words[n] != i + n + 1)
                pm_fail("message %lu is sent and incomplete", i);
        pm_print("message %lu\n", i);
    }
}

PM_MAIN(MESSAGES)

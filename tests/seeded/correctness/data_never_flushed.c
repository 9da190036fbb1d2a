/* A mailbox: the text of a message is stored in one line, its `full` flag in another.
 *
 * Wrong: only the flag is written back. Once the flag is durable the text still is not, so a crash after the first
 * acknowledgement may leave a full slot of zeros.
 * Right: the text is durable before the flag is stored, so every full slot holds its text.
 *
 * bug: missing-flush @ data-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ data-store
 */
#include "../pm.h"

enum { SLOTS = 4 };

struct slot {
    PM_ALIGNED char text[48];
    PM_ALIGNED uint64_t full;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct slot slots[SLOTS];
};

static const char texts[SLOTS][48] = {
    "first message, filling more than one word", "second message, also rather long", "third message", "fourth message",
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct slot *slot = &pool->slots[i];
    memcpy(slot->text, texts[i], sizeof slot->text); /* @data-store */
#ifndef BUG
    pm_persist(slot->text, sizeof slot->text);
#endif
    slot->full = 1;
    pm_persist(&slot->full, sizeof slot->full);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &pool->slots[i];
        if (!slot->full)
            continue;
        if (memcmp(slot->text, texts[i], sizeof slot->text) != 0)
            pm_fail("slot %d is full and its text is not there", i);
        pm_print("%s\n", slot->text);
    }
}

PM_MAIN(SLOTS)

/* Two headers in turn: each has a sequence number and a checksum, and recovery takes the newer one that is whole.
 *
 * Clean: the header that is written is never the one that is valid, so a torn one costs nothing. A header is larger than
 * a line, and nothing orders its lines.
 *
 * clean
 */
#include "../pm.h"

enum { CHANGES = 5, WORDS = 10 };

struct header {
    PM_ALIGNED uint64_t sequence;
    uint64_t words[WORDS];
    uint64_t checksum;
};

struct pool {
    struct header headers[2];
};

static uint64_t checksum(const struct header *header)
{
    uint64_t sum = 0xcbf29ce484222325 ^ header->sequence;
    for (int n = 0; n < WORDS; n++)
        sum = (sum ^ header->words[n]) * 0x100000001b3;
    return sum;
}

static const struct header *newest(struct pool *pool)
{
    const struct header *best = NULL;
    for (int i = 0; i < 2; i++) {
        const struct header *header = &pool->headers[i];
        if (header->sequence == 0 || header->checksum != checksum(header))
            continue;
        if (!best || header->sequence > best->sequence)
            best = header;
    }
    return best;
}

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    const struct header *now = newest(pool);
    struct header next = {.sequence = now ? now->sequence + 1 : 1};
    for (int n = 0; n < WORDS; n++)
        next.words[n] = (uint64_t)(i * 10 + n);
    next.checksum = checksum(&next);
    struct header *to = &pool->headers[next.sequence % 2];
    *to = next;
    pm_persist(to, sizeof *to);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    const struct header *header = newest(pool);
    if (!header) {
        pm_print("empty\n");
        return;
    }
    for (int n = 1; n < WORDS; n++)
        if (header->words[n] != header->words[0] + (uint64_t)n)
            pm_fail("a header with the right checksum is damaged");
    pm_print("state %d\n", (int)header->words[0] / 10);
}

PM_MAIN(CHANGES)

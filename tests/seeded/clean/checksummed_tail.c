/* A log of checksummed records, committed in groups of two: the first of a pair is left in the cache, the second
 * writes back and fences both. Only then are both acknowledged. An odd record at the end is neither flushed nor
 * acknowledged.
 *
 * Clean: a record that arrived in part, or not at all, ends the log. If the second of a pair arrives before the first,
 * it is not seen: the log ends before it. A torn or lost tail was never promised.
 *
 * clean
 * allow: missing-flush @ append
 */
#include "../pm.h"

enum { RECORDS = 5, WORDS = 6 };

struct record {
    PM_ALIGNED uint64_t number; /* from 1 */
    uint64_t words[WORDS];
    uint64_t checksum;
};

struct pool {
    struct record records[RECORDS];
};

static uint64_t checksum(const struct record *record)
{
    uint64_t sum = 0xcbf29ce484222325 ^ record->number;
    for (int n = 0; n < WORDS; n++)
        sum = (sum ^ record->words[n]) * 0x100000001b3;
    return sum;
}

static bool is_whole(struct pool *pool, int i)
{
    return pool->records[i].number == (uint64_t)i + 1 && pool->records[i].checksum == checksum(&pool->records[i]);
}

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    struct record record = {.number = (uint64_t)i + 1};
    for (int n = 0; n < WORDS; n++)
        record.words[n] = (uint64_t)(i * 100 + n);
    record.checksum = checksum(&record);
    PM_EXCLUDE(&pool->records[i], sizeof record);
    pool->records[i] = record; /* @append */
    if (i % 2 == 0)
        return;
    pm_persist(&pool->records[i - 1], 2 * sizeof record);
    pm_ack(i - 1);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < RECORDS && is_whole(pool, i); i++) {
        for (int n = 0; n < WORDS; n++)
            if (pool->records[i].words[n] != (uint64_t)(i * 100 + n))
                pm_fail("record %d is damaged and has the right checksum", i);
        pm_print("record %d\n", i);
    }
}

PM_MAIN(RECORDS)

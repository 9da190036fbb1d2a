/* A log of records of two lines, each with its number and a checksum over all of it.
 *
 * Clean: nothing orders the lines of a record, and nothing counts the records. A record that arrived in part has a
 * wrong checksum and ends the log; the next append overwrites it. A record is acknowledged when it is durable.
 *
 * clean
 */
#include "../pm.h"

enum { RECORDS = 4, WORDS = 14 };

struct record {
    PM_ALIGNED uint64_t number; /* from 1 */
    uint64_t words[WORDS];
    uint64_t checksum;
};

struct pool {
    struct record records[RECORDS];
};

/* FNV-1a, by words. */
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
    pool->records[i] = record;
    pm_persist(&pool->records[i], sizeof record);
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

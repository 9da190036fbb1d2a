/* A log of 64-byte records behind a 32-byte header, so that each record lies in two lines.
 *
 * Wrong: a flush loop of its own that steps by 64 from the record's first byte. It reaches ⌈64/64⌉ = 1 line; the
 * record's second half lies in the next one, which only the next append writes back. The last record counted may thus
 * end in zeros.
 * Right: the loop begins at the line boundary.
 *
 * bug: missing-flush @ append
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ append
 */
#include "../pm.h"

enum { RECORDS = 4, WORDS = 8 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t count;
    PM_ALIGNED uint64_t header[4];
    uint64_t records[RECORDS][WORDS];
};

static void flush_record(const uint64_t *record)
{
    uintptr_t at = (uintptr_t)record, end = at + WORDS * sizeof *record;
#ifndef BUG
    at &= ~(uintptr_t)(PM_LINE - 1);
#endif
    for (; at < end; at += PM_LINE)
        pm_flush_line((const void *)at);
}

static uint64_t word(uint64_t record, uint64_t n)
{
    return (record + 1) * 100 + n;
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    uint64_t *record = pool->records[i];
    for (uint64_t n = 0; n < WORDS; n++)
        record[n] = word((uint64_t)i, n); /* @append */
    flush_record(record);
    pm_fence();
    pool->count = (uint64_t)i + 1;
    pm_persist(&pool->count, sizeof pool->count);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count > RECORDS)
        pm_fail("%lu records", pool->count);
    for (uint64_t i = 0; i < pool->count; i++) {
        for (uint64_t n = 0; n < WORDS; n++)
            if (pool->records[i][n] != word(i, n))
                pm_fail("word %lu of record %lu is lost", n, i);
        pm_print("record %lu\n", i);
    }
}

PM_MAIN(RECORDS)

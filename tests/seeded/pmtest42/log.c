/* A log of 48-byte records, packed, so that some lie in two lines. Its length is the commit.
 *
 * case 1: ordering, not-ordered @ record-nt
 * case 2: writeback, not-persisted @ record
 * case 3: writeback, not-persisted @ record
 *
 * 1: the record is stored past the cache and published without a fence. 2: the flush loop starts at the record instead
 * of at its line, and misses the tail. 3: the write-back is not fenced.
 * needs: clflushopt
 */
#include "cases.h"

enum { RECORDS = 4, WORDS = 6 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t length; /* records */
    PM_ALIGNED uint64_t records[RECORDS][WORDS];
};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    uint64_t *record = pool->records[i];
    size_t bytes = WORDS * sizeof *record;
    for (uint64_t n = 0; n < WORDS; n++) {
        if (BUGGY(1))
            pm_nt_store(&record[n], (uint64_t)i * 100 + n); /* @record-nt */
        else
            record[n] = (uint64_t)i * 100 + n; /* @record */
    }
    if (BUGGY(2)) {
        for (uintptr_t at = (uintptr_t)record; at < (uintptr_t)record + bytes; at += PM_LINE)
            pm_flush_line((const void *)at);
    } else if (!BUGGY(1)) {
        pm_flush(record, bytes);
    }
    if (!BUGGY(1) && !BUGGY(3))
        pm_fence();
    if (!BUGGY(1))
        brownout_is_persisted(record, bytes);
    pool->length = (uint64_t)i + 1;
    if (!BUGGY(2) && !BUGGY(3))
        brownout_is_ordered_before(record, bytes, &pool->length, sizeof pool->length);
    pm_persist(&pool->length, sizeof pool->length);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < pool->length; i++) {
        for (uint64_t n = 0; n < WORDS; n++)
            if (i >= RECORDS || pool->records[i][n] != i * 100 + n)
                pm_fail("record %lu is damaged", i);
        pm_print("record %lu\n", i);
    }
}

PM_CASES_MAIN(RECORDS)

/* A number in the pool, and records that hold its hash, looked up byte by byte in a table.
 *
 * Wrong: the source is made durable after the lock is released. In between the other thread reads it, and what
 * becomes durable first was computed from it by address: each byte chose an entry of a table, and the entries were
 * combined. After a crash it is ahead of its source.
 * Right: the source is durable before the lock is released.
 *
 * bug: inter-thread-inconsistency
 * verdict: confirmed
 * predicted: yes
 */
#include "race.h"

enum { CHANGES = 4, READS = 4 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t source;
    struct {
        PM_ALIGNED uint64_t value;
    } records[READS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The checksum that everybody uses, by its table. */
static uint32_t crc(uint64_t value)
{
    static uint32_t table[256];
    if (!table[1]) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t entry = i;
            for (int bit = 0; bit < 8; bit++)
                entry = entry & 1 ? entry >> 1 ^ 0xedb88320 : entry >> 1;
            table[i] = entry;
        }
    }
    uint32_t sum = 0xffffffff;
    for (int i = 0; i < 8; i++, value >>= 8)
        sum = sum >> 8 ^ table[(sum ^ value) & 0xff];
    return ~sum;
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void change(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    pool->source++; /* @store */
#ifndef BUG
    pm_persist_it(pool->source);
#endif
    pthread_mutex_unlock(&lock);
#ifdef BUG
    pm_window();
    pm_persist_it(pool->source);
#endif
}

static void take(struct pool *pool, int i)
{
    pthread_mutex_lock(&lock);
    uint64_t source = pool->source; /* @read */
    pthread_mutex_unlock(&lock);
    pool->records[i].value = crc(source); /* @effect */
    pm_persist_it(pool->records[i]);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < CHANGES; i++) {
        if (index == 0)
            change(pool);
        else
            take(pool, i);
    }
}

static void work(struct pool *pool)
{
    pm_threads(pool, 2, thread);
}

static void more(struct pool *pool)
{
    change(pool);
    take(pool, 0);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < READS; i++) {
        bool known = pool->records[i].value == 0;
        for (uint64_t value = 0; value <= pool->source; value++)
            known |= pool->records[i].value == crc(value);
        if (!known)
            pm_fail("record %d is the hash of nothing that was ever there", i);
        pm_print("%lx ", pool->records[i].value);
    }
    pm_print("of %lu\n", pool->source);
}

RACE_MAIN

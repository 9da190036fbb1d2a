/* A cache: entries are durable, the links that keep them in order of use are not.
 *
 * Clean: the links lie in the pool, in lines of their own, and change on every use without a write-back. Opening links
 * all valid entries anew; nothing reads the old links. An entry is key and value in one word, valid if not 0.
 *
 * clean
 * allow: missing-flush @ links
 * allow: transient-data @ links
 */
#include "../pm.h"

enum { ENTRIES = 4, OPERATIONS = 7 };

struct links {
    PM_ALIGNED uint32_t previous; /* number of an entry, from 1; entry 0 is the list's head */
    uint32_t next;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t entries[ENTRIES + 1]; /* key << 32 | value; 0: free */
    struct links links[ENTRIES + 1];
};

static void unlink_entry(struct pool *pool, uint32_t at)
{
    struct links *links = &pool->links[at];
    pool->links[links->previous].next = links->next; /* @links */
    pool->links[links->next].previous = links->previous; /* @links */
}

static void link_first(struct pool *pool, uint32_t at)
{
    uint32_t first = pool->links[0].next;
    pool->links[at].previous = 0; /* @links */
    pool->links[at].next = first; /* @links */
    pool->links[first].previous = at; /* @links */
    pool->links[0].next = at; /* @links */
}

static void open_pool(struct pool *pool)
{
    PM_EXCLUDE(pool->links, sizeof pool->links);
    pm_create(&pool->magic);
    pool->links[0].previous = 0; /* @links */
    pool->links[0].next = 0; /* @links */
    for (uint32_t at = 1; at <= ENTRIES; at++)
        if (pool->entries[at] != 0)
            link_first(pool, at);
}

/* Even operations insert, odd ones use the oldest. */
static void operation(struct pool *pool, int i)
{
    if (i % 2 == 0) {
        uint32_t at = (uint32_t)i / 2 + 1;
        pool->entries[at] = (uint64_t)at << 32 | (50 + at);
        pm_persist(&pool->entries[at], sizeof(uint64_t));
        link_first(pool, at);
    } else {
        uint32_t oldest = pool->links[0].previous;
        unlink_entry(pool, oldest);
        link_first(pool, oldest);
    }
    pm_ack(i);
}

static void check(struct pool *pool)
{
    int linked = 0, valid = 0;
    for (uint32_t at = pool->links[0].next; at != 0; at = pool->links[at].next)
        if (at > ENTRIES || pool->entries[at] == 0 || ++linked > ENTRIES)
            pm_fail("the links are damaged");
    for (uint32_t at = 1; at <= ENTRIES; at++) {
        if (pool->entries[at] == 0)
            continue;
        valid++;
        pm_print("%lu: %lu\n", pool->entries[at] >> 32, pool->entries[at] & 0xffffffff);
    }
    if (linked != valid)
        pm_fail("%d entries are linked, %d are there", linked, valid);
}

PM_MAIN(OPERATIONS)

/* A directory of entries: a name that never changes, and a hit count in the next line.
 *
 * Wasteful: counting a hit writes back the whole entry, both lines, although only the count was stored to.
 * Right: only the count's line.
 * Both are crash consistent.
 *
 * bug: clean-flush @ entry-flush
 * explore: no
 */
#include "../pm.h"

enum { ENTRIES = 2, HITS = 4 };

struct entry {
    PM_ALIGNED char name[64];
    PM_ALIGNED uint64_t hits;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct entry entries[ENTRIES];
};

static const char names[ENTRIES][64] = {"index.html", "logo.png"};

static void open_pool(struct pool *pool)
{
    if (pool->magic == PM_MAGIC)
        return;
    for (int i = 0; i < ENTRIES; i++) {
        memcpy(pool->entries[i].name, names[i], sizeof names[i]);
        pm_flush(pool->entries[i].name, sizeof names[i]);
    }
    pm_fence();
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct entry *entry = &pool->entries[i % ENTRIES];
    entry->hits++;
#ifdef BUG
    pm_flush(entry, sizeof *entry); /* @entry-flush */
#else
    pm_flush(&entry->hits, sizeof entry->hits);
#endif
    pm_fence();
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (int i = 0; i < ENTRIES; i++) {
        if (memcmp(pool->entries[i].name, names[i], sizeof names[i]) != 0)
            pm_fail("entry %d has lost its name", i);
        pm_print("%s: %lu\n", pool->entries[i].name, pool->entries[i].hits);
    }
}

PM_MAIN(HITS)

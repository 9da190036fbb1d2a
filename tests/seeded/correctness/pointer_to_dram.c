/* A directory of names: an entry leads to its name.
 *
 * Wrong: it leads to a buffer in ordinary memory. All of the entry is durable and in order; the next process has
 * nothing at that address. (The buffer is mapped where nothing else ever is, so that following the pointer faults
 * every time.)
 * Right: the name is copied into the pool and the entry holds its offset.
 *
 * The bug shows whenever the pool is opened again, with or without a crash.
 *
 * check: none
 * explore: yes
 * symptom: signal
 * explored: recovery-crash @ entry
 * normal: signal
 */
#include "../pm.h"

enum { NAMES = 3, NAME_BYTES = 64 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED uint64_t count;
    PM_ALIGNED uint64_t entries[NAMES]; /* offset in the pool; wrong: address */
    PM_ALIGNED char arena[NAMES][NAME_BYTES];
};

static const char names[NAMES][NAME_BYTES] = {"alder", "birch", "cedar"};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static uint64_t keep(struct pool *pool, int i)
{
#ifdef BUG
    (void)pool;
    static char *buffer;
    if (!buffer)
        buffer = mmap((void *)0x500000000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        _exit(2);
    memcpy(buffer + i * NAME_BYTES, names[i], NAME_BYTES);
    return (uint64_t)(buffer + i * NAME_BYTES);
#else
    memcpy(pool->arena[i], names[i], NAME_BYTES);
    pm_persist(pool->arena[i], NAME_BYTES);
    return (uint64_t)(pool->arena[i] - (char *)pool);
#endif
}

static const char *name(struct pool *pool, uint64_t entry)
{
#ifdef BUG
    (void)pool;
    return (const char *)entry;
#else
    return (const char *)pool + entry;
#endif
}

static void operation(struct pool *pool, int i)
{
    pool->entries[i] = keep(pool, i);
    pm_persist(&pool->entries[i], sizeof(uint64_t)); /* @entry */
    pool->count = (uint64_t)i + 1; /* @entry */
    pm_persist(&pool->count, sizeof pool->count); /* @entry */
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count > NAMES)
        pm_fail("%lu names", pool->count);
    for (uint64_t i = 0; i < pool->count; i++) {
        if (strcmp(name(pool, pool->entries[i]), names[i]) != 0)
            pm_fail("name %lu is wrong", i);
        pm_print("%s\n", name(pool, pool->entries[i]));
    }
}

PM_MAIN(NAMES)

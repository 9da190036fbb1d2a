/* A document store: the text is appended to an arena, and a handle (offset, length) says which text is current.
 *
 * Wrong: the handle is 16 bytes and published by two stores. One write-back and one fence follow, so all is durable in
 * the end; but eight bytes is what survives as a whole. The new offset with the old length is a legal crash state.
 * Right: offset and length share one aligned word.
 *
 * check: none
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ handle-store
 */
#include "../pm.h"

enum { DOCUMENTS = 4, ARENA = 256 };

struct pool {
    PM_ALIGNED uint64_t magic;
#ifdef BUG
    PM_ALIGNED uint64_t offset;
    uint64_t length;
#else
    PM_ALIGNED uint64_t handle; /* offset in the upper half, length in the lower */
#endif
    PM_ALIGNED char arena[ARENA];
};

/* Each begins a line of the arena; the lengths differ. */
static const char *const documents[DOCUMENTS] = {"one", "number two", "the third of them", "4th"};

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    uint64_t offset = (uint64_t)i * PM_LINE, length = strlen(documents[i]);
    memcpy(pool->arena + offset, documents[i], length);
    pm_persist(pool->arena + offset, length);
#ifdef BUG
    pool->offset = offset; /* @handle-store */
    pm_compiler_barrier();
    pool->length = length; /* @handle-store */
    pm_persist(&pool->offset, 2 * sizeof(uint64_t));
#else
    pool->handle = offset << 32 | length;
    pm_persist(&pool->handle, sizeof pool->handle);
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
#ifdef BUG
    uint64_t offset = pool->offset, length = pool->length;
#else
    uint64_t offset = pool->handle >> 32, length = pool->handle & 0xffffffff;
#endif
    if (offset == 0 && length == 0)
        return;
    if (offset >= ARENA || offset % PM_LINE != 0 || length > ARENA - offset)
        pm_fail("the handle leads out of the arena");
    const char *expected = documents[offset / PM_LINE];
    if (length != strlen(expected) || memcmp(pool->arena + offset, expected, length) != 0)
        pm_fail("%lu bytes at %lu are no document", length, offset);
    pm_print("%.*s\n", (int)length, pool->arena + offset);
}

PM_MAIN(DOCUMENTS)

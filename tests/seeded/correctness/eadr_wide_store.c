/* An amount and its complement, by which a torn pair is known, for machines whose caches survive a power failure.
 *
 * Wrong: both are replaced by one store of 16 bytes. The processor promises no more than 8 at a time: the power can fail between the
 * halves, although nothing is ever lost from a cache.
 * Right: the new pair goes where nobody reads, and a store of 8 bytes says which of the two counts.
 *
 * check: none
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ wide-store
 * domain: eadr
 */
#include "../pm.h"

enum { CHANGES = 3 };

struct pair {
    _Alignas(16) uint64_t amount;
    uint64_t complement;
};

struct pool {
    PM_ALIGNED uint64_t current;
    PM_ALIGNED struct pair pairs[2];
};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

/* One instruction. */
static void store_pair(struct pair *pair, uint64_t amount)
{
    __m128i both = _mm_set_epi64x((long long)~amount, (long long)amount);
    __asm__ volatile("movdqa %1, %0" : "=m"(*(__m128i *)pair) : "x"(both) : "memory"); /* @wide-store */
}

static void operation(struct pool *pool, int i)
{
    uint64_t amount = 30 + (uint64_t)i;
#ifdef BUG
    store_pair(&pool->pairs[0], amount);
#else
    uint64_t other = 1 - pool->current;
    store_pair(&pool->pairs[other], amount);
    pm_compiler_barrier();
    pool->current = other;
#endif
    pm_ack(i);
}

static void check(struct pool *pool)
{
    struct pair *pair = &pool->pairs[pool->current & 1];
    if (pair->amount == 0 && pair->complement == 0)
        return;
    if (pair->complement != ~pair->amount)
        pm_fail("the amount is %lu and its complement is of another", pair->amount);
    pm_print("%lu\n", pair->amount);
}

PM_MAIN(CHANGES)

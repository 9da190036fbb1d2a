/* Versions of a value, and a commit word that says which is the newest. Its two halves repeat the number.
 *
 * Wrong: the word lies four bytes before the end of a line. It is stored by one instruction, but its halves belong to
 * two lines that are written back on their own: half of the new number and half of the old is a legal crash state.
 * Right: the word is aligned, so it survives as a whole.
 *
 * check: none
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ commit-store
 */
#include "../pm.h"

enum { VERSIONS = 3 };

struct pool {
    PM_ALIGNED uint64_t magic;
    PM_ALIGNED unsigned char commit[2 * PM_LINE];
    struct {
        PM_ALIGNED uint64_t value;
    } versions[VERSIONS];
};

static unsigned char *commit_word(struct pool *pool)
{
#ifdef BUG
    return pool->commit + PM_LINE - 4;
#else
    return pool->commit + PM_LINE - 8;
#endif
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    uint64_t number = (uint64_t)i + 1, word = number << 32 | number;
    pool->versions[i].value = number * 11;
    pm_persist(&pool->versions[i].value, sizeof(uint64_t));
    memcpy(commit_word(pool), &word, sizeof word); /* @commit-store */
    pm_persist(commit_word(pool), sizeof word);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    uint64_t word;
    memcpy(&word, commit_word(pool), sizeof word);
    uint64_t number = word >> 32;
    if (number != (word & 0xffffffff) || number > VERSIONS)
        pm_fail("the commit word is torn: %#lx", word);
    if (number == 0)
        return;
    if (pool->versions[number - 1].value != number * 11)
        pm_fail("version %lu is committed and not there", number);
    pm_print("version %lu: %lu\n", number, pool->versions[number - 1].value);
}

PM_MAIN(VERSIONS)

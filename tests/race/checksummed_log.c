/* A log of records with checksums: two threads append, a third reads what is complete and keeps a durable summary.
 *
 * Clean: within a record nothing is ordered, the checksum tells whether it is whole, and a torn tail is dropped. A
 * record is durable before its number is published (in ordinary memory), and the summary counts only what is
 * published.
 *
 * clean
 */
#include "race.h"

enum { WRITERS = 2, RECORDS = 4, ALL = 24, READS = 4, WORDS = 10 };

/* Two lines. */
struct record {
    PM_ALIGNED uint64_t words[WORDS];
    uint64_t checksum;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct record records[ALL];
    PM_ALIGNED struct {
        uint64_t count;
        uint64_t last; /* first word of the last record that was counted */
        uint64_t check;
    } summary;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t published;

static uint64_t sum(const uint64_t *words, int count)
{
    uint64_t sum = 0x9e3779b97f4a7c15;
    for (int i = 0; i < count; i++)
        sum = (sum ^ words[i]) * 0x100000001b3 + 1;
    return sum;
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
    published = 0;
    while (published < ALL && pool->records[published].checksum &&
           sum(pool->records[published].words, WORDS) == pool->records[published].checksum)
        published++;
}

static void append(struct pool *pool, uint64_t first)
{
    pthread_mutex_lock(&lock);
    if (published < ALL) {
        struct record made = {0};
        for (int i = 0; i < WORDS; i++)
            made.words[i] = first + (uint64_t)i;
        made.checksum = sum(made.words, WORDS);
        pool->records[published] = made;
        pm_persist_it(pool->records[published]);
        published++;
    }
    pthread_mutex_unlock(&lock);
}

static void summarise(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    uint64_t count = published, last = count ? pool->records[count - 1].words[0] : 0;
    pthread_mutex_unlock(&lock);
    uint64_t words[2] = {count, last};
    pool->summary.count = count;
    pool->summary.last = last;
    pool->summary.check = sum(words, 2);
    pm_persist_it(pool->summary);
}

static void thread(struct pool *pool, int index)
{
    for (int i = 0; i < RECORDS && index < WRITERS; i++)
        append(pool, (uint64_t)(1000 * (index + 1) + i));
    for (int i = 0; i < READS && index == WRITERS; i++)
        summarise(pool);
}

static void work(struct pool *pool)
{
    pm_threads(pool, WRITERS + 1, thread);
}

static void more(struct pool *pool)
{
    append(pool, 9000);
    summarise(pool);
}

/* A torn summary is none. A whole one speaks of records that are there. */
static void check(struct pool *pool)
{
    uint64_t words[2] = {pool->summary.count, pool->summary.last};
    if (pool->summary.check == sum(words, 2)) {
        if (words[0] > published)
            pm_fail("the summary speaks of %lu records, %lu are there", words[0], published);
        if (words[0] && pool->records[words[0] - 1].words[0] != words[1])
            pm_fail("the summary speaks of %lu", words[1]);
    }
    for (uint64_t i = 0; i < published; i++)
        pm_print("%lu\n", pool->records[i].words[0]);
}

RACE_MAIN

/* Contacts of 56 bytes, each in a line of its own. The write-back is asked for the first eight bytes only.
 *
 * Clean: a write-back takes the whole line, and the contact ends in it.
 *
 * clean
 */
#include "../pm.h"

enum { CONTACTS = 3 };

struct contact {
    PM_ALIGNED uint64_t number;
    char name[48];
};

struct pool {
    PM_ALIGNED uint64_t count;
    struct contact contacts[CONTACTS];
};

static const char names[CONTACTS][48] = {"Ada", "Grace", "Barbara"};

static void open_pool(struct pool *pool)
{
    (void)pool;
}

static void operation(struct pool *pool, int i)
{
    struct contact *contact = &pool->contacts[i];
    contact->number = 700 + (uint64_t)i;
    memcpy(contact->name, names[i], sizeof contact->name);
    pm_persist(contact, sizeof contact->number);
    pool->count = (uint64_t)i + 1;
    pm_persist(&pool->count, sizeof pool->count);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    if (pool->count > CONTACTS)
        pm_fail("%lu contacts", pool->count);
    for (uint64_t i = 0; i < pool->count; i++) {
        struct contact *contact = &pool->contacts[i];
        if (contact->number != 700 + i || memcmp(contact->name, names[i], sizeof contact->name) != 0)
            pm_fail("contact %lu is incomplete", i);
        pm_print("%s: %lu\n", contact->name, contact->number);
    }
}

PM_MAIN(CONTACTS)

/* Four threads allocate and free objects by libpmemobj's atomic functions, and keep them in a list each.
 *
 * Clean: libpmemobj allocates and links in one step. The fourth thread works on the first one's list, under its lock.
 *
 * clean
 * setup
 * libs: -lpmemobj
 */
#include <libpmemobj.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { LISTS = 3, THREADS = 4, ROUNDS = 3 };

POBJ_LAYOUT_BEGIN(race);
POBJ_LAYOUT_ROOT(race, struct root);
POBJ_LAYOUT_TOID(race, struct item);
POBJ_LAYOUT_END(race);

struct item {
    POBJ_LIST_ENTRY(struct item) links;
    uint64_t value;
    uint64_t twice;
};

POBJ_LIST_HEAD(list, struct item);

struct root {
    struct {
        PMEMmutex lock;
        struct list items;
    } lists[LISTS];
};

static PMEMobjpool *pool;
static struct root *root;

static int construct(PMEMobjpool *in, void *object, void *argument)
{
    struct item *item = object;
    item->value = *(const uint64_t *)argument;
    item->twice = 2 * item->value;
    pmemobj_persist(in, &item->value, 2 * sizeof(uint64_t));
    return 0;
}

static void put(int list, uint64_t value)
{
    pmemobj_mutex_lock(pool, &root->lists[list].lock);
    POBJ_LIST_INSERT_NEW_HEAD(pool, &root->lists[list].items, links, sizeof(struct item), construct, &value);
    pmemobj_mutex_unlock(pool, &root->lists[list].lock);
}

static void take(int list)
{
    pmemobj_mutex_lock(pool, &root->lists[list].lock);
    TOID(struct item) last = POBJ_LIST_LAST(&root->lists[list].items, links);
    if (!TOID_IS_NULL(last))
        POBJ_LIST_REMOVE_FREE(pool, &root->lists[list].items, last, links);
    pmemobj_mutex_unlock(pool, &root->lists[list].lock);
}

static void *thread(void *argument)
{
    int index = (int)(intptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        put(index % LISTS, (uint64_t)(100 * (index + 1) + i));
        if (i % 2 == 1)
            take(index % LISTS);
    }
    return NULL;
}

static int check(void)
{
    for (int i = 0; i < LISTS; i++) {
        TOID(struct item) item;
        int count = 0;
        POBJ_LIST_FOREACH(item, &root->lists[i].items, links)
        {
            count++;
            if (D_RO(item)->twice != 2 * D_RO(item)->value) {
                fprintf(stderr, "inconsistent: an item is torn\n");
                return 1;
            }
        }
        printf("%d\n", count);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 3 ? argv[2] : "";
    if (argc < 2 || argc > 3)
        return 2;
    pool = strcmp(mode, "create") == 0 ? NULL : pmemobj_open(argv[1], POBJ_LAYOUT_NAME(race));
    if (!pool && strcmp(mode, "recover") != 0)
        pool = pmemobj_create(argv[1], POBJ_LAYOUT_NAME(race), PMEMOBJ_MIN_POOL, 0600);
    if (!pool) {
        fprintf(stderr, "%s: %s\n", argv[1], pmemobj_errormsg());
        return 1;
    }
    TOID(struct root) oid = POBJ_ROOT(pool, struct root);
    root = D_RW(oid);
    int status = 0;
    if (argc == 2) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, thread, (void *)(intptr_t)i);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    } else if (strcmp(mode, "continue") == 0) {
        put(0, 7);
        take(0);
    }
    if (argc == 3)
        status = check();
    pmemobj_close(pool);
    return status;
}

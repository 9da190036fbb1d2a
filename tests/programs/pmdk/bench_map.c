// Benchmark: inserts COUNT values of SIZE bytes into one of the maps of libpmemobj's examples.
//
//     bench_map TYPE POOL COUNT SIZE
//
// The pool is created, sized for the values, and left behind. A value is allocated, filled and inserted
// in one transaction. `hashmap_atomic` has no transactions: there the value is allocated atomically, by
// a constructor that fills it. Keys are random, and the same on every run.
//
// It lies apart from the other programs because it is linked with sources of the examples.
#include "../harness.h"
#include <libpmemobj.h>

#include "hashmap/hashmap.h"
#include "map.h"
#include "map_btree.h"
#include "map_ctree.h"
#include "map_hashmap_atomic.h"
#include "map_hashmap_tx.h"
#include "map_rbtree.h"

enum { VALUE_TYPE = 1, SEED = 1 };

// What the library and the maps need beside the values: headers of objects, nodes, logs, and in
// hashmap_tx the undo log of a transaction that moves all entries.
static const size_t POOL_BASE = 32 << 20, POOL_PER_VALUE = 640;

struct root {
    TOID(struct map) map;
};

static const struct {
    const char *name;
    const struct map_ops *ops;
} TYPES[] = {
    {"ctree", MAP_CTREE},
    {"btree", MAP_BTREE},
    {"rbtree", MAP_RBTREE},
    {"hashmap_tx", MAP_HASHMAP_TX},
    {"hashmap_atomic", MAP_HASHMAP_ATOMIC},
};

static const struct map_ops *type_named(const char *name)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(TYPES[i].name, name) == 0)
            return TYPES[i].ops;
    FAIL("no such map: %s", name);
}

struct value {
    const char *bytes;
    size_t size;
};

static int construct(PMEMobjpool *pool, void *at, void *argument)
{
    const struct value *value = argument;
    pmemobj_memcpy_persist(pool, at, value->bytes, value->size);
    return 0;
}

static void insert_atomically(struct map_ctx *maps, TOID(struct map) map, uint64_t key, struct value value)
{
    PMEMoid object;
    if (pmemobj_alloc(maps->pop, &object, value.size, VALUE_TYPE, construct, &value) != 0)
        FAIL("cannot allocate: %s", pmemobj_errormsg());
    CHECK_EQ(map_insert(maps, map, key, object), 0);
}

static void insert_in_transaction(struct map_ctx *maps, TOID(struct map) map, uint64_t key, struct value value)
{
    TX_BEGIN(maps->pop) {
        PMEMoid object = pmemobj_tx_alloc(value.size, VALUE_TYPE);
        // The commit writes new objects back.
        pmemobj_memcpy(maps->pop, pmemobj_direct(object), value.bytes, value.size, PMEMOBJ_F_MEM_NOFLUSH);
        CHECK_EQ(map_insert(maps, map, key, object), 0);
    } TX_ONABORT {
        FAIL("transaction aborted: %s", pmemobj_errormsg());
    } TX_END
}

int main(int argc, char **argv)
{
    if (argc != 5)
        FAIL("usage: %s TYPE POOL COUNT SIZE", argv[0]);
    const struct map_ops *ops = type_named(argv[1]);
    uint64_t count = strtoull(argv[3], NULL, 10);
    size_t size = strtoull(argv[4], NULL, 10);
    CHECK(count > 0 && size > 0);

    // Blocks of the allocator's size classes are larger than the objects in them.
    size_t pool_size = POOL_BASE + count * (size + size / 8 + POOL_PER_VALUE);
    PMEMobjpool *pool = pmemobj_create(argv[2], "bench_map", pool_size, 0600);
    if (pool == NULL)
        FAIL("cannot create a pool: %s", pmemobj_errormsg());
    struct map_ctx *maps = map_ctx_init(ops, pool);
    CHECK(maps != NULL);
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof *root));
    CHECK(root != NULL);
    struct hashmap_args args = {.seed = SEED};
    CHECK_EQ(map_create(maps, &root->map, &args), 0);
    TOID(struct map) map = root->map;
    map_init(maps, map);

    char *bytes = malloc(size);
    CHECK(bytes != NULL);
    uint64_t s = SEED, last = 0;
    for (uint64_t i = 0; i < count; i++) {
        last = next_random(&s);
        memset(bytes, (int)i, size);
        struct value value = {bytes, size};
        if (ops == MAP_HASHMAP_ATOMIC)
            insert_atomically(maps, map, last, value);
        else
            insert_in_transaction(maps, map, last, value);
    }
    CHECK(map_lookup(maps, map, last));
    CHECK(memcmp(pmemobj_direct(map_get(maps, map, last)), bytes, size) == 0);
    free(bytes);
    map_ctx_free(maps);
    pmemobj_close(pool);
    printf("%lu inserts\n", count);
    return 0;
}

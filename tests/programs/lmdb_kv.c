// A few committed transactions of LMDB, and what is left of them.
// build: dynamic
// libs: -llmdb
// args: POOL default run
//
//   lmdb_kv FILE default|writemap run      puts one key a transaction and says so
//   lmdb_kv FILE default|writemap check    reads all keys, in order; exit 1 if one has a wrong value or a hole precedes it
#include "harness.h"
#include <lmdb.h>

enum { KEYS = 3, VALUE_BYTES = 300 };

#define TRY(call)                                                                                                       \
    do {                                                                                                                \
        int result = (call);                                                                                            \
        if (result != 0)                                                                                                \
            FAIL("%s: %s", #call, mdb_strerror(result));                                                                \
    } while (0)

static void fill(unsigned char *value, int key)
{
    memset(value, 'a' + key, VALUE_BYTES);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        FAIL("usage: %s FILE default|writemap run|check", argv[0]);
    unsigned flags = MDB_NOSUBDIR | (strcmp(argv[2], "writemap") == 0 ? MDB_WRITEMAP : 0);
    int check = strcmp(argv[3], "check") == 0;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    TRY(mdb_env_create(&env));
    TRY(mdb_env_set_mapsize(env, 1 << 20));
    TRY(mdb_env_open(env, argv[1], flags, 0600));
    unsigned char expected[VALUE_BYTES];
    for (int i = 0; !check && i < KEYS; i++) {
        fill(expected, i);
        MDB_val key = {sizeof i, &i}, value = {VALUE_BYTES, expected};
        TRY(mdb_txn_begin(env, NULL, 0, &txn));
        TRY(mdb_dbi_open(txn, NULL, 0, &dbi));
        TRY(mdb_put(txn, dbi, &key, &value, 0));
        TRY(mdb_txn_commit(txn));
        printf("done %d\n", i);
        fflush(stdout);
    }
    if (check) {
        int found = 0, holes = 0;
        TRY(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
        TRY(mdb_dbi_open(txn, NULL, 0, &dbi));
        for (int i = 0; i < KEYS; i++) {
            MDB_val key = {sizeof i, &i}, value;
            int result = mdb_get(txn, dbi, &key, &value);
            if (result == MDB_NOTFOUND) {
                holes++;
                continue;
            }
            fill(expected, i);
            if (result != 0 || holes || value.mv_size != VALUE_BYTES || memcmp(value.mv_data, expected, VALUE_BYTES) != 0)
                FAIL("key %d is wrong", i);
            found++;
        }
        mdb_txn_abort(txn);
        printf("%d keys\n", found);
    }
    mdb_env_close(env);
    return 0;
}

/* A key-value server like memcached, clients included: two threads serve, two are clients with a connection each, and
 * the text of the protocol goes over sockets.
 *
 *     set KEY VALUE   get KEY   incr KEY
 *
 * Clean: what a command changes is durable before its lock is released, and before it is answered. Clients check that
 * nothing they were told is taken back.
 *
 * clean
 */
#include "race.h"
#include <sys/socket.h>

enum { KEYS = 4, CLIENTS = 2, COMMANDS = 5 };

struct item {
    PM_ALIGNED uint64_t version; /* stored last, in the same line */
    uint64_t value;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct {
        struct item items[2]; /* the one with the higher version counts */
    } keys[KEYS];
};

static pthread_mutex_t locks[KEYS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                      PTHREAD_MUTEX_INITIALIZER};
static int connections[CLIENTS][2]; /* the server's end, the client's end */

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static struct item *newest(struct pool *pool, int key)
{
    struct item *items = pool->keys[key].items;
    return items[0].version > items[1].version ? &items[0] : &items[1];
}

static struct item *oldest(struct pool *pool, int key)
{
    struct item *items = pool->keys[key].items;
    return items[0].version > items[1].version ? &items[1] : &items[0];
}

/* Called with the lock. */
static void replace(struct pool *pool, int key, uint64_t value)
{
    uint64_t version = newest(pool, key)->version + 1;
    struct item *item = oldest(pool, key);
    item->version = 0;
    pm_barrier();
    item->value = value;
    pm_barrier();
    item->version = version;
    pm_persist(item, sizeof *item);
}

static uint64_t execute(struct pool *pool, const char *command, int key, uint64_t argument)
{
    pthread_mutex_lock(&locks[key]);
    uint64_t value = newest(pool, key)->value;
    if (strcmp(command, "set") == 0)
        value = argument;
    if (strcmp(command, "incr") == 0)
        value++;
    if (strcmp(command, "get") != 0)
        replace(pool, key, value);
    pthread_mutex_unlock(&locks[key]);
    return value;
}

static void serve(struct pool *pool, int fd)
{
    char text[64], command[8];
    ssize_t length;
    while ((length = recv(fd, text, sizeof text - 1, 0)) > 0) {
        int key;
        unsigned long argument = 0;
        text[length] = 0;
        if (sscanf(text, "%7s %d %lu", command, &key, &argument) < 2 || key < 0 || key >= KEYS)
            break;
        length = snprintf(text, sizeof text, "%lu\r\n", execute(pool, command, key, argument));
        if (send(fd, text, (size_t)length, MSG_NOSIGNAL) != length)
            _exit(2);
    }
}

static unsigned long ask(int fd, const char *command, int key, unsigned long argument)
{
    char text[64];
    int length = snprintf(text, sizeof text, "%s %d %lu\r\n", command, key, argument);
    if (send(fd, text, (size_t)length, MSG_NOSIGNAL) != length)
        _exit(2);
    ssize_t got = recv(fd, text, sizeof text - 1, 0);
    if (got <= 0)
        _exit(2);
    text[got] = 0;
    return strtoul(text, NULL, 10);
}

/* Key 0 is incremented by all; the others belong to one client each. */
static void be_client(int index, int fd)
{
    unsigned long last = 0;
    for (int i = 0; i < COMMANDS; i++) {
        unsigned long counted = ask(fd, "incr", 0, 0);
        if (counted <= last)
            pm_fail("the counter went from %lu to %lu", last, counted);
        last = counted;
        ask(fd, "set", index + 1, 100 + (unsigned long)i);
        if (ask(fd, "get", index + 1, 0) != 100 + (unsigned long)i)
            pm_fail("a value is not what it was set to");
    }
    shutdown(fd, SHUT_WR);
}

static void thread(struct pool *pool, int index)
{
    if (index < CLIENTS)
        serve(pool, connections[index][0]);
    else
        be_client(index - CLIENTS, connections[index - CLIENTS][1]);
}

static void work(struct pool *pool)
{
    for (int i = 0; i < CLIENTS; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, connections[i]) != 0)
            _exit(2);
    }
    pm_threads(pool, 2 * CLIENTS, thread);
}

static void more(struct pool *pool)
{
    execute(pool, "incr", 0, 0);
    execute(pool, "set", 3, 7);
}

static void check(struct pool *pool)
{
    for (int key = 0; key < KEYS; key++) {
        const struct item *item = newest(pool, key);
        if (item->value && !item->version)
            pm_fail("key %d has no version", key);
        pm_print("%d %lu\n", key, item->value);
    }
}

RACE_MAIN

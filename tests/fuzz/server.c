/* A key-value server: one thread, lines of text over TCP or a Unix socket, any number of clients.
 *
 *     server POOL PORT         listens on 127.0.0.1; port 0 lets the system choose
 *     server POOL unix:PATH    listens on a socket of this name
 *     server POOL WHERE HOW    waits for clients by poll (as above), by epoll, or by accept alone, one client after the other
 *
 * It prints `listening on PORT` (or PATH), and serves until `shutdown`, or SIGTERM.
 *
 *     set KEY VALUE   get KEY   del KEY   incr KEY   keys   quit   shutdown
 *
 * Wrong: `incr` of a key that is not there makes an entry and writes nothing of it back. All other commands are right, and so is `incr` of a key that
 * is there.
 * Right: every answer comes after what it acknowledges is durable.
 *
 * server
 * seed: set a 1, get a
 * trigger: incr n | get n
 * shows: lost
 * bug: missing-flush @ entry
 */
#include "pm.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ENTRIES = 32, CLIENTS = 16, TEXT = 24 };

/* One line. A value is never changed: a new entry with a higher number takes the place of the old one. */
struct entry {
    PM_ALIGNED uint64_t number; /* 0: free */
    char key[TEXT];
    char value[TEXT];
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct entry entries[ENTRIES];
};

/* The highest number that was used. */
static uint64_t newest;

static void drop(struct entry *entry)
{
    entry->number = 0;
    pm_persist(&entry->number, sizeof entry->number);
}

static void open_pool(struct pool *pool)
{
    if (pm_is_new(&pool->magic))
        pm_created(&pool->magic);
    for (int i = 0; i < ENTRIES; i++) {
        if (pool->entries[i].number > newest)
            newest = pool->entries[i].number;
    }
    /* A crash between the new entry and the end of the old one leaves both. */
    for (int i = 0; i < ENTRIES; i++) {
        for (int j = 0; j < ENTRIES && pool->entries[i].number; j++) {
            if (pool->entries[j].number > pool->entries[i].number &&
                strncmp(pool->entries[i].key, pool->entries[j].key, TEXT) == 0)
                drop(&pool->entries[i]);
        }
    }
}

static struct entry *find(struct pool *pool, const char *key)
{
    for (int i = 0; i < ENTRIES; i++) {
        if (pool->entries[i].number && strncmp(pool->entries[i].key, key, TEXT) == 0)
            return &pool->entries[i];
    }
    return NULL;
}

static struct entry *free_entry(struct pool *pool)
{
    for (int i = 0; i < ENTRIES; i++) {
        if (!pool->entries[i].number)
            return &pool->entries[i];
    }
    return NULL;
}

/* What it holds counts from when the number is stored, which comes after the rest and lies in the same line. */
static void fill(struct entry *entry, const char *key, const char *value)
{
    struct entry made = {0};
    strncpy(made.key, key, TEXT - 1);
    strncpy(made.value, value, TEXT - 1);
    memcpy(entry->key, made.key, sizeof made.key);       /* @entry */
    memcpy(entry->value, made.value, sizeof made.value); /* @entry */
    pm_barrier();
    entry->number = ++newest; /* @entry */
}

/* False if there is no room. One entry stays free, so that what is there can be changed. */
static bool set(struct pool *pool, const char *key, const char *value)
{
    struct entry *old = find(pool, key), *made = free_entry(pool);
    int room = 0;
    for (int i = 0; i < ENTRIES; i++)
        room += pool->entries[i].number == 0;
    if (!made || (!old && room < 2))
        return false;
    fill(made, key, value);
    pm_persist(made, sizeof *made);
    if (old)
        drop(old);
    return true;
}

static bool incr(struct pool *pool, const char *key, char *value)
{
    struct entry *old = find(pool, key);
#ifdef BUG
    struct entry *made = free_entry(pool);
    if (!old && made) {
        strcpy(value, "1");
        fill(made, key, value);
        return true;
    }
#endif
    snprintf(value, TEXT, "%lu", (old ? strtoul(old->value, NULL, 10) : 0) + 1);
    return set(pool, key, value);
}

/* ---- clients ---- */

struct client {
    int fd;
    size_t length;
    char line[256];
};

/* A client that has gone is none of our business. */
static void answer(int fd, const char *text)
{
    char line[TEXT + 64];
    int length = snprintf(line, sizeof line, "%s\r\n", text);
    ssize_t sent = send(fd, line, (size_t)length, MSG_NOSIGNAL);
    (void)sent;
}

enum next { GO_ON, HANG_UP, SHUT_DOWN };

static enum next serve(struct pool *pool, int fd, char *line)
{
    char *state, *command = strtok_r(line, " ", &state), *key = strtok_r(NULL, " ", &state);
    char *value = strtok_r(NULL, " ", &state), counted[TEXT];
    if (!command)
        return GO_ON;
    bool fits = key && strlen(key) < TEXT && (!value || strlen(value) < TEXT);
    if (strcmp(command, "quit") == 0)
        return HANG_UP;
    if (strcmp(command, "shutdown") == 0)
        return SHUT_DOWN;
    if (strcmp(command, "keys") == 0) {
        for (int i = 0; i < ENTRIES; i++) {
            if (pool->entries[i].number)
                answer(fd, pool->entries[i].key);
        }
        answer(fd, ".");
    } else if (!fits) {
        answer(fd, "error");
    } else if (strcmp(command, "set") == 0 && value) {
        answer(fd, set(pool, key, value) ? "ok" : "full");
    } else if (strcmp(command, "get") == 0) {
        struct entry *entry = find(pool, key);
        answer(fd, entry ? entry->value : "none");
    } else if (strcmp(command, "del") == 0) {
        struct entry *entry = find(pool, key);
        if (entry)
            drop(entry);
        answer(fd, entry ? "ok" : "none");
    } else if (strcmp(command, "incr") == 0) {
        answer(fd, incr(pool, key, counted) ? counted : "full");
    } else {
        answer(fd, "error");
    }
    return GO_ON;
}

/* Takes what a client has sent, line by line. */
static enum next take(struct pool *pool, struct client *client)
{
    ssize_t got = recv(client->fd, client->line + client->length, sizeof client->line - 1 - client->length, 0);
    if (got <= 0)
        return got < 0 && errno == EINTR ? GO_ON : HANG_UP;
    client->length += (size_t)got;
    for (;;) {
        char *end = memchr(client->line, '\n', client->length);
        if (!end) {
            /* A line that does not fit is no command. */
            return client->length == sizeof client->line - 1 ? HANG_UP : GO_ON;
        }
        size_t used = (size_t)(end - client->line) + 1;
        *end = 0;
        if (end > client->line && end[-1] == '\r')
            end[-1] = 0;
        enum next next = serve(pool, client->fd, client->line);
        if (next != GO_ON)
            return next;
        client->length -= used;
        memmove(client->line, client->line + used, client->length);
    }
}

static int listen_on(const char *where)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_un un;
    } address = {0};
    socklen_t size;
    int fd;
    if (strncmp(where, "unix:", 5) == 0) {
        address.un.sun_family = AF_UNIX;
        strncpy(address.un.sun_path, where + 5, sizeof address.un.sun_path - 1);
        unlink(address.un.sun_path);
        size = sizeof address.un;
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
    } else {
        int yes = 1;
        address.in.sin_family = AF_INET;
        address.in.sin_port = htons((uint16_t)atoi(where));
        address.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        size = sizeof address.in;
        fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    }
    if (fd < 0 || bind(fd, &address.any, size) != 0 || listen(fd, 16) != 0) {
        pm_print_to(2, "%s: %m\n", where);
        _exit(2);
    }
    if (address.any.sa_family == AF_UNIX) {
        pm_print("listening on %s\n", where + 5);
    } else {
        size = sizeof address.in;
        getsockname(fd, &address.any, &size);
        pm_print("listening on %d\n", ntohs(address.in.sin_port));
    }
    return fd;
}

/* SIGTERM ends it in order, once it has nothing to do. */
static volatile sig_atomic_t ending;

static void end(int signal)
{
    (void)signal;
    ending = 1;
}

static void serve_by_poll(struct pool *pool, int listener)
{
    static struct client clients[CLIENTS];
    int count = 0;
    enum next next = GO_ON;
    while (next != SHUT_DOWN && !ending) {
        struct pollfd polled[CLIENTS + 1];
        for (int i = 0; i < count; i++)
            polled[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
        /* With no room for another client, it waits. */
        polled[count] = (struct pollfd){.fd = count < CLIENTS ? listener : -1, .events = POLLIN};
        if (poll(polled, (nfds_t)count + 1, -1) < 0)
            continue;
        /* Backwards, because the last client takes the place of one that goes. */
        bool connecting = polled[count].revents != 0;
        for (int i = count - 1; i >= 0 && next != SHUT_DOWN; i--) {
            if (!polled[i].revents)
                continue;
            next = take(pool, &clients[i]);
            if (next == HANG_UP) {
                close(clients[i].fd);
                clients[i] = clients[--count];
            }
        }
        if (connecting) {
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0)
                clients[count++] = (struct client){.fd = fd};
        }
    }
    for (int i = 0; i < count; i++)
        close(clients[i].fd);
}

static void serve_by_epoll(struct pool *pool, int listener)
{
    static struct client clients[CLIENTS];
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    enum next next = GO_ON;
    while (next != SHUT_DOWN && !ending) {
        if (epoll_wait(set, &event, 1, -1) < 1)
            continue;
        struct client *client = event.data.ptr;
        if (client) {
            next = take(pool, client);
            if (next == HANG_UP) {
                close(client->fd);
                client->fd = 0;
            }
            continue;
        }
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        for (int i = 0; i < CLIENTS && fd >= 0; i++) {
            if (clients[i].fd)
                continue;
            clients[i] = (struct client){.fd = fd};
            event = (struct epoll_event){.events = EPOLLIN, .data.ptr = &clients[i]};
            epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
            fd = -1;
        }
        if (fd >= 0)
            close(fd);
    }
    close(set);
}

/* One client after the other. */
static void serve_by_accept(struct pool *pool, int listener)
{
    enum next next = GO_ON;
    while (next != SHUT_DOWN && !ending) {
        struct client client = {.fd = accept(listener, NULL, NULL)};
        if (client.fd < 0)
            continue;
        do
            next = take(pool, &client);
        while (next == GO_ON && !ending);
        close(client.fd);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) {
        pm_print_to(2, "usage: %s POOL PORT|unix:PATH [poll|epoll|accept]\n", argv[0]);
        return 2;
    }
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    struct pool *pool = pm_map(argv[1], sizeof *pool);
    open_pool(pool);
    int listener = listen_on(argv[2]);
    if (argc == 4 && strcmp(argv[3], "epoll") == 0)
        serve_by_epoll(pool, listener);
    else if (argc == 4 && strcmp(argv[3], "accept") == 0)
        serve_by_accept(pool, listener);
    else
        serve_by_poll(pool, listener);
    close(listener);
    munmap(pool, sizeof *pool);
    return 0;
}

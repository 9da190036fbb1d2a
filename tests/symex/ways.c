/* Takes keys by the way that its first argument says: "file NAME", "map NAME", "words KEY…", "serve", which is for one client, or "fork", which has a process of its own for it. The pool is its last argument. The bug is there with
 * -DBUG, and shows with a key of 4242.
 */
#include "symex.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* A key of so many digits, and nothing else; -1 if it is none. */
static long key(const char *text, size_t length)
{
    long number = 0;
    if (length == 0)
        return -1;
    for (size_t n = 0; n < length; n++) {
        if (text[n] < '0' || text[n] > '9')
            return -1;
        number = number * 10 + (text[n] - '0');
    }
    return number;
}

static void special(struct pool *pool, long number)
{
    if (number < 0)
        return;
    if (number == 4242) {
        pool->special = number; /* @bug */
#ifndef BUG
        persist(&pool->special);
#endif
    }
    pool->last = number;
    persist(&pool->last);
}

static void serve(struct pool *pool, int forks)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7070)};
    if (bind(listener, (struct sockaddr *)&any, sizeof any) != 0 || listen(listener, 5) != 0)
        _exit(3);
    char buffer[64];
    int client = accept(listener, NULL, NULL);
    if (forks && fork() != 0) {
        close(client);
        wait(NULL);
        return;
    }
    ssize_t length = recv(client, buffer, sizeof buffer, 0);
    if (length > 4 && memcmp(buffer, "put ", 4) == 0)
        special(pool, key(buffer + 4, length - 4));
    close(client);
}

int main(int argc, char **argv)
{
    struct pool *pool = open_pool(argv[argc - 1]);
    int forks = strcmp(argv[1], "fork") == 0;
    if (forks || strcmp(argv[1], "serve") == 0) {
        serve(pool, forks);
        return 0;
    }
    if (strcmp(argv[1], "words") == 0) {
        for (int n = 2; n < argc - 1; n++)
            special(pool, key(argv[n], strlen(argv[n])));
        return 0;
    }
    int fd = open(argv[2], O_RDONLY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        return 2;
    char buffer[64];
    if (strcmp(argv[1], "map") == 0) {
        const char *text = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (text == MAP_FAILED)
            return 2;
        special(pool, key(text, status.st_size));
    } else {
        ssize_t length = read(fd, buffer, sizeof buffer);
        special(pool, key(buffer, length < 0 ? 0 : length));
    }
    return 0;
}

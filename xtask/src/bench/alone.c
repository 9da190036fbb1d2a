/* Numbered records in a pool, for a program that must be alone: it has a lock file, or a port.
 *
 *     alone lock|PORT POOL store RECORDS     stores so many records, one after the other
 *     alone lock|PORT POOL recover WORK      looks at all of them, WORK times
 *
 * A record is persistent before it is counted, so every crash leaves what `recover` accepts. What it does besides is what such programs
 * do: it locks a file that nobody else may have locked, or binds a port that nobody else may have bound.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECORDS = 4096 };

struct pool {
    _Alignas(64) uint64_t count;
    struct {
        _Alignas(64) uint64_t number;
        uint64_t square;
    } records[RECORDS];
};

static void must(int fine, const char *what)
{
    if (!fine) {
        perror(what);
        exit(1);
    }
}

/* To the compiler, a write-back is no reason to keep stores in order. */
static void persist(const void *line)
{
    __asm__ volatile("" ::: "memory");
    _mm_clflush(line);
    _mm_sfence();
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: alone lock|PORT POOL store|recover NUMBER\n");
        return 2;
    }
    int has_port = strcmp(argv[1], "lock") != 0;
    if (has_port) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1])) };
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int server = socket(AF_INET, SOCK_STREAM, 0);
        must(bind(server, (struct sockaddr *)&at, sizeof at) == 0 && listen(server, 1) == 0, "port");
    } else {
        int lock = open("lock", O_RDWR | O_CREAT, 0600);
        must(lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0, "lock");
    }
    int fd = open(argv[2], O_RDWR);
    must(fd >= 0, "pool");
    struct pool *pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(pool != MAP_FAILED, "mmap");
    uint64_t number = strtoull(argv[4], NULL, 10), sum = 0;
    if (strcmp(argv[3], "store") == 0) {
        for (uint64_t i = 0; i < number && i < RECORDS; i++) {
            pool->records[i].number = i + 1;
            pool->records[i].square = (i + 1) * (i + 1);
            persist(&pool->records[i]);
            pool->count = i + 1;
            persist(&pool->count);
        }
    } else {
        for (uint64_t i = 0; i < pool->count; i++) {
            uint64_t at = pool->records[i].number, square = pool->records[i].square;
            if (at != i + 1 || square != at * at) {
                fprintf(stderr, "record %lu is damaged\n", i);
                return 1;
            }
            sum += square;
        }
        for (uint64_t i = 0; i < number * 1000; i++)
            sum = sum * 6364136223846793005u + i;
        printf("%lu records\n", pool->count);
        if (sum == 1)
            puts("what a coincidence");
    }
    return 0;
}

/* Two threads in turn: one stores a number, the other one reads it, writes it back, and only then adds it to a sum.
 *
 * Right: a crash never leaves a sum with a number in it that is lost. But the sum depends on more early reads than are
 * told apart, all of which but the last are of bytes that are persistent by then.
 */
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct pool {
    _Alignas(64) uint64_t x;
    _Alignas(64) uint64_t sum;
};

static struct pool *p;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int turn;
enum { N = 400 };

static void persist(void *a)
{
    _mm_clflush(a);
    _mm_sfence();
}

static void *adds(void *unused)
{
    for (int i = 0; i < N; i++) {
        pthread_mutex_lock(&m);
        while (!turn) pthread_cond_wait(&c, &m);
        uint64_t v = p->x;
        persist(&p->x);
        p->sum += v;
        persist(&p->sum);
        turn = 0;
        pthread_cond_signal(&c);
        pthread_mutex_unlock(&m);
    }
    return unused;
}

int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return 2;
    if (argc > 2) {
        printf("%lu\n", p->sum);
        return 0;
    }
    pthread_t t;
    pthread_create(&t, 0, adds, 0);
    for (int i = 0; i < N; i++) {
        pthread_mutex_lock(&m);
        while (turn) pthread_cond_wait(&c, &m);
        p->x = i + 1;
        turn = 1;
        pthread_cond_signal(&c);
        pthread_mutex_unlock(&m);
    }
    pthread_join(t, 0);
    persist(&p->x);
    return 0;
}

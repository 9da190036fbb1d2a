/* Two threads exclude each other by a token in a pipe, which they take by the bare instruction: no lock that can be seen by looking at calls of
 * functions keeps them apart, so it is predicted that one reads the other's store before it is durable; and no schedule shows it.
 *
 *     PROG POOL             adds to a number, and copies it, some times each
 *     PROG POOL recover     exit status 1 if the copy is larger than the number
 */
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static int pipes[2];
static uint64_t *pool;
static long call(long number, long a, const void *b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
static void take(void) { char c; while (call(SYS_read, pipes[0], &c, 1) != 1) {} }
static void give(void) { char c = 0; call(SYS_write, pipes[1], &c, 1); }
static void persist(void *at) { _mm_clflush(at); _mm_sfence(); }
static void *writes(void *argument)
{
    for (int i = 0; i < 8; i++) {
        take();
        ((volatile uint64_t *)pool)[0]++;
        persist(pool);
        give();
    }
    return argument;
}
static void *reads(void *argument)
{
    for (int i = 0; i < 8; i++) {
        take();
        uint64_t number = ((volatile uint64_t *)pool)[0];
        ((volatile uint64_t *)pool)[8] = number;
        persist(pool + 8);
        give();
    }
    return argument;
}
int main(int argc, char **argv)
{
    int fd = open(argv[argc > 2 ? 1 : argc - 1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0 || pipe(pipes) != 0)
        return 2;
    pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (argc > 2)
        return pool[8] > pool[0];
    pthread_t threads[2];
    give();
    pthread_create(&threads[0], NULL, writes, NULL);
    pthread_create(&threads[1], NULL, reads, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

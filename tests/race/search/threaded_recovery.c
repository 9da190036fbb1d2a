/* A counter that is made durable after its lock is released, and receipts with its numbers, as in counter_value.c. Recovery has two threads, and its end
 * depends on which of them comes first: the main thread takes its time before it says that it is ready, and a helper that comes to it before gives up.
 * Under a schedule nobody is interrupted in recovery, so that it always ends well on a pool that is as it should be.
 *
 *     PROG POOL             counts, and writes receipts
 *     PROG POOL recover     exit status 1 if there is a receipt for more than was counted; 3 if the helper comes too early
 */
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile uint64_t *pool;
static volatile int is_ready, is_early;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void persist(int at)
{
    _mm_clflush((const void *)(pool + at));
    _mm_sfence();
}
static void *count(void *argument)
{
    for (int i = 0; i < 6; i++) {
        pthread_mutex_lock(&lock);
        pool[0]++;
#ifndef BUG
        persist(0);
#endif
        pthread_mutex_unlock(&lock);
#ifdef BUG
        persist(0);
#endif
    }
    return argument;
}
static void *take(void *argument)
{
    for (int i = 0; i < 6; i++) {
        pthread_mutex_lock(&lock);
        uint64_t number = pool[0];
        pthread_mutex_unlock(&lock);
        pool[8] = number;
        persist(8);
    }
    return argument;
}
/* In few steps: whoever makes many counts as somebody who waits, and gives way to the others. */
static void take_time(void)
{
    static char space[1 << 20];
    for (int i = 0; i < 600; i++) {
        void *at = space;
        unsigned long count = sizeof space;
        __asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(0) : "memory");
    }
}
static void *help(void *argument)
{
    is_early = !is_ready;
    return argument;
}
int main(int argc, char **argv)
{
    int fd = open(argv[argc > 2 ? 1 : argc - 1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_t threads[2];
    if (argc > 2) {
        if (pool[8] > pool[0])
            return 1;
        pthread_create(&threads[0], NULL, help, NULL);
        take_time();
        is_ready = 1;
        pthread_join(threads[0], NULL);
        return is_early ? 3 : 0;
    }
    pthread_create(&threads[0], NULL, count, NULL);
    pthread_create(&threads[1], NULL, take, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

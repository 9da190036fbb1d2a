/* What the programs of this folder share.
 *
 *     PROG FILE    runs, notes in FILE what its threads see, prints one line, and ends
 *
 * They have no bug. Each uses threads in one way, notes what depends on their order in a mapped file, which is
 * persistent memory to a tool, and prints what is the same for every order, or one of few possibilities. Nothing
 * is read from FILE, so it does not matter what it held.
 */
#ifndef REPLAY_H
#define REPLAY_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOTES = 1024 };

static uint64_t *notes;
static uint64_t note_count;

/* What somebody has seen, in the order of the calls. Safe in signal handlers. */
__attribute__((unused)) static void note(uint64_t what)
{
    uint64_t at = __atomic_fetch_add(&note_count, 1, __ATOMIC_SEQ_CST) % NOTES;
    __atomic_store_n(&notes[at], what, __ATOMIC_RELEASE);
    _mm_clflush(&notes[at]);
    _mm_sfence();
}

__attribute__((unused)) static void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

static void open_notes(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        exit(2);
    }
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    must(fd >= 0 && ftruncate(fd, NOTES * sizeof *notes) == 0, argv[1]);
    notes = mmap(NULL, NOTES * sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(notes != MAP_FAILED, argv[1]);
    close(fd);
}

/* Starts `count` threads; each is told which it is. */
__attribute__((unused)) static void start_all(pthread_t *threads, int count, void *(*body)(void *))
{
    for (int i = 0; i < count; i++)
        must(pthread_create(&threads[i], NULL, body, (void *)(intptr_t)i) == 0, "pthread_create");
}

__attribute__((unused)) static void join_all(pthread_t *threads, int count)
{
    for (int i = 0; i < count; i++)
        must(pthread_join(threads[i], NULL) == 0, "pthread_join");
}

/* From now, for functions that wait until then. */
__attribute__((unused)) static struct timespec after(clockid_t clock, long nanoseconds)
{
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += nanoseconds;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

#endif

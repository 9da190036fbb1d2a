// Eight threads: disjoint words, shared words by atomics, and plain stores racing on shared lines.
// build: dynamic static
// args: POOL
// flags: -fno-strict-aliasing
//
// The recorded order must explain the final content even where the race's outcome is open, so the
// program checks only what is certain: atomic totals and each thread's own words.
#include "pm_pool.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, ROUNDS = 20000 };
struct layout {
    uint64_t own[THREADS][8];         // one line each
    uint64_t mixed[64][THREADS];      // every line shared by all, one word each
    uint64_t racing[64];              // everybody stores here without order
    _Atomic uint64_t total;
    uint8_t bytes[64];                // plain byte and wide stores overlap
    _Atomic uint64_t tickets[8];
    _Alignas(16) unsigned __int128 wide;
};
static struct layout *shared;
static pthread_barrier_t barrier;

static void *worker(void *arg)
{
    unsigned id = (unsigned)(uintptr_t)arg;
    uint64_t s = id + 1;
    pthread_barrier_wait(&barrier);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t r = next_random(&s);
        shared->own[id][i % 8] = i;
        shared->mixed[r % 64][id] = i + id;
        *(volatile uint64_t *)&shared->racing[r / 64 % 64] = (uint64_t)id << 56 | i;
        shared->total += id;
        switch (i % 4) {
        case 0: *(volatile uint8_t *)&shared->bytes[r % 64] = (uint8_t)id; break;
        case 1: *(volatile uint32_t *)&shared->bytes[r % 60] = (uint32_t)i; break; // misaligned, may cross words
        case 2: *(volatile uint64_t *)&shared->bytes[r % 56] = i * id; break;
        case 3: __asm__ volatile("movdqu %%xmm0,%0" : "=m"(*(char(*)[16])&shared->bytes[r % 48])); break;
        }
        atomic_fetch_add_explicit(&shared->tickets[r % 8], 1, memory_order_relaxed);
        if (i % 16 == 0) {
            uint64_t old_low, old_high, ok;
            do {
                old_low = ((volatile uint64_t *)&shared->wide)[0];
                old_high = ((volatile uint64_t *)&shared->wide)[1];
                uint64_t low = old_low + 1, high = old_high + (low == 0);
                unsigned char z;
                __asm__ volatile("lock cmpxchg16b %1\n setz %0"
                                 : "=q"(z), "+m"(shared->wide), "+a"(old_low), "+d"(old_high)
                                 : "b"(low), "c"(high)
                                 : "cc");
                ok = z;
            } while (!ok);
        }
        if (i % 64 == 0) {
            PM_CLWB(&shared->own[id]);
            PM_SFENCE();
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 1 << 20);
    shared = (struct layout *)pool.base;
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_t t[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&t[i], NULL, worker, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    CHECK_EQ(shared->total, (uint64_t)ROUNDS * 28);
    uint64_t tickets = 0;
    for (int i = 0; i < 8; i++)
        tickets += shared->tickets[i];
    CHECK_EQ(tickets, (uint64_t)ROUNDS * THREADS);
    CHECK_EQ((uint64_t)shared->wide, (uint64_t)ROUNDS / 16 * THREADS);
    for (int id = 0; id < THREADS; id++)
        for (int k = 0; k < 8; k++)
            CHECK_EQ(shared->own[id][k], ROUNDS - 8 + k);
    for (int i = 0; i < 64; i++)
        CHECK(shared->racing[i] >> 56 < THREADS);
    pool_check_file(pool);
    printf("threads ok %lu\n", (uint64_t)shared->total);
    return 0;
}

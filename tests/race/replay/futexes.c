/* Futexes without the C library: wait and wake, wake by bits, requeue from one word to another, and a wait that finds
 * another value.
 *
 * prints: through 6
 */
#include "replay.h"
#include <linux/futex.h>

enum { WAITERS = 6 };

static uint32_t gate, second, through, waiting;

static long futex(uint32_t *word, int what, uint32_t value, uint64_t other, uint32_t *to, uint32_t bits)
{
    return syscall(SYS_futex, word, what, value, other, to, bits);
}

/* The gate is opened, then a second one; each thread passes both, in whatever order it is woken. */
static void *body(void *argument)
{
    uint64_t index = (uint64_t)(intptr_t)argument;
    __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&gate, __ATOMIC_ACQUIRE) == 0) {
        if (index % 2 == 0)
            futex(&gate, FUTEX_WAIT_PRIVATE, 0, 0, NULL, 0);
        else
            futex(&gate, FUTEX_WAIT_BITSET_PRIVATE, 0, 0, NULL, 1U << index);
    }
    while (__atomic_load_n(&second, __ATOMIC_ACQUIRE) == 0)
        futex(&second, FUTEX_WAIT_PRIVATE, 0, 0, NULL, 0);
    note(index << 32 | __atomic_add_fetch(&through, 1, __ATOMIC_SEQ_CST));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[WAITERS];
    open_notes(argc, argv);
    start_all(threads, WAITERS, body);
    while (__atomic_load_n(&waiting, __ATOMIC_ACQUIRE) < WAITERS / 2)
        sched_yield();
    /* Not what is there: returns at once. */
    must(futex(&gate, FUTEX_WAIT_PRIVATE, 7, 0, NULL, 0) == -1 && errno == EAGAIN, "futex");
    futex(&gate, FUTEX_WAKE_BITSET_PRIVATE, 1, 0, NULL, 1U << 1 | 1U << 3);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    note((uint64_t)futex(&gate, FUTEX_REQUEUE_PRIVATE, 1, 2, &second, 0));
    futex(&gate, FUTEX_WAKE_PRIVATE, WAITERS, 0, NULL, 0);
    __atomic_store_n(&second, 1, __ATOMIC_RELEASE);
    futex(&second, FUTEX_WAKE_PRIVATE, WAITERS, 0, NULL, 0);
    join_all(threads, WAITERS);
    printf("through %u\n", through);
    return 0;
}

/* A stack of numbers without locks: four threads push, four pop until all is popped.
 *
 * prints: popped 24, sum 300
 */
#include "replay.h"

enum { PAIRS = 4, ITEMS = 6, ALL = PAIRS * ITEMS };

/* version << 32 | number of the item on top, from 1 */
static uint64_t head;
static uint32_t next[ALL + 1];
static uint64_t popped, sum;

static void push(uint32_t item)
{
    uint64_t old = __atomic_load_n(&head, __ATOMIC_ACQUIRE), new;
    do {
        next[item] = (uint32_t)old;
        new = ((old >> 32) + 1) << 32 | item;
    } while (!__atomic_compare_exchange_n(&head, &old, new, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

static uint32_t pop(void)
{
    uint64_t old = __atomic_load_n(&head, __ATOMIC_ACQUIRE), new;
    do {
        if ((uint32_t)old == 0)
            return 0;
        new = ((old >> 32) + 1) << 32 | __atomic_load_n(&next[(uint32_t)old], __ATOMIC_RELAXED);
    } while (!__atomic_compare_exchange_n(&head, &old, new, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return (uint32_t)old;
}

static void *body(void *argument)
{
    int index = (int)(intptr_t)argument;
    if (index < PAIRS) {
        for (int i = 0; i < ITEMS; i++)
            push((uint32_t)(index * ITEMS + i + 1));
        return NULL;
    }
    while (__atomic_load_n(&popped, __ATOMIC_ACQUIRE) < ALL) {
        uint32_t item = pop();
        if (!item) {
            sched_yield();
            continue;
        }
        note((uint64_t)index << 32 | item);
        __atomic_add_fetch(&sum, item, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&popped, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2 * PAIRS];
    open_notes(argc, argv);
    start_all(threads, 2 * PAIRS, body);
    join_all(threads, 2 * PAIRS);
    printf("popped %lu, sum %lu\n", popped, sum);
    return 0;
}

/* A list in persistent memory, annotated for PMTest, in the paper's spelling (push) and in that of the release (pop).
 *
 *     pmtest_list POOL good|bad
 *
 * bad: one push stores the head before the node is persistent. Both are written back and fenced, so the end is the
 * same, but a crash in between may find a head that names an empty node. Exactly one assertion fails, at @order: not-ordered.
 * good: each push persists the node first. All assertions hold.
 *
 * Either way it counts its operations in the pool and never writes that back, which PMTest_EXCLUDE says is intended.
 */
#define _GNU_SOURCE
#include "pmtest.h"

#include <cpuid.h>
#include <fcntl.h>
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64, NODES = 16 };

/* A node's number in the list's array, plus one; 0 is the end of the list. */
typedef uint64_t link_t;

struct node {
    _Alignas(LINE) link_t next;
    uint64_t value;
};

struct list {
    _Alignas(LINE) link_t head;
    _Alignas(LINE) uint64_t operations;
    struct node nodes[NODES];
};

static bool has_clwb;

static void ask_processor(void)
{
    unsigned eax, ebx, ecx, edx;
    has_clwb = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx >> 24 & 1) != 0;
}

__attribute__((target("clwb"))) static void clwb(void *line)
{
    _mm_clwb(line);
}

/* `what` lies in one cache line. */
static void flush(void *what)
{
    if (has_clwb)
        clwb(what);
    else
        _mm_clflush(what);
}

static void persist(void *what)
{
    flush(what);
    _mm_sfence();
}

static void push(struct list *list, uint64_t number, uint64_t value, bool node_first)
{
    struct node *node = &list->nodes[number];

    TX_CHECKER_START;
    node->value = value;
    node->next = list->head;
    if (node_first) {
        persist(node);
        isPersist(node, sizeof *node);
    }
    list->head = number + 1;
    isOrderedBefore(node, sizeof *node, &list->head, sizeof list->head); /* @order */
    if (!node_first)
        flush(node);
    persist(&list->head);
    isPersist(&list->head, sizeof list->head);
    list->operations++;
    TX_CHECKER_END;
    PMTest_SEND_TRACE;
}

static uint64_t pop(struct list *list, void *instance)
{
    struct node *node = &list->nodes[list->head - 1];

    PMTest_CHECKER_START;
    list->head = node->next;
    PMTest_isPersistedBefore(node, sizeof *node, &list->head, sizeof list->head);
    persist(&list->head);
    PMTest_isPersistent(&list->head, sizeof list->head);
    list->operations++;
    PMTest_CHECKER_END;
    PMTest_sendTrace(instance);
    return node->value;
}

/* The head by its name, as a function does that does not know the list. */
static void check_head(void)
{
    brownout_size size;
    void *head = PMTest_GET_VAR("head", &size);
    isPersist(head, size);
}

int main(int argc, char **argv)
{
    if (argc != 3 || (strcmp(argv[2], "good") != 0 && strcmp(argv[2], "bad") != 0)) {
        fprintf(stderr, "usage: %s POOL good|bad\n", argv[0]);
        return 2;
    }
    const bool bad = strcmp(argv[2], "bad") == 0;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct list)) != 0) {
        perror(argv[1]);
        return 2;
    }
    struct list *list = mmap(NULL, sizeof *list, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (list == MAP_FAILED) {
        perror("mmap");
        return 2;
    }

    ask_processor();
    void *instance;
    PMTest_init(instance, NODES);
    PMTest_THREAD_INIT();
    PMTest_START;
    PMTest_EXCLUDE(&list->operations, sizeof list->operations);
    PMTest_REG_VAR("head", &list->head, sizeof list->head);

    for (uint64_t number = 0; number < 8; number++)
        push(list, number, 100 + number, !(bad && number == 5));
    check_head();
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += pop(list, instance);
    check_head();

    PMTest_UNREG_VAR("head");
    PMTest_END;
    PMTest_GET_RESULT;
    PMTest_exit(instance);

    printf("popped %llu, head %llu\n", (unsigned long long)sum, (unsigned long long)list->head);
    return sum == 107 + 106 + 105 + 104 && list->head == 4 ? 0 : 1;
}

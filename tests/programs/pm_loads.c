// Every load from the pool is one known instruction; the expected (offset, size) list is printed.
// build: dynamic
// args: POOL
// flags: -fno-tree-vectorize -fno-tree-loop-distribute-patterns
//
// Output lines `load OFFSET SIZE` in program order are what a recording with loads must contain, no
// more and no less. Nothing else in this program reads the pool.
#include "pm_pool.h"

static unsigned char *base;
static char text[1 << 20];
static int text_len;
static void expect(unsigned long offset, int size)
{
    text_len += snprintf(text + text_len, sizeof text - (size_t)text_len, "load %lu %d\n", offset, size);
    CHECK(text_len < (int)sizeof text - 64);
}

#define LOAD(insn, reg, off, size)                                                                 \
    do {                                                                                           \
        __asm__ volatile(insn " (%0),%%" reg ::"D"(base + (off)) : "rax", "memory", "xmm0");       \
        expect(off, size);                                                                         \
    } while (0)

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 1 << 16);
    base = pool.base;
    for (int i = 0; i < 512; i++)
        PM_STORE64(base + i * 8, i); // stores only
    uint64_t s = 5;
    for (int i = 0; i < 1000; i++) {
        unsigned long off = next_random(&s) % 4000;
        switch (next_random(&s) % 8) {
        case 0: LOAD("movb", "al", off, 1); break;
        case 1: LOAD("movw", "ax", off, 2); break;
        case 2: LOAD("movl", "eax", off, 4); break;
        case 3: LOAD("movq", "rax", off, 8); break;
        case 4: LOAD("movzbl", "eax", off, 1); break;
        case 5: LOAD("movdqu", "xmm0", off, 16); break;
        case 6: LOAD("cmpq", "rax", off, 8); break;
        case 7: LOAD("movsd", "xmm0", off, 8); break;
        }
        PM_STORE64(base + 8192 + i * 8, i);
    }
    // A pointer chase, as a list walk does it.
    for (unsigned long i = 0; i < 50; i++)
        PM_STORE64(base + 32768 + i * 128, 32768 + (i * 17 + 1) % 50 * 128);
    uint64_t at = 32768;
    for (int i = 0; i < 50; i++) {
        expect(at, 8);
        __asm__ volatile("movq (%1,%0),%0" : "+r"(at) : "r"(base));
    }
    fwrite(text, 1, (size_t)text_len, stdout);
    return 0;
}

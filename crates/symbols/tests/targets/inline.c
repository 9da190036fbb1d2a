/* Prints code addresses of its own, and where its code is mapped. */
#include <stdio.h>

static inline __attribute__((always_inline)) void *deepest(void) {
    void *pc;
    __asm__ volatile("lea 0f(%%rip), %0\n0: nop" : "=r"(pc)); /* PC */
    return pc;
}

static inline __attribute__((always_inline)) void *middle(void) {
    return deepest(); /* MIDDLE */
}

__attribute__((noinline)) void *outer(void) {
    void *pc = middle(); /* OUTER */
    __asm__ volatile("" ::: "memory");
    return pc;
}

__attribute__((noinline)) void *return_address(void) {
    return __builtin_return_address(0);
}

__attribute__((noinline)) void *caller(void) {
    void *address = return_address(); /* CALL */
    __asm__ volatile("" ::: "memory");
    return address;
}

int main(void) {
    printf("pc %p\nreturn %p\n", outer(), caller());
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; (c = getc(maps)) != EOF;)
        putchar(c);
    return 0;
}

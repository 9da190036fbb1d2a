// A stack inside the pool: push, pop, call, ret, enter, leave and locals are all accesses to PM.
// build: dynamic
// args: POOL
// flags: -fno-stack-protector
//
// No signal arrives while the stack is there, and nothing of libc runs on it.
#include "pm_pool.h"

uint64_t on_stack(void *top, uint64_t n);
__asm__(".text\n.globl on_stack\non_stack:\n"
        "push %rbx\n push %rbp\n mov %rsp,%rbx\n mov %rdi,%rsp\n"
        "xor %eax,%eax\n"
        "1: push %rsi\n push $7\n pushw $3\n pushfq\n"
        "call 2f\n add %rcx,%rax\n"
        "popfq\n popw %cx\n pop %rcx\n add %rcx,%rax\n pop %rcx\n add %rcx,%rax\n"
        "dec %rsi\n jnz 1b\n"
        "mov %rbx,%rsp\n pop %rbp\n pop %rbx\n ret\n"
        "2: enter $32,$0\n mov %rsi,-8(%rbp)\n mov -8(%rbp),%rcx\n lea (%rcx,%rcx),%rcx\n mov %rcx,8(%rsp)\n leave\n ret\n");

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 1 << 16);
    uint64_t sum = 0, want = 0;
    for (uint64_t n = 1; n <= 200; n++) {
        sum += on_stack(pool.base + 32768 + n % 5 * 8, n);
        for (uint64_t i = 1; i <= n; i++)
            want += 2 * i + 7 + i;
    }
    CHECK_EQ(sum, want);
    pool_check_file(pool);
    printf("stack in the pool ok %lu\n", sum);
    return 0;
}

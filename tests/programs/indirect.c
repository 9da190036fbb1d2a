// Indirect branches of all kinds, many targets each: computed goto, switch tables, function
// pointers, virtual-like tables, returns without calls, calls without returns, ret imm16.
// build: dynamic static nopie
#include "harness.h"

static uint64_t interpreter(const unsigned char *code, long n)
{
    static void *const labels[8] = {&&l0, &&l1, &&l2, &&l3, &&l4, &&l5, &&l6, &&l7};
    uint64_t acc = 1;
    const unsigned char *end = code + n;
#define NEXT                                                                                       \
    if (code == end)                                                                               \
        return acc;                                                                                \
    goto *labels[*code++ & 7]
    NEXT;
l0: acc += 3; NEXT;
l1: acc ^= acc >> 7; NEXT;
l2: acc *= 5; NEXT;
l3: acc -= 11; NEXT;
l4: acc = acc << 3 | acc >> 61; NEXT;
l5: acc += (uint64_t)code[-1]; NEXT;
l6: acc ^= 0x55; NEXT;
l7: acc = ~acc; NEXT;
}

static uint64_t switcher(const unsigned char *code, long n)
{
    uint64_t acc = 1;
    for (long i = 0; i < n; i++)
        switch (code[i] & 7) {
        case 0: acc += 3; break;
        case 1: acc ^= acc >> 7; break;
        case 2: acc *= 5; break;
        case 3: acc -= 11; break;
        case 4: acc = acc << 3 | acc >> 61; break;
        case 5: acc += (uint64_t)code[i]; break;
        case 6: acc ^= 0x55; break;
        case 7: acc = ~acc; break;
        }
    return acc;
}

// 4096 distinct functions by assembler macro, each: lea i(%rdi),%rax ; ret, 16 bytes apart.
extern char many_functions[];
__asm__(".text\n.p2align 4\n.globl many_functions\nmany_functions:\n"
        ".set i,0\n.rept 4096\n lea i(%rdi),%rax\n ret\n .p2align 4\n.set i,i+1\n.endr\n");

// Odd control flow.
uint64_t push_ret(uint64_t x), ret_imm(uint64_t x), call_pop(uint64_t x), jmp_mem(uint64_t x), tail(uint64_t x),
    swap_return(uint64_t x), call_rsp(uint64_t x), ret_chain(uint64_t x), call_next(uint64_t x), stack_mem(uint64_t x);
// clang-format off
__asm__(".text\n"
        "push_ret: lea 1f(%rip),%rax\n push %rax\n ret\n 1: lea 1(%rdi),%rax\n ret\n"
        "ret_imm: push $1\n push $2\n push $3\n call 2f\n ret\n 2: lea 2(%rdi),%rax\n ret $24\n"
        "call_pop: call 3f\n 3: pop %rax\n lea 3b(%rip),%rcx\n sub %rcx,%rax\n lea 3(%rdi,%rax),%rax\n ret\n"
        "jmp_mem: lea 4f(%rip),%rax\n mov %rax,-16(%rsp)\n jmp *-16(%rsp)\n 4: lea 4(%rdi),%rax\n ret\n"
        "tail: add $1,%rdi\n jmp push_ret\n"
        // Replaces its own return address before returning.
        "swap_return: call 5f\n lea 100(%rdi),%rax\n ret\n 6: lea 6(%rdi),%rax\n ret\n"
        "5: lea 6b(%rip),%rax\n mov %rax,(%rsp)\n ret\n"
        // call through a slot that the call itself overwrites' neighbour: target is read first.
        "call_rsp: lea 7f(%rip),%rax\n push %rax\n call *(%rsp)\n pop %rcx\n ret\n 7: lea 7(%rdi),%rax\n ret\n"
        // Three return addresses pushed by hand, as a ROP chain does.
        "ret_chain: mov %rdi,%rax\n lea 8f(%rip),%rcx\n push %rcx\n push %rcx\n push %rcx\n ret\n"
        "8: add $1,%rax\n lea 8b(%rip),%rdx\n cmp %rdx,(%rsp)\n je 9f\n ret\n 9: ret\n"
        "call_next: call 10f\n 10: add $8,%rsp\n lea 9(%rdi),%rax\n ret\n"
        // Indirect call by memory with rsp-relative index after the stack moved.
        "stack_mem: lea 11f(%rip),%rax\n sub $24,%rsp\n mov %rax,8(%rsp)\n call *8(%rsp)\n add $24,%rsp\n ret\n"
        "11: lea 10(%rdi),%rax\n ret\n");
// clang-format on

typedef uint64_t (*fn)(uint64_t);

int main(void)
{
    static unsigned char code[200000];
    uint64_t s = 7;
    for (unsigned i = 0; i < sizeof code; i++)
        code[i] = (unsigned char)next_random(&s);
    uint64_t a = 0;
    for (int i = 0; i < 20; i++) {
        a = interpreter(code, sizeof code);
        CHECK(a == switcher(code, sizeof code));
    }
    uint64_t sum = 0;
    for (int i = 0; i < 2000000; i++) {
        unsigned k = (unsigned)(next_random(&s) >> 40) & 4095;
        uint64_t r = ((fn)(many_functions + 16 * k))((uint64_t)i);
        if (r != (uint64_t)i + k)
            FAIL("function %u returned %lu", k, r);
        sum += r;
    }
    fn odd[] = {push_ret, ret_imm, call_pop, jmp_mem, tail, swap_return, call_rsp, ret_chain, call_next, stack_mem};
    static const uint64_t want[] = {1, 2, 3, 4, 2, 6, 7, 3, 9, 10};
    for (int i = 0; i < 20000; i++)
        for (int k = 0; k < 10; k++)
            if (odd[k]((uint64_t)i) != (uint64_t)i + want[k])
                FAIL("odd flow %d: %lu", k, odd[k]((uint64_t)i) - (uint64_t)i);
    printf("indirect %lx %lx\n", a, sum);
    return 0;
}

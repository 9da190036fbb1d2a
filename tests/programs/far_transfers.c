// Far returns, iret and far jumps inside 64-bit user code, as some language runtimes and emulators use them.
// build: dynamic static nopie
#include "harness.h"
#include <sys/mman.h>

uint64_t by_lretq(uint64_t x), by_iretq(uint64_t x);
// clang-format off
__asm__(".text\n"
        "by_lretq: mov %cs,%eax\n push %rax\n lea 1f(%rip),%rax\n push %rax\n lretq\n ud2\n"
        "1: lea 1(%rdi),%rax\n ret\n"
        "by_iretq: mov %rsp,%rdx\n mov %ss,%eax\n push %rax\n push %rdx\n pushfq\n mov %cs,%eax\n push %rax\n"
        "lea 2f(%rip),%rax\n push %rax\n iretq\n ud2\n"
        "2: lea 2(%rdi),%rax\n ret\n"
        // As by_lretq, with words of 32 bits and arguments that the callee pops.
        "by_lret: mov %rsp,%rdx\n mov %esi,%esp\n sub $4,%rsp\n mov %cs,(%rsp)\n sub $4,%rsp\n"
        "mov %ecx,(%rsp)\n lretl $16\n ud2\n"
        "by_ljmp: ljmp *(%rsi)\n ud2\n");
// clang-format on
extern uint64_t by_lretq(uint64_t x), by_iretq(uint64_t x);
uint64_t by_lret(uint64_t x, void *low_stack, uint64_t unused, uint64_t target), by_ljmp(uint64_t x, void *pointer);

// The flags that iretq sets; the stack that it leaves is checked.
static uint64_t flags_by_iretq(uint64_t flags)
{
    uint64_t seen, moved;
    __asm__ volatile("mov %%rsp,%%rdx\n sub $256,%%rsp\n mov %%ss,%%eax\n push %%rax\n lea -64(%%rdx),%%rcx\n push %%rcx\n"
                     "push %2\n mov %%cs,%%eax\n push %%rax\n lea 1f(%%rip),%%rax\n push %%rax\n iretq\n"
                     "1: pushfq\n pop %0\n cld\n mov %%rdx,%1\n sub %%rsp,%1\n mov %%rdx,%%rsp\n"
                     : "=&r"(seen), "=&r"(moved)
                     : "r"(flags)
                     : "rax", "rcx", "rdx", "memory", "cc");
    CHECK_EQ(moved, 64);
    return seen & 0xcd5;
}

int main(void)
{
    // Code and a stack where 32 bits reach.
    unsigned char *low = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED);
    // by lretl $16 from by_lret: rsp is the low stack again, 16 above; back to the stack in rdx.
    static const unsigned char after_lret[] = "\x48\x89\xe0\x48\x89\xd4\x48\x29\xf0\x48\x01\xf8\xc3";
    memcpy(low, after_lret, sizeof after_lret); // mov rax, rsp; mov rsp, rdx; sub rax, rsi; add rax, rdi; ret
    static const unsigned char after_ljmp[] = "\x48\x8d\x47\x03\xc3";
    memcpy(low + 64, after_ljmp, sizeof after_ljmp); // lea rax, [rdi + 3]; ret
    struct __attribute__((packed)) {
        uint32_t offset;
        uint16_t selector;
    } pointer = {(uint32_t)(uintptr_t)(low + 64), 0};
    __asm__("mov %%cs,%0" : "=r"(pointer.selector));
    CHECK_EQ(flags_by_iretq(0x202), 0);
    CHECK_EQ(flags_by_iretq(0xcd7), 0xcd5);
    // lretq pops RIP then CS; the order above is CS deeper than RIP.
    for (uint64_t i = 0; i < 1000; i++) {
        CHECK_EQ(by_lretq(i), i + 1);
        CHECK_EQ(by_iretq(i), i + 2);
        CHECK_EQ(by_lret(i, low + 8192 - 64, 0, (uintptr_t)low), i + 16);
        CHECK_EQ(by_ljmp(i, &pointer), i + 3);
    }
    printf("far transfers ok\n");
    return 0;
}

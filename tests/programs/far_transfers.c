// Far returns and iret inside user mode, as some language runtimes and emulators use them.
// build: dynamic static
// refused: far transfers
#include "harness.h"

uint64_t by_lretq(uint64_t x), by_iretq(uint64_t x);
// clang-format off
__asm__(".text\n"
        "by_lretq: mov %cs,%eax\n push %rax\n lea 1f(%rip),%rax\n push %rax\n lretq\n ud2\n"
        "1: lea 1(%rdi),%rax\n ret\n"
        "by_iretq: mov %rsp,%rdx\n mov %ss,%eax\n push %rax\n push %rdx\n pushfq\n mov %cs,%eax\n push %rax\n"
        "lea 2f(%rip),%rax\n push %rax\n iretq\n ud2\n"
        "2: lea 2(%rdi),%rax\n ret\n");
// clang-format on
extern uint64_t by_lretq(uint64_t x), by_iretq(uint64_t x);

int main(void)
{
    // lretq pops RIP then CS; the order above is CS deeper than RIP.
    for (uint64_t i = 0; i < 1000; i++) {
        CHECK_EQ(by_lretq(i), i + 1);
        CHECK_EQ(by_iretq(i), i + 2);
    }
    printf("far transfers ok\n");
    return 0;
}

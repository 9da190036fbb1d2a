// The system-call instruction: which registers it changes, which it must not, odd numbers, and
// arguments in the red zone.
// build: dynamic static nopie
// flags: -Wno-stringop-overread
#include "harness.h"
#include <fcntl.h>
#include <sys/uio.h>

extern char after_syscall[];
extern uint64_t regs_out[16];
uint64_t regs_out[16];
uint64_t probe(uint64_t number);
// clang-format off
__asm__(".text\n.globl probe\nprobe:\n"
        "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rdi,%rax\n"
        "mov $2,%rbx\n mov $3,%rcx\n mov $4,%rdx\n mov $5,%rsi\n mov $6,%rdi\n mov $7,%rbp\n mov $8,%r8\n"
        "mov $9,%r9\n mov $10,%r10\n mov $11,%r11\n mov $12,%r12\n mov $13,%r13\n mov $14,%r14\n mov $15,%r15\n"
        "stc\n syscall\n"
        ".globl after_syscall\nafter_syscall:\n"
        "mov %rbx,regs_out+8(%rip)\n mov %rcx,regs_out+16(%rip)\n mov %rdx,regs_out+24(%rip)\n"
        "mov %rsi,regs_out+32(%rip)\n mov %rdi,regs_out+40(%rip)\n mov %rbp,regs_out+48(%rip)\n"
        "mov %r8,regs_out+56(%rip)\n mov %r9,regs_out+64(%rip)\n mov %r10,regs_out+72(%rip)\n"
        "mov %r11,regs_out+80(%rip)\n mov %r12,regs_out+88(%rip)\n mov %r13,regs_out+96(%rip)\n"
        "mov %r14,regs_out+104(%rip)\n mov %r15,regs_out+112(%rip)\n"
        "pushfq\n popq regs_out(%rip)\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");
// clang-format on

int main(void)
{
    static const uint64_t keep[] = {2, 0, 4, 5, 6, 7, 8, 9, 10, 0, 12, 13, 14, 15};
    // getppid ignores its arguments; the others fail with ENOSYS.
    static const uint64_t numbers[] = {SYS_getppid, 0x1000, 100000, ~0UL, 1UL << 40 | SYS_getppid};
    for (int round = 0; round < 100; round++)
        for (unsigned k = 0; k < 5; k++) {
            memset(regs_out, 0xee, sizeof regs_out);
            int64_t r = (int64_t)probe(numbers[k]);
            if (k == 0)
                CHECK_EQ(r, getppid());
            else if (k < 4)
                CHECK_EQ(r, -ENOSYS);
            for (int i = 0; i < 14; i++)
                if (keep[i])
                    CHECK_EQ(regs_out[i + 1], keep[i]);
            CHECK_EQ(regs_out[2], (uintptr_t)after_syscall); // rcx: where the kernel returns to
            CHECK_EQ(regs_out[10] & 0x8d5, regs_out[0] & 0x8d5); // r11: the flags
            CHECK(regs_out[0] & 1);
        }
    // A pipe written from below the stack pointer.
    int p[2];
    CHECK(pipe(p) == 0);
    long n;
    __asm__ volatile("movq $0x64636261,-64(%%rsp)\n lea -64(%%rsp),%%rsi\n mov $4,%%edx\n syscall"
                     : "=a"(n)
                     : "0"(SYS_write), "D"((long)p[1])
                     : "rcx", "r11", "rsi", "rdx", "memory");
    char text[8] = {0};
    CHECK(n == 4 && read(p[0], text, 8) == 4 && !strcmp(text, "abcd"));
    // Bad pointers give EFAULT, not a crash.
    CHECK(write(p[1], (void *)8, 4) == -1 && errno == EFAULT);
    CHECK(write(p[1], (void *)0x800000000000UL, 4) == -1 && errno == EFAULT);
    struct iovec v[2] = {{text, 2}, {(void *)16, 4}};
    printf("writev with a bad tail: %zd\n", writev(p[1], v, 2));
    CHECK(readv(-1, v, 2) == -1 && errno == EBADF);
    CHECK(open((char *)24, O_RDONLY) == -1 && errno == EFAULT);
    printf("system calls ok\n");
    return 0;
}

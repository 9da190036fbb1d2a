/* Functions whose call-frame information has every form that compilers write. */
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

/* The stack arguments and the variable size make GCC keep a pointer to the arguments (r10, saved below
 * rbp): the CFA is then an expression that reads memory. */
NOINLINE long realigned(long a, long b, long c, long d, long e, long f, long g, char *out) {
    _Alignas(64) char lanes[128];
    memset(lanes, (int)(a + b + c + d + e + f + g), sizeof lanes);
    char *more = alloca(g + 1);
    snprintf(more, g + 1, "%p", (void *)((unsigned long)lanes & 63));
    strcpy(out, more);
    return lanes[g & 127];
}

NOINLINE long with_frame_pointer(long n) {
    char *bytes = alloca(n + 16);
    memset(bytes, 1, n + 16);
    return (long)strlen(bytes + n + 15) + atoi("12");
}

/* An early return, so that the epilogue in the middle remembers and restores its row. */
NOINLINE long early_return(long n, char *out) {
    if (n == 0) {
        return atoi("7");
    }
    char local[256];
    snprintf(local, sizeof local, "%ld", n);
    strcpy(out, local);
    return early_return(n - 1, out) + local[0];
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Called under single-stepping: crosses from library to library, through callbacks, and through
 * functions that are bound on their first call. */
long frames(void) {
    char out[64];
    int numbers[] = {5, 3, 9, 1, 7, 2, 8, 6, 4, 0};
    qsort(numbers, 10, sizeof *numbers, compare);
    return realigned(1, 2, 3, 4, 5, 6, 7, out) + with_frame_pointer(numbers[3] + 100) +
           early_return(3, out);
}

/* An OpenSSL-like frame: the old stack pointer is in a slot of the realigned stack, and for the
 * first instructions in a register that is neither rsp nor rbp. Returns its argument + 1. */
__asm__(".text\n"
        ".globl slot_frame\n"
        ".type slot_frame,@function\n"
        "slot_frame:\n"
        ".cfi_startproc\n"
        "movq %rsp, %rax\n"
        ".cfi_def_cfa_register %rax\n"
        "pushq %rbp\n"
        ".cfi_offset %rbp, -16\n"
        "xorl %ebp, %ebp\n"
        "subq $96, %rsp\n"
        "andq $-64, %rsp\n"
        "movq %rax, 40(%rsp)\n"
        /* DW_CFA_def_cfa_expression: rsp + 40, deref, + 8 */
        ".cfi_escape 0x0f, 0x05, 0x77, 0x28, 0x06, 0x23, 0x08\n"
        "leaq 1(%rdi), %rdx\n"
        "call slot_leaf\n"
        "movq 40(%rsp), %rcx\n"
        ".cfi_def_cfa %rcx, 8\n"
        "movq -8(%rcx), %rbp\n"
        ".cfi_restore %rbp\n"
        "leaq (%rcx), %rsp\n"
        ".cfi_def_cfa_register %rsp\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size slot_frame, .-slot_frame\n"
        "slot_leaf:\n"
        ".cfi_startproc\n"
        "movq %rdx, %rax\n"
        "ret\n"
        ".cfi_endproc\n");

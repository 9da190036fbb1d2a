// Arithmetic flags survive every kind of control transfer, and every condition reads them right.
// build: dynamic static nopie
// requires: bmi2
//
// Translators keep flags across their own bookkeeping; a clobbered CF after an indirect jump is
// the classic error. Each transfer below carries all 64 combinations of CF PF AF ZF SF OF.
#include "harness.h"

extern uint64_t flags_in, flags_out, conds_out;
uint64_t flags_in, flags_out, conds_out;
void all_conditions(void);
void through(void *path);
extern char p_jmp[], p_jmp_reg[], p_call[], p_call_reg[], p_call_mem[], p_jmp_mem[], p_ret[], p_loop[], p_jrcxz[],
    p_push_pop[], p_lea[], p_movs[], p_xchg[], p_bswap[], p_rorx[], p_long[];
// clang-format off
#define S(cc) "mov $0,%ecx\n set" cc " %cl\n shlx %r9,%rcx,%rcx\n lea (%rax,%rcx),%rax\n lea 1(%r9),%r9\n"
#define J(cc) "mov $0,%ecx\n j" cc " 1f\n jmp 2f\n 1: mov $1,%ecx\n 2: shlx %r9,%rcx,%rcx\n lea (%rax,%rcx),%rax\n lea 1(%r9),%r9\n"
#define M(cc) "mov $0,%ecx\n cmov" cc " %r8,%rcx\n shlx %r9,%rcx,%rcx\n lea (%rax,%rcx),%rax\n lea 1(%r9),%r9\n"
#define EACH(X) X("o") X("no") X("b") X("ae") X("e") X("ne") X("be") X("a") X("s") X("ns") X("p") X("np") X("l") X("ge") X("le") X("g")
__asm__(".text\n.globl all_conditions\nall_conditions:\n"
        "mov $0,%eax\n mov $0,%r9d\n mov $1,%r8d\n"
        "pushq flags_in(%rip)\n popfq\n"
        EACH(S) EACH(J) EACH(M)
        "pushfq\n popq flags_out(%rip)\n mov %rax,conds_out(%rip)\n ret\n"
        ".globl through\nthrough:\n push %rbx\n mov %rdi,%rbx\n"
        "lea p_target(%rip),%r11\n mov %r11,slot(%rip)\n"
        "lea p_subroutine(%rip),%r10\n mov %r10,slot2(%rip)\n"
        "mov $3,%ecx\n"
        "pushq flags_in(%rip)\n popfq\n jmp *%rbx\n"
        "p_target: pushfq\n popq flags_out(%rip)\n cld\n pop %rbx\n ret\n"
        "p_subroutine: ret\n"
        "p_jmp: jmp p_target\n"
        "p_jmp_reg: jmp *%r11\n"
        "p_jmp_mem: jmp *slot(%rip)\n"
        "p_call: call p_subroutine\n jmp p_target\n"
        "p_call_reg: call *%r10\n jmp *%r11\n"
        "p_call_mem: call *slot2(%rip)\n jmp p_target\n"
        "p_ret: push %r11\n ret\n"
        "p_loop: loop p_loop\n jmp p_target\n"
        "p_jrcxz: mov $0,%ecx\n jrcxz 1f\n ud2\n 1: jmp p_target\n"
        "p_push_pop: push %rax\n pop %rax\n jmp p_target\n"
        "p_lea: lea 8(%rsp),%rsp\n lea -8(%rsp),%rsp\n jmp p_target\n"
        "p_movs: mov %r11,slot3(%rip)\n movzbl slot3(%rip),%eax\n movslq slot3(%rip),%rdx\n jmp *slot3(%rip)\n"
        "p_xchg: xchg %rax,%rdx\n xchg %rax,slot3(%rip)\n bswap %rax\n jmp p_target\n"
        "p_rorx: rorx $7,%rax,%rax\n pdep %rax,%rdx,%rsi\n mulx %rax,%rsi,%rdi\n jmp p_target\n"
        // Longer than any sensible block limit, straight line.
        "p_long: .rept 600\n mov %rax,%rdx\n lea 1(%rdx),%rax\n .endr\n jmp p_target\n"
        ".data\n slot: .quad 0\n slot2: .quad 0\n slot3: .quad 0\n .text\n");
// clang-format on

int main(void)
{
    static const uint64_t bits[6] = {1, 4, 16, 64, 128, 0x800};
    void *paths[] = {p_jmp, p_jmp_reg, p_jmp_mem, p_call, p_call_reg, p_call_mem, p_ret, p_loop,
                     p_jrcxz, p_push_pop, p_lea, p_movs, p_xchg, p_rorx, p_long};
    for (int round = 0; round < 20; round++)
        for (unsigned combo = 0; combo < 64; combo++) {
            flags_in = 0x202;
            for (int i = 0; i < 6; i++)
                if (combo >> i & 1)
                    flags_in |= bits[i];
            int cf = combo & 1, pf = combo >> 1 & 1, zf = combo >> 3 & 1, sf = combo >> 4 & 1, of = combo >> 5 & 1;
            int t[8] = {of, cf, zf, cf | zf, sf, pf, sf != of, zf | (sf != of)};
            uint64_t want16 = 0;
            for (int i = 0; i < 8; i++)
                want16 |= (t[i] ? 1UL : 2UL) << (2 * i);
            all_conditions();
            CHECK_EQ(conds_out, want16 | want16 << 16 | want16 << 32);
            CHECK_EQ(flags_out, flags_in);
            for (unsigned p = 0; p < sizeof paths / sizeof *paths; p++) {
                flags_out = 0;
                through(paths[p]);
                if (flags_out != flags_in)
                    FAIL("path %u: flags %#lx became %#lx", p, flags_in, flags_out);
                // The direction flag too.
                flags_in |= 0x400;
                through(paths[p]);
                if (flags_out != flags_in)
                    FAIL("path %u with DF: flags %#lx became %#lx", p, flags_in, flags_out);
                flags_in &= ~0x400UL;
            }
        }
    // Carry chains across block boundaries.
    unsigned __int128 x = 1, y = 1;
    for (int i = 0; i < 1000; i++) {
        unsigned __int128 z = x + y;
        x = y;
        y = z;
    }
    printf("flags ok %016lx%016lx\n", (uint64_t)(y >> 64), (uint64_t)y);
    return 0;
}

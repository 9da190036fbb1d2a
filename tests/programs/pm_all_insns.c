// Touches persistent memory with every instruction form that can: stores, loads, read-modify-write,
// string, x87, MMX, SSE, AVX, AVX-512, system. Self-checking by difference.
// build: dynamic nopie
// flags: -mno-red-zone -fno-tree-vectorize -mgeneral-regs-only
// args: POOL
//
// Each form is one asm statement executed on ordinary memory and on the pool in turn, at aligned,
// misaligned, line-crossing and page-crossing offsets. The same instruction thus sees both kinds of
// memory. Afterwards the two memories and all results (registers, flags) must agree. Forms that the
// processor lacks are named on stdout, so a run says what it did not cover.
//
// Not here: AMX tile stores (need a permission call), far call/jump through memory, privileged
// instructions, and stacks inside the pool (pm_stack).
#include "pm_pool.h"
#include <cpuid.h>

enum { ARENA = 5 * 4096, MIDDLE = 2 * 4096 };
static unsigned char *sides[2]; // ordinary memory, pool
static uint64_t results[2][32 * 8];
static int result_count[2];
static int form_count;
static unsigned char vectors[1024] __attribute__((aligned(64)));
static unsigned char scratch[4096] __attribute__((aligned(64)));

static const int offsets[] = {0, 64, 1, 8, 20, 60, 63, 2048, 4096 - 64, 4096 - 4, 4096 - 1};
enum { OFFSETS = sizeof offsets / sizeof *offsets };

static void compare(const char *name)
{
    form_count++;
    if (result_count[0] != result_count[1])
        FAIL("%s: different number of results", name);
    for (int i = 0; i < result_count[0]; i++)
        if (results[0][i] != results[1][i])
            FAIL("%s: result %d is %#lx on the pool, %#lx on ordinary memory", name, i, results[1][i],
                 results[0][i]);
    // By words: most of the time is spent here, since every load from the pool is looked at.
    for (int word = 0; word < ARENA; word += 8) {
        uint64_t ordinary, pooled;
        memcpy(&ordinary, sides[0] + word, 8);
        memcpy(&pooled, sides[1] + word, 8);
        for (int i = word; ordinary != pooled && i < word + 8; i++)
            if (sides[0][i] != sides[1][i])
                FAIL("%s: byte %d is %#x in the pool, %#x in ordinary memory", name, i - MIDDLE, sides[1][i],
                     sides[0][i]);
    }
    result_count[0] = result_count[1] = 0;
}

#define OUT(v) results[side][result_count[side]++] = (uint64_t)(v)

// Runs `body` with `p` on both sides at every offset that is a multiple of `align`.
#define FORM(name, align, ...)                                                                     \
    do {                                                                                           \
        for (int o_ = 0; o_ < OFFSETS; o_++) {                                                     \
            if (offsets[o_] % (align))                                                             \
                continue;                                                                          \
            for (int side = 0; side < 2; side++) {                                                 \
                unsigned char *p = sides[side] + MIDDLE + offsets[o_];                             \
                __VA_ARGS__;                                                                       \
            }                                                                                      \
        }                                                                                          \
        compare(name);                                                                             \
    } while (0)

// The common shape: inputs in rax, rcx, rdx; the place in rdi ([p]), vector constants in rsi ([v]), so
// that no form needs a REX prefix it would not have by itself. Flags on entry are CF, ZF and PF; flags
// on exit are a result. Vector registers need no clobber: this file is compiled without them.
#define OP_WITH(name, align, before, text)                                                         \
    FORM(name, align, {                                                                            \
        uint64_t a = 0x8877665544332211, c = 3, d = 0x0123456789abcdef;                            \
        register uint64_t f __asm__("r8");                                                         \
        before;                                                                                    \
        __asm__ volatile("xor %%r8d,%%r8d\n stc\n" text "\n pushfq\n pop %%r8\n cld\n"             \
                         : "+a"(a), "+c"(c), "+d"(d), "=r"(f)                                      \
                         : [p] "D"(p), [v] "S"(vectors)                                            \
                         : "memory", "cc", "r9", "r10", "r11");                                    \
        OUT(a);                                                                                    \
        OUT(c);                                                                                    \
        OUT(d);                                                                                    \
        OUT(f & 0x8d5);                                                                            \
    })
#define OP(name, align, text) OP_WITH(name, align, (void)0, text)

#define SET64(off, value)                                                                          \
    do {                                                                                           \
        uint64_t v_ = (uint64_t)(value);                                                           \
        memcpy(p + (off), &v_, 8);                                                                 \
    } while (0)

static int has(unsigned leaf, unsigned sub, char reg, int bit)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(leaf, sub, &a, &b, &c, &d))
        return 0;
    if (leaf == 7 && sub == 0) {
        if (cpu_hidden("avx512"))
            b &= ~(1u << 16 | 1u << 17 | 1u << 30 | 1u << 31);
        if (cpu_hidden("avx2"))
            b &= ~(1u << 5);
        if (cpu_hidden("clwb"))
            b &= ~(1u << 24);
        if (cpu_hidden("clflushopt"))
            b &= ~(1u << 23);
    }
    if (leaf == 0xd && sub == 1 && cpu_hidden("xsavec"))
        a &= ~2u;
    unsigned r = reg == 'a' ? a : reg == 'b' ? b : reg == 'c' ? c : d;
    return r >> bit & 1;
}
static int feature(const char *name, int present)
{
    if (!present)
        printf("not covered on this processor: %s\n", name);
    return present;
}

// ---------------------------------------------------------------- general-purpose

static void moves(void)
{
    OP("mov r8", 1, "movb %%al,(%[p])");
    OP("mov high byte", 1, "movb %%ah,1(%[p])");
    OP("mov r16", 1, "movw %%dx,(%[p])");
    OP("mov r32", 1, "movl %%eax,(%[p])");
    OP("mov r64", 1, "movq %%rdx,(%[p])");
    OP("mov imm8", 1, "movb $0x5a,(%[p])");
    OP("mov imm16", 1, "movw $0x1234,(%[p])");
    OP("mov imm32", 1, "movl $0x12345678,(%[p])");
    OP("mov imm32 to 64", 1, "movq $-2,(%[p])");
    OP("mov segment", 1, "movw %%ss,(%[p])\n movw $0,(%[p])"); // the selector's value is the kernel's
    OP("mov load 8", 1, "movb (%[p]),%%al");
    OP("mov load high byte", 1, "movb (%[p]),%%ch");
    OP("mov load 16", 1, "movw (%[p]),%%ax");
    OP("mov load 32", 1, "movl (%[p]),%%eax");
    OP("mov load 64", 1, "movq (%[p]),%%rax");
    OP("movzx 8", 1, "movzbl (%[p]),%%eax\n movzbw (%[p]),%%dx\n movzbq 3(%[p]),%%rcx");
    OP("movzx 16", 1, "movzwl (%[p]),%%eax\n movzwq 2(%[p]),%%rcx");
    OP("movsx", 1, "movsbl (%[p]),%%eax\n movsbq 1(%[p]),%%rcx\n movswl 2(%[p]),%%edx\n movswq (%[p]),%%r9\n add %%r9,%%rax");
    OP("movsxd", 1, "movslq (%[p]),%%rax");
    OP("mov segment load", 1, "movw $0,(%[p])\n mov %%es,%%ecx\n mov (%[p]),%%es\n mov %%ecx,%%es\n xor %%ecx,%%ecx");
    if (feature("movbe", has(1, 0, 'c', 22))) {
        OP("movbe store", 1, "movbe %%ax,(%[p])\n movbe %%edx,4(%[p])\n movbe %%rax,8(%[p])");
        OP("movbe load", 1, "movbe (%[p]),%%ax\n movbe (%[p]),%%edx\n movbe (%[p]),%%rcx");
    }
    OP("movnti 32", 1, "movnti %%eax,(%[p])\n sfence");
    OP("movnti 64", 1, "movnti %%rdx,(%[p])\n sfence");
    OP("push from memory", 1, "pushq (%[p])\n pop %%rax\n pushw 2(%[p])\n pop %%cx");
    OP("pop to memory", 1, "push %%rdx\n popq (%[p])\n push %%ax\n popw 16(%[p])");
    OP("xchg 8", 1, "xchgb %%al,(%[p])");
    OP("xchg 16", 1, "xchgw %%ax,(%[p])");
    OP("xchg 32", 1, "xchgl %%eax,(%[p])");
    OP("xchg 64", 1, "xchgq %%rax,(%[p])");
    OP("lock xchg", 1, "lock xchgq %%rdx,(%[p])");
    OP("xlat", 1, "push %%rbx\n mov %[p],%%rbx\n mov $7,%%eax\n xlatb\n pop %%rbx");
    OP("cmov load", 1, "test %%rax,%%rax\n cmovz (%[p]),%%rax\n cmovnz 8(%[p]),%%rcx\n cmovs (%[p]),%%edx");
    OP("setcc", 1,
       "seto (%[p])\n setno 1(%[p])\n setb 2(%[p])\n setae 3(%[p])\n sete 4(%[p])\n setne 5(%[p])\n setbe 6(%[p])\n"
       "seta 7(%[p])\n sets 8(%[p])\n setns 9(%[p])\n setp 10(%[p])\n setnp 11(%[p])\n setl 12(%[p])\n"
       "setge 13(%[p])\n setle 14(%[p])\n setg 15(%[p])");
    OP("prefetches", 1, "prefetcht0 (%[p])\n prefetchnta 64(%[p])\n prefetchw (%[p])\n prefetcht1 (%[p])\n prefetcht2 (%[p])");
}

// The address itself in every register and shape.
static void addressing(void)
{
#define VIA(reg) OP("base " reg, 1, "push %%" reg "\n mov %[p],%%" reg "\n movq %%rdx,(%%" reg ")\n movl $7,16(%%" reg ")\n"  \
                    "movb %%dl,-5(%%" reg ")\n movw $3,0x120(%%" reg ")\n addq %%rdx,(%%" reg ")\n pop %%" reg)
    VIA("rax"); VIA("rbx"); VIA("rcx"); VIA("rsi"); VIA("rdi"); VIA("rbp");
    VIA("r8"); VIA("r9"); VIA("r10"); VIA("r11"); VIA("r12"); VIA("r13"); VIA("r14"); VIA("r15");
#define INDEX(reg) OP("index " reg, 1, "push %%" reg "\n mov $3,%%" reg "\n movq %%rdx,(%[p],%%" reg ",1)\n"                  \
                      "movq %%rdx,8(%[p],%%" reg ",2)\n movl %%edx,0x200(%[p],%%" reg ",4)\n"                                 \
                      "movb %%dl,-16(%[p],%%" reg ",8)\n addl $1,(%[p],%%" reg ",8)\n pop %%" reg)
    INDEX("rax"); INDEX("rbx"); INDEX("rcx"); INDEX("rbp"); INDEX("r8"); INDEX("r9"); INDEX("r12"); INDEX("r13"); INDEX("r15");
    OP("index without base", 1, "movq %%rdx,0x10(,%[p],1)\n addq %%rdx,0x18(,%[p],1)");
    OP("negative index", 1, "mov $-4,%%rcx\n movq %%rdx,64(%[p],%%rcx,8)");
    OP("wrapping displacement", 1, "lea -0x7ffffff0(%[p]),%%rcx\n movq %%rdx,0x7ffffff0(%%rcx)\n xor %%ecx,%%ecx");
    OP("base is the value", 1, "mov %[p],%%rax\n movq %%rax,(%%rax)\n movq $0,(%%rax)\n xor %%eax,%%eax");
    OP("destination is the base", 1, "movq $99,(%[p])\n mov %[p],%%rax\n mov (%%rax),%%rax");
    OP("xchg with its base", 1, "movq $98,(%[p])\n mov %[p],%%rax\n xchg %%rax,(%%rax)\n movq $0,(%[p])");
    OP("xadd with its base", 1, "movq $97,(%[p])\n mov %[p],%%rax\n xadd %%rax,(%%rax)\n movq $0,(%[p])\n test %%eax,%%eax");
    OP("cmpxchg with its base", 1, "movq $96,(%[p])\n mov $96,%%eax\n mov %[p],%%rcx\n cmpxchg %%rcx,(%%rcx)\n movq $0,(%[p])\n xor %%ecx,%%ecx");
    OP("stack pointer as base", 1, "mov %%rsp,%%r9\n mov %[p],%%rsp\n movq %%rdx,(%%rsp)\n addl $5,8(%%rsp)\n mov 16(%%rsp),%%rax\n mov %%r9,%%rsp");
}

static void arithmetic(void)
{
#define ALU1(op, lock)                                                                             \
    OP(lock op " r8", 1, lock op "b %%al,(%[p])");                                                 \
    OP(lock op " r16", 1, lock op "w %%ax,(%[p])");                                                \
    OP(lock op " r32", 1, lock op "l %%eax,(%[p])");                                               \
    OP(lock op " r64", 1, lock op "q %%rdx,(%[p])");                                               \
    OP(lock op " imm8", 1, lock op "b $0x35,(%[p])\n stc\n " lock op "w $0x35,4(%[p])\n stc\n " lock op \
       "l $-3,8(%[p])\n stc\n " lock op "q $-3,16(%[p])");                                         \
    OP(lock op " imm32", 1, lock op "w $0x1235,(%[p])\n stc\n " lock op "l $0x12345678,8(%[p])\n stc\n " lock op \
       "q $-0x12345678,16(%[p])");
#define ALU(op)                                                                                    \
    ALU1(op, "")                                                                                   \
    ALU1(op, "lock ")                                                                              \
    OP(op " from memory", 1, op "b (%[p]),%%al\n stc\n " op "w 1(%[p]),%%cx\n stc\n " op "l 2(%[p]),%%edx\n stc\n " op \
       "q 3(%[p]),%%rax")
    ALU("add"); ALU("or"); ALU("adc"); ALU("sbb"); ALU("and"); ALU("sub"); ALU("xor");
    OP("cmp", 1, "cmpb %%al,(%[p])\n cmpw %%ax,(%[p])\n cmpl $5,(%[p])\n cmpq (%[p]),%%rdx");
    OP("test", 1, "testb $3,(%[p])\n testl %%eax,(%[p])\n testq $-9,(%[p])");
#define UNARY1(op, lock)                                                                           \
    OP(lock op " 8", 1, lock op "b (%[p])"); OP(lock op " 16", 1, lock op "w (%[p])");             \
    OP(lock op " 32", 1, lock op "l (%[p])"); OP(lock op " 64", 1, lock op "q (%[p])")
#define UNARY(op) UNARY1(op, ""); UNARY1(op, "lock ")
    UNARY("inc"); UNARY("dec"); UNARY("neg"); UNARY("not");
#define SHIFT(op)                                                                                  \
    OP(op " by 1", 1, op "b (%[p])\n stc\n " op "w 4(%[p])\n stc\n " op "l 8(%[p])\n stc\n " op "q 16(%[p])"); \
    OP(op " by imm", 1, op "b $3,(%[p])\n stc\n " op "w $5,4(%[p])\n stc\n " op "l $7,8(%[p])\n stc\n " op "q $33,16(%[p])"); \
    OP(op " by cl", 1, op "b %%cl,(%[p])\n stc\n " op "w %%cl,4(%[p])\n stc\n " op "l %%cl,8(%[p])\n stc\n " op "q %%cl,16(%[p])"); \
    OP(op " by zero", 1, "mov $0,%%ecx\n" op "l %%cl,8(%[p])\n mov $64,%%ecx\n" op "q %%cl,16(%[p])")
    SHIFT("shl"); SHIFT("shr"); SHIFT("sar"); SHIFT("rol"); SHIFT("ror"); SHIFT("rcl"); SHIFT("rcr");
#define DOUBLE_SHIFT(op)                                                                           \
    OP(op " imm", 1, op "w $3,%%ax,(%[p])\n " op "l $9,%%edx,8(%[p])\n " op "q $40,%%rax,16(%[p])"); \
    OP(op " cl", 1, op "w %%cl,%%ax,(%[p])\n " op "l %%cl,%%edx,8(%[p])\n " op "q %%cl,%%rax,16(%[p])")
    DOUBLE_SHIFT("shld"); DOUBLE_SHIFT("shrd");
#define XADD(lock)                                                                                 \
    OP(lock "xadd", 1, lock "xaddb %%al,(%[p])\n " lock "xaddw %%cx,4(%[p])\n " lock "xaddl %%edx,8(%[p])\n " lock \
       "xaddq %%rax,16(%[p])")
    XADD(""); XADD("lock ");
#define CMPXCHG(lock)                                                                              \
    OP(lock "cmpxchg equal", 1, "movb (%[p]),%%al\n " lock "cmpxchgb %%dl,(%[p])\n movw (%[p]),%%ax\n " lock \
       "cmpxchgw %%dx,(%[p])\n movl (%[p]),%%eax\n " lock "cmpxchgl %%edx,(%[p])\n movq (%[p]),%%rax\n " lock \
       "cmpxchgq %%rcx,(%[p])");                                                                   \
    OP(lock "cmpxchg unequal", 1, "movq (%[p]),%%rax\n not %%rax\n " lock "cmpxchgq %%rdx,(%[p])\n not %%eax\n " lock \
       "cmpxchgl %%edx,8(%[p])\n not %%eax\n " lock "cmpxchgw %%dx,(%[p])\n not %%eax\n " lock "cmpxchgb %%dl,(%[p])"); \
    OP(lock "cmpxchg8b", 1, "push %%rbx\n mov (%[p]),%%eax\n mov 4(%[p]),%%edx\n mov $77,%%ebx\n " lock \
       "cmpxchg8b (%[p])\n not %%eax\n " lock "cmpxchg8b (%[p])\n pop %%rbx");                     \
    OP(lock "cmpxchg16b", 16, "push %%rbx\n mov (%[p]),%%rax\n mov 8(%[p]),%%rdx\n mov $77,%%ebx\n " lock \
       "cmpxchg16b (%[p])\n not %%rax\n " lock "cmpxchg16b (%[p])\n pop %%rbx")
    CMPXCHG(""); CMPXCHG("lock ");
#define BIT1(op, lock)                                                                             \
    OP(lock op " imm", 1, lock op "w $11,(%[p])\n " lock op "l $31,8(%[p])\n " lock op "q $63,16(%[p])"); \
    OP(lock op " register beyond the word", 1, "mov $1003,%%rax\n " lock op "q %%rax,(%[p])\n mov $-777,%%rax\n " lock op \
       "q %%rax,(%[p])\n mov $513,%%eax\n " lock op "l %%eax,(%[p])\n mov $-200,%%eax\n " lock op "l %%eax,(%[p])\n mov $300,%%eax\n " lock op \
       "w %%ax,(%[p])\n mov $-100,%%eax\n " lock op "w %%ax,(%[p])")
    BIT1("bts", ""); BIT1("btr", ""); BIT1("btc", ""); BIT1("bts", "lock "); BIT1("btr", "lock "); BIT1("btc", "lock ");
    OP("bt", 1, "btq $5,(%[p])\n mov $1003,%%eax\n btl %%eax,(%[p])\n mov $-50,%%rax\n btq %%rax,(%[p])");
    OP("imul load", 1, "imul (%[p]),%%rax\n imul $7,(%[p]),%%ecx\n imul $0x12345,(%[p]),%%rdx\n imul (%[p]),%%cx");
    OP("mul and div by memory", 1, "movq $7,(%[p])\n xor %%edx,%%edx\n divq (%[p])\n mulq (%[p])\n mulb (%[p])\n imulw (%[p])\n"
       "mov $1000,%%eax\n xor %%edx,%%edx\n divl (%[p])\n mov $100,%%eax\n idivb (%[p])\n cltd\n idivl (%[p])");
    OP("bit scans", 1, "orq $8,(%[p])\n bsf (%[p]),%%rax\n bsr (%[p]),%%rcx");
    OP("verr and lar", 1, "movw $0x2b,(%[p])\n verr (%[p])\n lar (%[p]),%%eax\n lsl (%[p]),%%ecx\n movw $0,(%[p])");
    if (feature("sse4.2 crc32 and popcnt", has(1, 0, 'c', 20) && has(1, 0, 'c', 23)))
        OP("crc32 and popcnt", 1, "crc32b (%[p]),%%eax\n crc32w (%[p]),%%eax\n crc32l (%[p]),%%eax\n crc32q (%[p]),%%rax\n popcnt (%[p]),%%rcx\n popcnt (%[p]),%%dx");
    if (feature("adx", has(7, 0, 'b', 19)))
        OP("adcx adox", 1, "adcx (%[p]),%%rax\n adox (%[p]),%%rdx\n adcxl (%[p]),%%ecx");
    if (feature("bmi", has(7, 0, 'b', 3) && has(7, 0, 'b', 8)))
        OP("bmi loads", 1, "andn (%[p]),%%rax,%%rax\n bextr %%rcx,(%[p]),%%rcx\n blsi (%[p]),%%rdx\n bzhi %%rax,(%[p]),%%rax\n"
           "pdep (%[p]),%%rdx,%%rdx\n pext (%[p]),%%rcx,%%rcx\n mulx (%[p]),%%rax,%%r9\n rorx $9,(%[p]),%%rcx\n sarx %%rax,(%[p]),%%rax\n"
           "shlx %%rcx,(%[p]),%%rcx\n shrx %%rdx,(%[p]),%%rdx\n blsr (%[p]),%%r9\n blsmsk (%[p]),%%r9\n tzcnt (%[p]),%%rcx\n lzcnt (%[p]),%%rax");
}

// Control transfers through pointers that live in the pool (libpmemobj does this).
static uint64_t called_with;
static uint64_t target_function(void)
{
    return ++called_with;
}
static void transfers(void)
{
    for (int i = 0; i < 100; i++) {
        FORM("call through the pool", 1, {
            SET64(0, target_function);
            uint64_t a = 0;
            called_with = 7;
            __asm__ volatile("mov %%rsp,%%rbx\n and $-16,%%rsp\n call *(%1)\n mov %%rbx,%%rsp"
                             : "=a"(a) : "D"(p) : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
            OUT(a);
            __asm__ volatile("mov %%rsp,%%rbx\n and $-16,%%rsp\n mov $2,%%ecx\n call *-16(%1,%%rcx,8)\n mov %%rbx,%%rsp"
                             : "=a"(a) : "D"(p) : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
            OUT(a);
            // The compiler's own way.
            uint64_t (*volatile *slot)(void) = (uint64_t(*volatile *)(void))(void *)p;
            OUT((*slot)());
        });
        FORM("jump through the pool", 1, {
            uint64_t a = 5;
            __asm__ volatile("lea 1f(%%rip),%%rcx\n movq %%rcx,(%1)\n jmp *(%1)\n ud2\n 1: add $9,%0\n movq $0,(%1)"
                             : "+a"(a) : "D"(p) : "rcx", "memory", "cc");
            OUT(a);
        });
        FORM("push and ret through the pool", 1, {
            uint64_t a = 5;
            __asm__ volatile("lea 1f(%%rip),%%rcx\n movq %%rcx,(%1)\n pushq (%1)\n ret\n ud2\n 1: add $9,%0\n movq $0,(%1)"
                             : "+a"(a) : "D"(p) : "rcx", "memory", "cc");
            OUT(a);
        });
    }
}

// Absolute 64-bit addresses are part of the instruction, so this code is made at run time.
static void absolute_addresses(void)
{
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    // opcode prefix bytes, then opcode, then moffs64: mov al/ax/eax/rax <-> [moffs]
    static const unsigned char prefixes[8][2] = {{0xa2, 0}, {0x66, 0xa3}, {0xa3, 0}, {0x48, 0xa3},
                                                 {0xa0, 0}, {0x66, 0xa1}, {0xa1, 0}, {0x48, 0xa1}};
    for (int k = 0; k < 8; k++)
        FORM("moffs64", 1, {
            int n = 0;
            code[n++] = 0x48; code[n++] = 0x89; code[n++] = 0xf8; // mov %rdi,%rax
            code[n++] = prefixes[k][0];
            if (prefixes[k][1])
                code[n++] = prefixes[k][1];
            memcpy(code + n, &p, 8);
            n += 8;
            code[n++] = 0xc3;
            OUT(((uint64_t(*)(uint64_t))(void *)code)(0x1122334455667788 + (uint64_t)k));
        });
}

// ---------------------------------------------------------------- strings

static void string_op(int side, const char *what, unsigned char *di, unsigned char *si, uint64_t count, int down)
{
    uint64_t ax = 0xa1a2a3a4a5a6a7a8, f = 0;
#define CASE(name, insn)                                                                           \
    if (!strcmp(what, name)) {                                                                     \
        if (down)                                                                                  \
            __asm__ volatile("std\n test %%ecx,%%ecx\n " insn "\n pushfq\n pop %4\n cld"           \
                             : "+D"(di), "+S"(si), "+c"(count), "+a"(ax), "=r"(f)::"memory", "cc"); \
        else                                                                                       \
            __asm__ volatile("cld\n test %%ecx,%%ecx\n " insn "\n pushfq\n pop %4"                 \
                             : "+D"(di), "+S"(si), "+c"(count), "+a"(ax), "=r"(f)::"memory", "cc"); \
    }
#define WIDTHS(name, insn)                                                                         \
    CASE(name "b", insn "b") CASE(name "w", insn "w") CASE(name "l", insn "l") CASE(name "q", insn "q")
    WIDTHS("movs", "movs") WIDTHS("rep movs", "rep movs") WIDTHS("stos", "stos") WIDTHS("rep stos", "rep stos")
    WIDTHS("lods", "lods") WIDTHS("rep lods", "rep lods") WIDTHS("scas", "scas") WIDTHS("repe scas", "repe scas")
    WIDTHS("repne scas", "repne scas") WIDTHS("cmps", "cmps") WIDTHS("repe cmps", "repe cmps") WIDTHS("repne cmps", "repne cmps")
    OUT(count);
    OUT(ax);
    OUT(f & 0x8d5);
}

static void strings(void)
{
    static const char *names[] = {"movs", "rep movs", "stos", "rep stos", "lods", "rep lods", "scas", "repe scas",
                                  "repne scas", "cmps", "repe cmps", "repne cmps"};
    static const char widths[] = "bwlq";
    static const uint64_t counts[] = {0, 1, 2, 7, 37};
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        for (int w = 0; w < 4; w++)
            for (int down = 0; down < 2; down++)
                for (unsigned c = 0; c < 5; c++) {
                    char what[32];
                    snprintf(what, sizeof what, "%s%c", names[n], widths[w]);
                    // Both operands in the pool (or both in ordinary memory).
                    FORM(what, 1, string_op(side, what, p, p + 1500, counts[c], down));
                    // Destination here, source ordinary; and the other way round.
                    FORM(what, 1, string_op(side, what, p, scratch + 2048, counts[c], down));
                    FORM(what, 1, { memset(scratch, 0x33, sizeof scratch); string_op(side, what, scratch + 2048, p, counts[c], down);
                                    OUT(hash_bytes(1, scratch, sizeof scratch)); });
                }
    // Long, overlapping, over several pages.
    FORM("long rep movsb", 1, string_op(side, "rep movsb", p - 4000, p - 4001, 8000, 0));
    FORM("long rep movsq", 1, string_op(side, "rep movsq", p + 3900, p + 3000, 900, 1));
    FORM("long rep stosq", 1, string_op(side, "rep stosq", p - 4000, NULL, 1000, 0));
}

// ---------------------------------------------------------------- x87 and MMX

// An image for frstor: default modes, eight valid registers, all pointers zero. Loading the state
// this way leaves the last-instruction pointers at zero, which saved images would otherwise show.
static unsigned char x87_image[108] = {0x7f, 0x03};

static void x87(void)
{
#define X87(name, text) OP("x87 " name, 1, "frstor x87_image(%%rip)\n" text "\n fninit")
    X87("fst m32", "fsts (%[p])");
    X87("fstp m32", "fstps (%[p])");
    X87("fst m64", "fstl (%[p])");
    X87("fstp m64", "fstpl (%[p])");
    X87("fstp m80", "fstpt (%[p])");
    X87("fist m16", "fists (%[p])");
    X87("fist m32", "fistl (%[p])");
    X87("fistp m16", "fistps (%[p])");
    X87("fistp m32", "fistpl (%[p])");
    X87("fistp m64", "fistpq (%[p])");
    X87("fisttp", "fisttps (%[p])\n fisttpl 8(%[p])\n fisttpq 16(%[p])");
    X87("fbstp", "fbstp (%[p])");
    X87("fnstcw", "fnstcw (%[p])");
    X87("fnstsw", "fnstsw (%[p])");
    X87("fstcw with wait", "fstcw (%[p])\n fstsw 4(%[p])");
    X87("fnstenv", "fnstenv (%[p])");
    X87("fnstenv 16 bits", "data16 fnstenv (%[p])");
    X87("fnsave", "fnsave (%[p])");
    X87("fnsave 16 bits", "data16 fnsave (%[p])");
    X87("fld", "movl $0x3fc00000,(%[p])\n flds (%[p])\n fstps 16(%[p])\n fldl 32(%[p])\n fstpl 48(%[p])");
    X87("fld m80", "fldpi\n fstpt (%[p])\n fldt (%[p])\n fstpt 32(%[p])");
    X87("fild", "filds (%[p])\n fildl (%[p])\n fildq (%[p])\n fstpl 8(%[p])\n fstpl 16(%[p])\n fstpl 24(%[p])");
    X87("fbld", "fbstp (%[p])\n fbld (%[p])\n fstpl 16(%[p])");
    X87("arithmetic m32", "fstps (%[p])\n fadds (%[p])\n fmuls (%[p])\n fsubs (%[p])\n fsubrs (%[p])\n fdivs (%[p])\n fdivrs (%[p])\n fcoms (%[p])\n fcomps (%[p])");
    X87("arithmetic m64", "fstpl (%[p])\n faddl (%[p])\n fmull (%[p])\n fsubl (%[p])\n fsubrl (%[p])\n fdivl (%[p])\n fdivrl (%[p])\n fcoml (%[p])\n fcompl (%[p])");
    X87("arithmetic integer", "fiadds (%[p])\n fimuls (%[p])\n fisubs (%[p])\n fisubrl (%[p])\n fidivl (%[p])\n ficoms (%[p])\n ficompl (%[p])\n fstpl 8(%[p])");
    X87("control loads", "movw $0x37f,(%[p])\n fldcw (%[p])\n fnstenv 8(%[p])\n fldenv 8(%[p])\n fnsave 64(%[p])\n frstor 64(%[p])\n fstpl (%[p])");
#define MMX(name, text) OP("mmx " name, 1, "movq (%[v]),%%mm0\n movq 8(%[v]),%%mm1\n" text "\n emms")
    MMX("movd", "movd %%mm0,(%[p])\n movd (%[p]),%%mm2\n movq %%mm2,8(%[p])");
    MMX("movq", "movq %%mm1,(%[p])\n movq (%[p]),%%mm2\n movq %%mm2,8(%[p])");
    MMX("movntq", "movntq %%mm0,(%[p])\n sfence");
    MMX("maskmovq", "maskmovq %%mm1,%%mm0\n sfence");
    MMX("loads", "paddb (%[p]),%%mm0\n pmaddwd (%[p]),%%mm1\n pshufw $0x1b,(%[p]),%%mm2\n punpcklbw (%[p]),%%mm0\n psllq (%[p]),%%mm1\n movq %%mm0,(%[p])");
    MMX("conversions", "cvtpi2ps (%[p]),%%xmm0\n movlps %%xmm0,8(%[p])\n cvttps2pi 8(%[p]),%%mm3\n movq %%mm3,(%[p])");
}

// ---------------------------------------------------------------- SSE

// xmm1..xmm4 hold constants.
#define SSE_LOAD "movaps (%[v]),%%xmm1\n movaps 16(%[v]),%%xmm2\n movaps 32(%[v]),%%xmm3\n movaps 48(%[v]),%%xmm4\n"
#define SSE(name, align, text) OP("sse " name, align, SSE_LOAD text)

static void sse(void)
{
    SSE("movss", 1, "movss %%xmm1,(%[p])\n movss (%[p]),%%xmm5\n movups %%xmm5,16(%[p])");
    SSE("movsd", 1, "movsd %%xmm1,(%[p])\n movsd (%[p]),%%xmm5\n movups %%xmm5,16(%[p])");
    SSE("movups", 1, "movups %%xmm1,(%[p])\n movups (%[p]),%%xmm5\n movups %%xmm5,16(%[p])");
    SSE("movupd", 1, "movupd %%xmm2,(%[p])\n movupd (%[p]),%%xmm5\n movups %%xmm5,16(%[p])");
    SSE("movdqu", 1, "movdqu %%xmm3,(%[p])\n movdqu (%[p]),%%xmm5\n lddqu (%[p]),%%xmm6\n paddq %%xmm6,%%xmm5\n movups %%xmm5,16(%[p])");
    SSE("movaps", 16, "movaps %%xmm1,(%[p])\n movaps (%[p]),%%xmm5\n movups %%xmm5,16(%[p])");
    SSE("movapd", 16, "movapd %%xmm2,(%[p])");
    SSE("movdqa", 16, "movdqa %%xmm3,(%[p])\n movdqa (%[p]),%%xmm5\n movups %%xmm5,16(%[p])");
    SSE("movlps movhps", 1, "movlps %%xmm1,(%[p])\n movhps %%xmm1,8(%[p])\n movlps 8(%[p]),%%xmm2\n movhps (%[p]),%%xmm2\n movups %%xmm2,16(%[p])");
    SSE("movlpd movhpd", 1, "movlpd %%xmm1,(%[p])\n movhpd %%xmm1,8(%[p])\n movlpd 8(%[p]),%%xmm2\n movhpd (%[p]),%%xmm2\n movups %%xmm2,16(%[p])");
    SSE("movd movq", 1, "movd %%xmm1,(%[p])\n movq %%xmm2,8(%[p])\n movd 8(%[p]),%%xmm3\n movq (%[p]),%%xmm4\n movups %%xmm3,16(%[p])\n movups %%xmm4,32(%[p])");
    SSE("movq with rex", 1, ".byte 0x66,0x48,0x0f,0x7e,0x0f\n .byte 0x66,0x48,0x0f,0x6e,0x17\n movups %%xmm2,16(%[p])"); // movq %xmm1,(%rdi); movq (%rdi),%xmm2
    SSE("movntps", 16, "movntps %%xmm1,(%[p])\n sfence");
    SSE("movntpd", 16, "movntpd %%xmm2,(%[p])\n sfence");
    SSE("movntdq", 16, "movntdq %%xmm3,(%[p])\n sfence");
    SSE("maskmovdqu", 1, "maskmovdqu %%xmm2,%%xmm1\n sfence");
    SSE("maskmovdqu none", 1, "pxor %%xmm2,%%xmm2\n maskmovdqu %%xmm2,%%xmm1\n sfence");
    SSE("stmxcsr ldmxcsr", 1, "stmxcsr (%[p])\n movl $0x1f80,4(%[p])\n ldmxcsr 4(%[p])\n movl $0,(%[p])");
    SSE("arithmetic loads", 16, "addps (%[p]),%%xmm1\n mulpd (%[p]),%%xmm2\n paddd (%[p]),%%xmm3\n cmpps $1,(%[p]),%%xmm4\n movups %%xmm3,16(%[p])");
    SSE("scalar loads", 1, "addss (%[p]),%%xmm1\n mulsd (%[p]),%%xmm2\n ucomiss (%[p]),%%xmm1\n cvtsi2sd (%[p]),%%xmm3\n cvtsi2sdq (%[p]),%%xmm4\n"
        "cvtss2sd (%[p]),%%xmm5\n cvttsd2si (%[p]),%%rax\n sqrtss (%[p]),%%xmm6\n movups %%xmm3,(%[p])");
    SSE("shuffle loads", 16, "pshufd $0x1b,(%[p]),%%xmm1\n pshuflw $3,(%[p]),%%xmm2\n shufps $5,(%[p]),%%xmm3\n unpcklpd (%[p]),%%xmm4\n movups %%xmm1,(%[p])");
    if (feature("sse3 and ssse3", has(1, 0, 'c', 0) && has(1, 0, 'c', 9)))
        SSE("sse3", 16, "movddup (%[p]),%%xmm1\n movshdup (%[p]),%%xmm2\n pshufb (%[p]),%%xmm3\n palignr $5,(%[p]),%%xmm4\n pabsd (%[p]),%%xmm5\n haddps (%[p]),%%xmm6\n movups %%xmm3,(%[p])");
    if (feature("sse4.1", has(1, 0, 'c', 19))) {
        SSE("pextrb", 1, "pextrb $3,%%xmm1,(%[p])");
        SSE("pextrw", 1, "pextrw $3,%%xmm1,(%[p])");
        SSE("pextrd", 1, "pextrd $3,%%xmm1,(%[p])");
        SSE("pextrq", 1, "pextrq $1,%%xmm1,(%[p])");
        SSE("extractps", 1, "extractps $2,%%xmm1,(%[p])");
        SSE("pinsr", 1, "pinsrb $3,(%[p]),%%xmm1\n pinsrw $1,(%[p]),%%xmm1\n pinsrd $2,(%[p]),%%xmm1\n pinsrq $1,(%[p]),%%xmm2\n insertps $0x10,(%[p]),%%xmm3\n movups %%xmm1,(%[p])");
        SSE("movntdqa", 16, "movntdqa (%[p]),%%xmm1\n movups %%xmm1,16(%[p])");
        SSE("pmov loads", 1, "pmovzxbw (%[p]),%%xmm1\n pmovsxbd (%[p]),%%xmm2\n pmovzxbq (%[p]),%%xmm3\n pmovsxwd (%[p]),%%xmm4\n movups %%xmm1,(%[p])\n movups %%xmm2,16(%[p])");
        SSE("blends and tests", 16, "pblendw $0x55,(%[p]),%%xmm1\n ptest (%[p]),%%xmm1\n movaps %%xmm1,(%[p])\n dpps $0x71,(%[p]),%%xmm2\n roundps $1,(%[p]),%%xmm3\n mpsadbw $2,(%[p]),%%xmm4\n movaps %%xmm4,(%[p])");
    }
    if (feature("sse4.2", has(1, 0, 'c', 20)))
        SSE("pcmpestri pcmpistrm", 1, "mov $9,%%eax\n mov $11,%%edx\n pcmpestri $0xc,(%[p]),%%xmm1\n pcmpistrm $0x40,(%[p]),%%xmm1\n movups %%xmm0,(%[p])");
    if (feature("aes", has(1, 0, 'c', 25)))
        SSE("aes", 16, "aesenc (%[p]),%%xmm1\n aesdeclast (%[p]),%%xmm2\n aeskeygenassist $3,(%[p]),%%xmm3\n movaps %%xmm1,(%[p])");
    if (feature("pclmulqdq", has(1, 0, 'c', 1)))
        SSE("pclmulqdq", 16, "pclmulqdq $1,(%[p]),%%xmm1\n movaps %%xmm1,(%[p])");
    if (feature("sha", has(7, 0, 'b', 29)))
        SSE("sha", 16, "sha1rnds4 $1,(%[p]),%%xmm1\n sha256msg1 (%[p]),%%xmm2\n movaps %%xmm2,(%[p])");
    if (feature("sse4a", has(0x80000001, 0, 'c', 6)))
        SSE("movntss movntsd", 1, "movntss %%xmm1,(%[p])\n movntsd %%xmm2,8(%[p])\n sfence");
    if (feature("gfni", has(7, 0, 'c', 8)))
        SSE("gfni", 16, "gf2p8mulb (%[p]),%%xmm1\n movaps %%xmm1,(%[p])");
}

// ---------------------------------------------------------------- AVX and AVX2

#define AVX_LOAD "vmovdqu (%[v]),%%ymm1\n vmovdqu 32(%[v]),%%ymm2\n vmovdqu 64(%[v]),%%ymm3\n vmovdqu 96(%[v]),%%ymm4\n"
#define AVX(name, align, text) OP("avx " name, align, AVX_LOAD text "\n vzeroupper")

static void avx(void)
{
#define MOVES(insn, align)                                                                         \
    AVX(insn " xmm", align, insn " %%xmm1,(%[p])\n " insn " (%[p]),%%xmm5\n vmovdqu %%xmm5,32(%[p])"); \
    AVX(insn " ymm", 2 * align, insn " %%ymm1,(%[p])\n " insn " (%[p]),%%ymm5\n vmovdqu %%ymm5,32(%[p])")
    MOVES("vmovaps", 16); MOVES("vmovapd", 16); MOVES("vmovdqa", 16);
#undef MOVES
#define MOVES(insn)                                                                                \
    AVX(insn " xmm", 1, insn " %%xmm1,(%[p])\n " insn " (%[p]),%%xmm5\n vmovdqu %%xmm5,32(%[p])"); \
    AVX(insn " ymm", 1, insn " %%ymm1,(%[p])\n " insn " (%[p]),%%ymm5\n vmovdqu %%ymm5,32(%[p])")
    MOVES("vmovups"); MOVES("vmovupd"); MOVES("vmovdqu");
    AVX("scalars", 1, "vmovss %%xmm1,(%[p])\n vmovsd %%xmm2,8(%[p])\n vmovd %%xmm3,16(%[p])\n vmovq %%xmm4,24(%[p])\n vmovss (%[p]),%%xmm5\n vmovsd 8(%[p]),%%xmm6\n vmovups %%xmm5,32(%[p])\n vmovups %%xmm6,48(%[p])");
    AVX("halves", 1, "vmovlps %%xmm1,(%[p])\n vmovhps %%xmm1,8(%[p])\n vmovlpd %%xmm2,16(%[p])\n vmovhpd %%xmm2,24(%[p])\n vmovlps (%[p]),%%xmm3,%%xmm5\n vmovhpd 8(%[p]),%%xmm3,%%xmm6\n vmovups %%xmm5,32(%[p])");
    AVX("extract128", 1, "vextractf128 $1,%%ymm1,(%[p])\n vextracti128 $0,%%ymm2,16(%[p])");
    AVX("vpextr", 1, "vpextrb $7,%%xmm1,(%[p])\n vpextrw $3,%%xmm1,2(%[p])\n vpextrd $1,%%xmm1,4(%[p])\n vpextrq $1,%%xmm1,8(%[p])\n vextractps $1,%%xmm1,16(%[p])");
    AVX("vmovnt xmm", 16, "vmovntps %%xmm1,(%[p])\n vmovntpd %%xmm2,16(%[p])\n vmovntdq %%xmm3,32(%[p])\n sfence");
    AVX("vmovnt ymm", 32, "vmovntps %%ymm1,(%[p])\n vmovntpd %%ymm2,32(%[p])\n vmovntdq %%ymm3,64(%[p])\n sfence\n vmovntdqa (%[p]),%%ymm5\n vmovdqu %%ymm5,96(%[p])");
    AVX("vmaskmov store", 1, "vmaskmovps %%ymm1,%%ymm2,(%[p])\n vmaskmovpd %%ymm1,%%ymm3,32(%[p])\n vmaskmovps %%xmm1,%%xmm2,64(%[p])\n vmaskmovpd %%xmm1,%%xmm3,80(%[p])");
    AVX("vpmaskmov store", 1, "vpmaskmovd %%ymm1,%%ymm2,(%[p])\n vpmaskmovq %%ymm1,%%ymm3,32(%[p])\n vpmaskmovd %%xmm1,%%xmm2,64(%[p])\n vpmaskmovq %%xmm1,%%xmm3,80(%[p])");
    AVX("vmaskmov load", 1, "vmaskmovps (%[p]),%%ymm2,%%ymm5\n vpmaskmovq (%[p]),%%ymm3,%%ymm6\n vmovups %%ymm5,32(%[p])\n vmovups %%ymm6,64(%[p])");
    AVX("vmaskmovdqu", 1, "vmaskmovdqu %%xmm2,%%xmm1\n sfence");
    AVX("vstmxcsr", 1, "vstmxcsr (%[p])\n movl $0x1f80,4(%[p])\n vldmxcsr 4(%[p])\n movl $0,(%[p])");
    AVX("broadcasts", 1, "vbroadcastss (%[p]),%%ymm5\n vbroadcastsd (%[p]),%%ymm6\n vbroadcastf128 (%[p]),%%ymm7\n vpbroadcastb (%[p]),%%ymm8\n vpbroadcastw (%[p]),%%xmm9\n vbroadcasti128 (%[p]),%%ymm10\n vpaddq %%ymm5,%%ymm6,%%ymm6\n vpaddq %%ymm8,%%ymm10,%%ymm10\n vmovdqu %%ymm6,(%[p])\n vmovdqu %%ymm10,32(%[p])");
    AVX("unaligned operand loads", 1, "vaddps (%[p]),%%ymm1,%%ymm5\n vpaddd (%[p]),%%ymm2,%%ymm6\n vpshufb (%[p]),%%ymm3,%%ymm7\n vperm2f128 $0x21,(%[p]),%%ymm1,%%ymm8\n vpermd (%[p]),%%ymm2,%%ymm9\n vpermq $0x1b,(%[p]),%%ymm10\n vinserti128 $1,(%[p]),%%ymm2,%%ymm11\n vblendvps %%ymm3,(%[p]),%%ymm2,%%ymm12\n vmovdqu %%ymm6,(%[p])\n vmovdqu %%ymm9,32(%[p])\n vmovdqu %%ymm12,64(%[p])");
    AVX("four-operand and pmov", 1, "vpmovzxbd (%[p]),%%ymm5\n vpmovsxwq (%[p]),%%ymm6\n vpsllvd (%[p]),%%ymm2,%%ymm7\n vptest (%[p]),%%ymm1\n vmovdqu %%ymm5,(%[p])\n vmovdqu %%ymm6,32(%[p])");
    if (feature("fma", has(1, 0, 'c', 12)))
        AVX("fma", 1, "vfmadd213ps (%[p]),%%ymm1,%%ymm2\n vfnmsub231sd (%[p]),%%xmm3,%%xmm4\n vmovups %%ymm2,(%[p])\n vmovups %%xmm4,32(%[p])");
    if (feature("f16c", has(1, 0, 'c', 29)))
        AVX("vcvtps2ph", 1, "vcvtps2ph $0,%%xmm1,(%[p])\n vcvtps2ph $1,%%ymm2,16(%[p])\n vcvtph2ps (%[p]),%%xmm5\n vcvtph2ps (%[p]),%%ymm6\n vmovups %%ymm6,32(%[p])");
    // Gathers: indices are small multiples, masks by sign bits.
#define GATHER(insn, suffix, data, index)                                                          \
    AVX(insn, 1, "vpxor %%ymm7,%%ymm7,%%ymm7\n vmovdqa %%ymm2,%%ymm6\n vmovdqu 512(%[v]),%%" index "5\n"           \
        insn " %%" data "6,(%[p],%%" index "5,4),%%" data "7\n vmovdqu %%ymm7,(%[p])\n vmovdqu %%ymm6,32(%[p])\n"     \
        "vpcmpeqd %%ymm6,%%ymm6,%%ymm6\n" insn " %%" data "6,8(%[p],%%" index "5," suffix "),%%" data "7\n vmovdqu %%ymm7,64(%[p])")
    GATHER("vpgatherdd", "1", "xmm", "xmm"); GATHER("vpgatherdd", "8", "ymm", "ymm");
    GATHER("vgatherdps", "2", "xmm", "xmm"); GATHER("vgatherdps", "8", "ymm", "ymm");
    GATHER("vpgatherdq", "1", "xmm", "xmm"); GATHER("vpgatherdq", "8", "ymm", "xmm");
    GATHER("vgatherdpd", "1", "xmm", "xmm"); GATHER("vgatherdpd", "8", "ymm", "xmm");
#undef GATHER
#define GATHERQ(insn, suffix, data, index)                                                         \
    AVX(insn, 1, "vpxor %%ymm7,%%ymm7,%%ymm7\n vmovdqa %%ymm2,%%ymm6\n vmovdqu 640(%[v]),%%" index "5\n"           \
        insn " %%" data "6,(%[p],%%" index "5,4),%%" data "7\n vmovdqu %%ymm7,(%[p])\n vmovdqu %%ymm6,32(%[p])\n"     \
        "vpcmpeqd %%ymm6,%%ymm6,%%ymm6\n" insn " %%" data "6,8(%[p],%%" index "5," suffix "),%%" data "7\n vmovdqu %%ymm7,64(%[p])")
    GATHERQ("vpgatherqd", "1", "xmm", "xmm"); GATHERQ("vpgatherqd", "8", "xmm", "ymm");
    GATHERQ("vgatherqps", "2", "xmm", "xmm"); GATHERQ("vgatherqps", "8", "xmm", "ymm");
    GATHERQ("vpgatherqq", "1", "xmm", "xmm"); GATHERQ("vpgatherqq", "8", "ymm", "ymm");
    GATHERQ("vgatherqpd", "1", "xmm", "xmm"); GATHERQ("vgatherqpd", "8", "ymm", "ymm");
}

// ---------------------------------------------------------------- AVX-512

// zmm1..zmm4 and high registers zmm17, zmm18; k1 a mixed mask, k2 its complement, k3 none.
#define EVEX_LOAD                                                                                  \
    "vmovdqu64 (%[v]),%%zmm1\n vmovdqu64 64(%[v]),%%zmm2\n vmovdqu64 128(%[v]),%%zmm3\n vmovdqu64 192(%[v]),%%zmm4\n"    \
    "vmovdqu64 256(%[v]),%%zmm17\n vmovdqu64 320(%[v]),%%zmm18\n"                                  \
    "kmovq 384(%[v]),%%k1\n knotq %%k1,%%k2\n kxorq %%k3,%%k3,%%k3\n"
#define EVEX(name, align, text) OP("avx512 " name, align, EVEX_LOAD text "\n vzeroupper")

static void avx512(void)
{
#define PLAIN(insn, align, size, reg)                                                              \
    EVEX(insn " " reg, align, insn " %%" reg "17,(%[p])\n " insn " %%" reg "1,64(%[p])%{%%k1%}\n " insn " %%" reg           \
         "18,128(%[p])%{%%k2%}\n " insn " %%" reg "2,192(%[p])%{%%k3%}\n " insn " (%[p]),%%" reg "5%{%%k1%}%{z%}\n " insn  \
         " 64(%[p]),%%" reg "18%{%%k2%}\n vmovdqu64 %%zmm5,256(%[p])\n vmovdqu64 %%zmm18,320(%[p])")
#define THREE(insn, aligned)                                                                       \
    PLAIN(insn, aligned ? 16 : 1, 16, "xmm"); PLAIN(insn, aligned ? 32 : 1, 32, "ymm"); PLAIN(insn, aligned ? 64 : 1, 64, "zmm")
    THREE("vmovdqu8", 0); THREE("vmovdqu16", 0); THREE("vmovdqu32", 0); THREE("vmovdqu64", 0); THREE("vmovups", 0); THREE("vmovupd", 0);
    THREE("vmovdqa32", 1); THREE("vmovdqa64", 1); THREE("vmovaps", 1); THREE("vmovapd", 1);
    EVEX("vmovnt", 64, "vmovntdq %%zmm17,(%[p])\n vmovntps %%zmm1,64(%[p])\n vmovntpd %%zmm18,128(%[p])\n sfence\n vmovntdqa (%[p]),%%zmm5\n vmovdqu64 %%zmm5,192(%[p])");
    EVEX("vmovnt ymm16+", 32, "vmovntdq %%ymm17,(%[p])\n vmovntps %%xmm17,32(%[p])\n sfence");
    EVEX("scalars masked", 1, "vmovss %%xmm1,(%[p])%{%%k1%}\n vmovsd %%xmm17,8(%[p])%{%%k1%}\n vmovss %%xmm1,16(%[p])%{%%k3%}\n vmovsd (%[p]),%%xmm5%{%%k1%}%{z%}\n vmovups %%xmm5,32(%[p])");
    EVEX("kmov", 1, "kmovb %%k1,(%[p])\n kmovw %%k1,8(%[p])\n kmovd %%k1,16(%[p])\n kmovq %%k1,24(%[p])\n kmovb (%[p]),%%k4\n kmovw 2(%[p]),%%k5\n kmovd 4(%[p]),%%k6\n kmovq (%[p]),%%k7\n kmovq %%k4,%%rax\n kmovq %%k5,%%rcx\n kmovq %%k7,%%rdx");
    EVEX("extracts", 1, "vextractf32x4 $3,%%zmm1,(%[p])\n vextracti32x4 $1,%%ymm17,16(%[p])\n vextractf64x2 $2,%%zmm2,32(%[p])\n vextracti64x2 $1,%%zmm2,48(%[p])\n vextractf32x8 $1,%%zmm3,64(%[p])\n vextracti32x8 $0,%%zmm18,96(%[p])\n vextractf64x4 $1,%%zmm1,128(%[p])\n vextracti64x4 $0,%%zmm1,160(%[p])");
    EVEX("extracts masked", 1, "vextractf32x4 $3,%%zmm1,(%[p])%{%%k1%}\n vextracti32x8 $1,%%zmm17,32(%[p])%{%%k2%}\n vextractf64x4 $1,%%zmm1,64(%[p])%{%%k1%}\n vextracti64x2 $1,%%zmm2,96(%[p])%{%%k1%}");
    EVEX("vpextr evex", 1, "vpextrb $7,%%xmm17,(%[p])\n vpextrw $3,%%xmm17,2(%[p])\n vpextrd $1,%%xmm18,4(%[p])\n vpextrq $1,%%xmm17,8(%[p])\n vextractps $1,%%xmm17,16(%[p])");
    EVEX("vcvtps2ph", 1, "vcvtps2ph $0,%%zmm1,(%[p])\n vcvtps2ph $0,%%zmm17,32(%[p])%{%%k1%}\n vcvtps2ph $2,%%ymm1,64(%[p])%{%%k2%}\n vcvtps2ph $2,%%xmm1,96(%[p])%{%%k1%}");
#define DOWN1(insn, from) "\n " insn " %%" from "1,(%[p])\n " insn " %%" from "17,64(%[p])%{%%k1%}\n " insn " %%" from "2,128(%[p])%{%%k3%}\n"
#define DOWN(suffix)                                                                               \
    EVEX("vpmov" suffix, 1, DOWN1("vpmov" suffix, "xmm") DOWN1("vpmov" suffix, "ymm") DOWN1("vpmov" suffix, "zmm"));       \
    EVEX("vpmovs" suffix, 1, DOWN1("vpmovs" suffix, "xmm") DOWN1("vpmovs" suffix, "ymm") DOWN1("vpmovs" suffix, "zmm"));   \
    EVEX("vpmovus" suffix, 1, DOWN1("vpmovus" suffix, "xmm") DOWN1("vpmovus" suffix, "ymm") DOWN1("vpmovus" suffix, "zmm"))
    DOWN("db"); DOWN("dw"); DOWN("qb"); DOWN("qw"); DOWN("qd"); DOWN("wb");
#define COMPRESS(insn, ex)                                                                         \
    EVEX(insn, 1, insn " %%zmm1,(%[p])%{%%k1%}\n " insn " %%ymm17,64(%[p])%{%%k2%}\n " insn " %%xmm2,128(%[p])%{%%k1%}\n " insn \
         " %%zmm3,192(%[p])\n " insn " %%zmm3,256(%[p])%{%%k3%}");                                 \
    EVEX(ex, 1, ex " (%[p]),%%zmm5%{%%k1%}%{z%}\n " ex " 64(%[p]),%%ymm18%{%%k2%}\n vmovdqu64 %%zmm5,(%[p])\n vmovdqu64 %%zmm18,64(%[p])")
    COMPRESS("vpcompressd", "vpexpandd"); COMPRESS("vpcompressq", "vpexpandq"); COMPRESS("vcompressps", "vexpandps"); COMPRESS("vcompresspd", "vexpandpd");
    if (feature("avx512_vbmi2", has(7, 0, 'c', 6))) {
        COMPRESS("vpcompressb", "vpexpandb");
        COMPRESS("vpcompressw", "vpexpandw");
    }
    // Scatter and gather; two lanes of the index vector coincide, so order within the instruction shows.
#define SCATTER(insn, table, data, index)                                                          \
    EVEX(insn " " data, 1, "vmovdqu64 " table "(%[v]),%%zmm5\n kmovq %%k1,%%k4\n" insn " %%" data "1,(%[p],%%" index "5,4)%{%%k4%}\n"   \
         "kmovq %%k4,%%rax\n kxnorq %%k4,%%k4,%%k4\n vmovdqa64 %%zmm5,%%zmm19\n" insn " %%" data "17,16(%[p],%%" index "19,8)%{%%k4%}\n" \
         "kxorq %%k4,%%k4,%%k4\n" insn " %%" data "2,(%[p],%%" index "5,1)%{%%k4%}\n kmovq %%k4,%%rdx")
    SCATTER("vpscatterdd", "512", "xmm", "xmm"); SCATTER("vpscatterdd", "512", "ymm", "ymm"); SCATTER("vpscatterdd", "512", "zmm", "zmm");
    SCATTER("vscatterdps", "512", "xmm", "xmm"); SCATTER("vscatterdps", "512", "ymm", "ymm"); SCATTER("vscatterdps", "512", "zmm", "zmm");
    SCATTER("vpscatterdq", "512", "xmm", "xmm"); SCATTER("vpscatterdq", "512", "ymm", "xmm"); SCATTER("vpscatterdq", "512", "zmm", "ymm");
    SCATTER("vscatterdpd", "512", "xmm", "xmm"); SCATTER("vscatterdpd", "512", "ymm", "xmm"); SCATTER("vscatterdpd", "512", "zmm", "ymm");
    SCATTER("vpscatterqd", "640", "xmm", "xmm"); SCATTER("vpscatterqd", "640", "xmm", "ymm"); SCATTER("vpscatterqd", "640", "ymm", "zmm");
    SCATTER("vscatterqps", "640", "xmm", "xmm"); SCATTER("vscatterqps", "640", "xmm", "ymm"); SCATTER("vscatterqps", "640", "ymm", "zmm");
    SCATTER("vpscatterqq", "640", "xmm", "xmm"); SCATTER("vpscatterqq", "640", "ymm", "ymm"); SCATTER("vpscatterqq", "640", "zmm", "zmm");
    SCATTER("vscatterqpd", "640", "xmm", "xmm"); SCATTER("vscatterqpd", "640", "ymm", "ymm"); SCATTER("vscatterqpd", "640", "zmm", "zmm");
#define GATHER(insn, table, data, index)                                                           \
    EVEX(insn " " data, 1, "vmovdqu64 " table "(%[v]),%%zmm5\n kmovq %%k1,%%k4\n" insn " (%[p],%%" index "5,4),%%" data "17%{%%k4%}\n"  \
         "kmovq %%k4,%%rax\n kxnorq %%k4,%%k4,%%k4\n" insn " 8(%[p],%%" index "5,8),%%" data "6%{%%k4%}\n"                               \
         "vmovdqu64 %%zmm17,(%[p])\n vmovdqu %%ymm6,64(%[p])")
    GATHER("vpgatherdd", "512", "xmm", "xmm"); GATHER("vpgatherdd", "512", "ymm", "ymm"); GATHER("vpgatherdd", "512", "zmm", "zmm");
    GATHER("vgatherdps", "512", "zmm", "zmm"); GATHER("vpgatherdq", "512", "xmm", "xmm"); GATHER("vpgatherdq", "512", "zmm", "ymm");
    GATHER("vgatherdpd", "512", "ymm", "xmm"); GATHER("vpgatherqd", "640", "xmm", "ymm"); GATHER("vpgatherqd", "640", "ymm", "zmm");
    GATHER("vgatherqps", "640", "ymm", "zmm"); GATHER("vpgatherqq", "640", "ymm", "ymm"); GATHER("vpgatherqq", "640", "zmm", "zmm"); GATHER("vgatherqpd", "640", "zmm", "zmm");
    EVEX("operand loads", 1, "vpaddd (%[p]),%%zmm1,%%zmm5\n vpaddq (%[p])%{1to8%},%%zmm2,%%zmm6\n vaddps 4(%[p])%{1to16%},%%zmm3,%%zmm7%{%%k1%}\n vpternlogd $0x96,(%[p]),%%zmm1,%%zmm2%{%%k1%}%{z%}\n vpcmpud $1,(%[p]),%%zmm1,%%k4\n vpermd (%[p]),%%zmm1,%%zmm18\n vbroadcasti64x4 (%[p]),%%zmm9\n vbroadcastf32x2 (%[p]),%%zmm10%{%%k2%}%{z%}\n vpmovzxbd (%[p]),%%zmm11%{%%k1%}%{z%}\n vshufi64x2 $0x1b,(%[p]),%%zmm1,%%zmm12\n kmovq %%k4,%%rax\n vmovdqu64 %%zmm5,(%[p])\n vmovdqu64 %%zmm6,64(%[p])\n vmovdqu64 %%zmm18,128(%[p])\n vmovdqu64 %%zmm11,192(%[p])\n vmovdqu64 %%zmm2,256(%[p])");
    if (feature("avx512_fp16", has(7, 0, 'd', 23)))
        EVEX("fp16", 1, "vmovsh %%xmm1,(%[p])\n vmovw %%xmm17,8(%[p])\n vmovsh %%xmm2,16(%[p])%{%%k1%}");
}

// ---------------------------------------------------------------- masked-out lanes never fault

static void at_the_edge(struct pool pool)
{
    // The last bytes of the pool are followed by an inaccessible page.
    unsigned char *end = mmap(NULL, 4096 * 3, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(end != MAP_FAILED);
    CHECK(mmap(end, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pool.fd, (off_t)pool.size - 8192) == end);
    end += 8192;
    unsigned char *begin_of_last = pool.base + pool.size - 64;
    memset(begin_of_last, 0, 64);
    uint64_t index[8] = {0};
    if (has(7, 0, 'b', 16) && has(7, 0, 'b', 30) && has(7, 0, 'b', 31)) {
        __asm__ volatile("mov $0xff,%%eax\n kmovd %%eax,%%k1\n vmovdqu64 (%1),%%zmm1\n"
                         "vmovdqu32 %%zmm1,-32(%0)%{%%k1%}\n"   // low 8 of 16 lanes
                         "vmovdqu8 %%zmm1,-8(%0)%{%%k1%}\n"     // low 8 of 64 bytes
                         "vmovdqu32 -32(%0),%%zmm2%{%%k1%}%{z%}\n"
                         "vpcompressd %%zmm1,-32(%0)%{%%k1%}\n"
                         "vpmovqd %%zmm1,-32(%0)%{%%k1%}\n"
                         "kxorw %%k2,%%k2,%%k2\n"
                         "vmovdqu32 %%zmm1,(%0)%{%%k2%}\n"      // nothing at all
                         "vmovdqu32 (%0),%%zmm3%{%%k2%}%{z%}\n"
                         "vzeroupper" ::"r"(end), "r"(vectors) : "rax", "memory");
        CHECK(!memcmp(begin_of_last + 32, vectors, 4));
        // Scatter and gather with a masked-out lane far outside.
        index[1] = 1 << 20;
        uint64_t mask;
        __asm__ volatile("mov $0xfd,%%eax\n kmovd %%eax,%%k1\n vmovdqu64 (%2),%%zmm5\n vmovdqu64 (%1),%%zmm1\n"
                         "vpscatterqq %%zmm1,-8(%3,%%zmm5,1)%{%%k1%}\n"
                         "mov $0xfd,%%eax\n kmovd %%eax,%%k1\n vpgatherqq -8(%3,%%zmm5,1),%%zmm6%{%%k1%}\n"
                         "kmovq %%k1,%0\n vzeroupper" : "=r"(mask) : "r"(vectors), "r"(index), "r"(end) : "rax", "memory");
        CHECK_EQ(mask, 0);
        CHECK(!memcmp(begin_of_last + 56, vectors + 56, 8)); // the highest lane wins
    }
    if (has(7, 0, 'b', 5)) {
        static const int32_t lanes[8] = {-1, -1, -1, -1, 0, 0, 0, 0};
        __asm__ volatile("vmovdqu (%1),%%ymm2\n vmovdqu (%2),%%ymm1\n vmaskmovps %%ymm1,%%ymm2,-16(%0)\n"
                         "vpmaskmovd -16(%0),%%ymm2,%%ymm3\n vpmaskmovd %%ymm1,%%ymm2,-16(%0)\n vzeroupper" ::"r"(end),
                         "r"(lanes), "r"(vectors) : "memory");
        CHECK(!memcmp(begin_of_last + 48, vectors, 16));
    }
    CHECK(munmap(end - 8192, 4096 * 3) == 0);
    form_count++;
}

// ---------------------------------------------------------------- processor state and odd stores

static void state(void)
{
#define STATE_LOAD "frstor x87_image(%%rip)\n push $0x1f80\n ldmxcsr (%%rsp)\n pop %%r9\n" SSE_LOAD                         \
    "movaps %%xmm1,%%xmm0\n movaps %%xmm1,%%xmm5\n movaps %%xmm1,%%xmm6\n movaps %%xmm1,%%xmm7\n movaps %%xmm1,%%xmm8\n"    \
    "movaps %%xmm1,%%xmm9\n movaps %%xmm1,%%xmm10\n movaps %%xmm1,%%xmm11\n movaps %%xmm1,%%xmm12\n movaps %%xmm1,%%xmm13\n" \
    "movaps %%xmm1,%%xmm14\n movaps %%xmm1,%%xmm15\n"
    OP("fxsave", 16, STATE_LOAD "fxsave (%[p])\n fxrstor (%[p])\n fninit");
    OP("fxsave64", 16, STATE_LOAD "fxsave64 (%[p])\n fxrstor64 (%[p])\n fninit");
    if (!feature("xsave", has(1, 0, 'c', 27)))
        return;
    // Components x87, SSE and AVX; zero header first, as the instruction reads it.
#define XSTATE_LOAD STATE_LOAD "vmovdqu 64(%[v]),%%ymm0\n vmovdqu 96(%[v]),%%ymm15\n mov $7,%%eax\n xor %%edx,%%edx\n"
#define ZERO_HEADER memset(p + 512, 0, 64)
    OP_WITH("xsave", 64, ZERO_HEADER, XSTATE_LOAD "xsave (%[p])\n xrstor (%[p])\n fninit\n vzeroupper");
    OP_WITH("xsave64", 64, ZERO_HEADER, XSTATE_LOAD "xsave64 (%[p])\n xrstor64 (%[p])\n fninit\n vzeroupper");
    if (feature("xsaveopt", has(0xd, 1, 'a', 0)))
        OP_WITH("xsaveopt", 64, ZERO_HEADER, XSTATE_LOAD "xsaveopt (%[p])\n fninit\n vzeroupper");
    if (feature("xsavec", has(0xd, 1, 'a', 1)))
        OP_WITH("xsavec", 64, ZERO_HEADER, XSTATE_LOAD "xsavec (%[p])\n xrstor (%[p])\n fninit\n vzeroupper");
    OP_WITH("xsave of nothing", 64, ZERO_HEADER, "xor %%eax,%%eax\n xor %%edx,%%edx\n xsave (%[p])");
    if (has(7, 0, 'b', 16)) {
#define ZMM(n) "vmovdqu64 (%[v]),%%zmm" #n "\n"
        OP_WITH("xsave with avx512", 64, { memset(p + 512, 0, 64); },
                STATE_LOAD "vpcmpeqd %%ymm0,%%ymm0,%%ymm0\n" ZMM(1) ZMM(2) ZMM(3) ZMM(4) ZMM(5) ZMM(6) ZMM(7) ZMM(8) ZMM(9) ZMM(10)
                ZMM(11) ZMM(12) ZMM(13) ZMM(14) ZMM(15) ZMM(16) ZMM(17) ZMM(18) ZMM(19) ZMM(20) ZMM(21) ZMM(22) ZMM(23)
                ZMM(24) ZMM(25) ZMM(26) ZMM(27) ZMM(28) ZMM(29) ZMM(30) ZMM(31)
                "kmovq 384(%[v]),%%k0\n kmovq %%k0,%%k1\n kmovq %%k0,%%k2\n kmovq %%k0,%%k3\n kmovq %%k0,%%k4\n kmovq %%k0,%%k5\n"
                "kmovq %%k0,%%k6\n kmovq %%k0,%%k7\n mov $0xe7,%%eax\n xor %%edx,%%edx\n xsave64 (%[p])\n xrstor64 (%[p])\n fninit\n vzeroupper");
    }
}

static void odd_stores(void)
{
    if (feature("movdiri", has(7, 0, 'c', 27)))
        OP("movdiri", 8, "movdiri %%eax,(%[p])\n movdiri %%rdx,8(%[p])\n sfence");
    if (feature("movdir64b", has(7, 0, 'c', 28))) {
        OP("movdir64b from ordinary memory", 64, "movdir64b (%[v]),%[p]\n sfence");
        OP("movdir64b within", 64, "lea 1(%[p]),%%rax\n movdir64b (%%rax),%[p]\n sfence\n xor %%eax,%%eax");
    }
    if (feature("clzero", has(0x80000008, 0, 'b', 0)))
        OP("clzero", 1, "mov %[p],%%rax\n clzero\n sfence\n xor %%eax,%%eax");
    if (feature("clwb", has(7, 0, 'b', 24)))
        OP("clwb", 1, "movq %%rdx,(%[p])\n clwb (%[p])\n sfence");
    if (feature("clflushopt", has(7, 0, 'b', 23)))
        OP("clflushopt", 1, "movq %%rdx,(%[p])\n clflushopt (%[p])\n sfence");
    OP("clflush", 1, "movq %%rdx,(%[p])\n clflush (%[p])");
    // With UMIP the kernel emulates these, and stores constants; without it they name the machine.
    if (feature("kernel-emulated sgdt, sidt, smsw", has(7, 0, 'c', 2)))
        OP("sgdt sidt smsw", 1, "sgdt (%[p])\n sidt 16(%[p])\n smsw 32(%[p])");
}

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 1 << 20);
    sides[0] = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sides[1] = pool.base + 64 * 4096;
    CHECK(sides[0] != MAP_FAILED);
    uint64_t s = 12345;
    for (unsigned i = 0; i < sizeof vectors; i += 8) {
        uint64_t r = next_random(&s);
        memcpy(vectors + i, &r, 8);
    }
    // Index tables for gather and scatter at 512 (32-bit) and 640 (64-bit): small, one repeated.
    for (int i = 0; i < 16; i++) {
        int32_t small = i == 9 ? 12 : i * 13 % 31 * 4 - 40;
        memcpy(vectors + 512 + 4 * i, &small, 4);
        int64_t wide = small;
        if (i < 8)
            memcpy(vectors + 640 + 8 * i, &wide, 8);
    }
    for (int r = 0; r < 8; r++) { // x87 registers: 1.5 * 2^r
        unsigned char *at = x87_image + 28 + 10 * r;
        at[7] = 0xc0;
        at[8] = (unsigned char)(0xff + r);
        at[9] = (unsigned char)(0x3f + (0xff + r > 255 ? 1 : 0));
    }
    for (int i = 0; i < ARENA; i++)
        sides[0][i] = sides[1][i] = (unsigned char)next_random(&s);
    moves();
    addressing();
    arithmetic();
    transfers();
    absolute_addresses();
    strings();
    x87();
    sse();
    if (feature("avx and avx2", has(1, 0, 'c', 28) && has(7, 0, 'b', 5)))
        avx();
    if (feature("avx512 f, bw, dq, vl", has(7, 0, 'b', 16) && has(7, 0, 'b', 30) && has(7, 0, 'b', 17) && has(7, 0, 'b', 31)))
        avx512();
    at_the_edge(pool);
    state();
    odd_stores();
    pool_check_file(pool);
    printf("%d forms ok, content %016lx\n", form_count, hash_bytes(1, sides[1], ARENA));
    return 0;
}

// A storm of asynchronous signals must not change a single register, flag or red-zone byte.
// build: dynamic static nopie
//
// Three asm loops spin while an interval timer and a second thread fire signals as fast as the
// kernel takes them; the handler itself overwrites every vector register. Each loop ends by
// comparing everything it can see.
#include "harness.h"
#include "cpu.h"
#include <cpuid.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static volatile long handled;
static volatile int stop;
static int have_avx512;

__attribute__((target("avx512f,avx512bw"))) static void clobber512(void)
{
    __asm__ volatile("vpternlogd $0xff,%%zmm0,%%zmm0,%%zmm0\n"
                     "vmovdqa64 %%zmm0,%%zmm1\n vmovdqa64 %%zmm0,%%zmm7\n"
                     "vmovdqa64 %%zmm0,%%zmm15\n vmovdqa64 %%zmm0,%%zmm16\n"
                     "vmovdqa64 %%zmm0,%%zmm31\n"
                     "kxnorq %%k0,%%k0,%%k0\n kxnorq %%k1,%%k1,%%k1\n kxnorq %%k7,%%k7,%%k7\n" ::
                         : "xmm0", "xmm1", "xmm7", "xmm15", "memory");
}

static void on_signal(int sig)
{
    (void)sig;
    handled++;
    if (have_avx512)
        clobber512();
    else
        __asm__ volatile("pcmpeqd %%xmm0,%%xmm0\n movdqa %%xmm0,%%xmm8\n movdqa %%xmm0,%%xmm15\n" ::
                             : "xmm0", "xmm8", "xmm15");
}

static void *sender(void *arg)
{
    pthread_t target = *(pthread_t *)arg;
    while (!stop) {
        pthread_kill(target, SIGUSR1);
        pthread_kill(target, SIGUSR2);
    }
    return NULL;
}

// Every zmm and mask register holds its own pattern while general registers count.
__attribute__((target("avx512f,avx512bw"), noinline)) static void spin512(uint64_t seed)
{
    static uint64_t in[32][8] __attribute__((aligned(64)));
    static uint64_t out[32][8] __attribute__((aligned(64)));
    static uint64_t k_in[8], k_out[8];
    uint64_t s = seed | 1;
    for (int r = 0; r < 32; r++)
        for (int i = 0; i < 8; i++)
            in[r][i] = next_random(&s);
    for (int r = 0; r < 8; r++)
        k_in[r] = next_random(&s);
    memset(out, 0, sizeof out);
    memset(k_out, 0, sizeof k_out);
#define L(n) "vmovdqa64 " #n "*64(%[in]),%%zmm" #n "\n"
#define S(n) "vmovdqa64 %%zmm" #n "," #n "*64(%[out])\n"
#define ALL(M)                                                                                     \
    M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15) M(16)    \
    M(17) M(18) M(19) M(20) M(21) M(22) M(23) M(24) M(25) M(26) M(27) M(28) M(29) M(30) M(31)
    __asm__ volatile(
        ALL(L)
        "kmovq (%[kin]),%%k0\n kmovq 8(%[kin]),%%k1\n kmovq 16(%[kin]),%%k2\n"
        "kmovq 24(%[kin]),%%k3\n kmovq 32(%[kin]),%%k4\n kmovq 40(%[kin]),%%k5\n"
        "kmovq 48(%[kin]),%%k6\n kmovq 56(%[kin]),%%k7\n"
        "mov $20000,%%ecx\n"
        "1: add $3,%%rax\n call 2f\n jmp 3f\n 2: ret\n 3: dec %%ecx\n jnz 1b\n"
        ALL(S)
        "kmovq %%k0,(%[kout])\n kmovq %%k1,8(%[kout])\n kmovq %%k2,16(%[kout])\n"
        "kmovq %%k3,24(%[kout])\n kmovq %%k4,32(%[kout])\n kmovq %%k5,40(%[kout])\n"
        "kmovq %%k6,48(%[kout])\n kmovq %%k7,56(%[kout])\n"
        "vzeroupper\n"
        :
        : [in] "r"(in), [out] "r"(out), [kin] "r"(k_in), [kout] "r"(k_out)
        : "rax", "rcx", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
          "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16",
          "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26",
          "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7");
    for (int r = 0; r < 32; r++)
        if (memcmp(in[r], out[r], 64))
            FAIL("zmm%d changed after %ld signals", r, handled);
    for (int r = 0; r < 8; r++)
        if (k_in[r] != k_out[r])
            FAIL("k%d changed after %ld signals", r, handled);
#undef L
#undef S
}

__attribute__((noinline)) static void spin128(uint64_t seed)
{
    static uint64_t in[16][2] __attribute__((aligned(16)));
    static uint64_t out[16][2] __attribute__((aligned(16)));
    uint64_t s = seed | 1;
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < 2; i++)
            in[r][i] = next_random(&s);
    memset(out, 0, sizeof out);
#define L(n) "movdqa " #n "*16(%[in]),%%xmm" #n "\n"
#define S(n) "movdqa %%xmm" #n "," #n "*16(%[out])\n"
#define ALL16(M)                                                                                   \
    M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
    __asm__ volatile(ALL16(L) "mov $20000,%%ecx\n"
                              "1: add $3,%%rax\n call 2f\n jmp 3f\n 2: ret\n 3: dec %%ecx\n jnz 1b\n" ALL16(S)
                     :
                     : [in] "r"(in), [out] "r"(out)
                     : "rax", "rcx", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                       "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15");
    for (int r = 0; r < 16; r++)
        if (memcmp(in[r], out[r], 16))
            FAIL("xmm%d changed after %ld signals", r, handled);
}

// All general registers, the arithmetic flags and the red zone. The loop uses only `lea`, `mov`,
// `jrcxz` and jumps, which leave flags alone. Top-level asm: the compiler has no say in it.
extern uint64_t gpr_in[15], gpr_out[15], redzone_out[16], flags_in, flags_out;
void spin_gprs(void);
// clang-format off
#define REGS(M) \
    M(0,rax) M(1,rbx) M(2,rdx) M(3,rsi) M(4,rdi) M(5,rbp) M(6,r8) M(7,r9) M(8,r10) M(9,r11) \
    M(10,r12) M(11,r13) M(12,r14) M(13,r15)
#define LOAD(i, r) "mov gpr_in+8*" #i "(%rip),%" #r "\n"
#define SAVE(i, r) "mov %" #r ",gpr_out+8*" #i "(%rip)\n"
__asm__(".text\n.globl spin_gprs\nspin_gprs:\n"
        "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "pushq flags_in(%rip)\n popfq\n"
        REGS(LOAD)
        "mov %rax,-8(%rsp)\n mov %rbx,-16(%rsp)\n mov %rdx,-64(%rsp)\n mov %r15,-128(%rsp)\n"
        "mov $20000,%ecx\n"
        "1: jrcxz 2f\n lea -1(%rcx),%rcx\n jmp 1b\n"
        "2:\n"
        REGS(SAVE)
        "mov -8(%rsp),%rcx\n mov %rcx,redzone_out(%rip)\n"
        "mov -16(%rsp),%rcx\n mov %rcx,redzone_out+8(%rip)\n"
        "mov -64(%rsp),%rcx\n mov %rcx,redzone_out+16(%rip)\n"
        "mov -128(%rsp),%rcx\n mov %rcx,redzone_out+24(%rip)\n"
        "pushfq\n popq flags_out(%rip)\n cld\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");
// clang-format on
uint64_t gpr_in[15], gpr_out[15], redzone_out[16], flags_in, flags_out;

static void check_gprs(uint64_t seed)
{
    // CF PF AF ZF SF DF OF, all independent.
    static const uint64_t bits[] = {1, 4, 16, 64, 128, 0x400, 0x800};
    uint64_t s = seed | 1;
    for (int i = 0; i < 14; i++)
        gpr_in[i] = next_random(&s);
    flags_in = 0x202;
    for (int i = 0; i < 7; i++)
        if (seed >> i & 1)
            flags_in |= bits[i];
    memset(gpr_out, 0, sizeof gpr_out);
    spin_gprs();
    for (int i = 0; i < 14; i++)
        if (gpr_in[i] != gpr_out[i])
            FAIL("register %d changed after %ld signals: %#lx to %#lx", i, handled, gpr_in[i],
                 gpr_out[i]);
    if (flags_in != flags_out)
        FAIL("flags changed after %ld signals: %#lx to %#lx", handled, flags_in, flags_out);
    if (redzone_out[0] != gpr_in[0] || redzone_out[1] != gpr_in[1] || redzone_out[2] != gpr_in[2] ||
        redzone_out[3] != gpr_in[13])
        FAIL("red zone changed after %ld signals", handled);
}

int main(void)
{
    unsigned a, b = 0, c, d;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    have_avx512 = (b >> 16 & 1) && (b >> 30 & 1) && !cpu_hidden("avx512");
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
    CHECK(sigaction(SIGUSR2, &sa, NULL) == 0);
    CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
    struct itimerval timer = {{0, 200}, {0, 200}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    pthread_t self = pthread_self(), thread;
    CHECK(pthread_create(&thread, NULL, sender, &self) == 0);
    double end = now_seconds() + 1.0;
    for (uint64_t round = 0; now_seconds() < end || handled < 100; round++) {
        check_gprs(round);
        if (have_avx512)
            spin512(round);
        else
            spin128(round);
    }
    stop = 1;
    pthread_join(thread, NULL);
    printf("registers intact\n");
    return 0;
}

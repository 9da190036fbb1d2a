// Floating point and vector arithmetic of every generation; modes and environments kept.
// build: dynamic static
// flags: -fno-builtin -ffp-contract=off
// libs: -lm
#include "harness.h"
#include "cpu.h"
#include <fenv.h>
#include <immintrin.h>
#include <math.h>

static uint64_t h = 1469598103934665603UL;
#define MIX(v) h = hash_bytes(h, &(v), sizeof(v))

static void x87(void)
{
    long double x = 1.0L, s = 0;
    for (int i = 1; i < 2000; i++) {
        x = x * 1.0000001L + 1.0L / i;
        s += sinl(x) * sqrtl((long double)i);
    }
    double d = (double)s;
    MIX(d);
    unsigned short cw = 0, back = 0;
    __asm__ volatile("fnstcw %0" : "=m"(cw));
    unsigned short down = (unsigned short)((cw & ~0xc00) | 0x400);
    double third;
    __asm__ volatile("fldcw %2\n fld1\n fldl %3\n fdivrp\n fstpl %0\n fnstcw %1\n fldcw %4"
                     : "=m"(third), "=m"(back)
                     : "m"(down), "m"((double){3.0}), "m"(cw));
    CHECK_EQ(back, down);
    MIX(third);
    // A full register stack, rotated.
    double out[8];
    __asm__ volatile("fninit\n fld1\n fldpi\n fldl2e\n fldl2t\n fldlg2\n fldln2\n fldz\n fld1\n"
                     "fincstp\n fdecstp\n fxch %%st(3)\n faddp\n fstpl 0(%0)\n fstpl 8(%0)\n fstpl 16(%0)\n"
                     "fstpl 24(%0)\n fstpl 32(%0)\n fstpl 40(%0)\n fstpl 48(%0)\n" ::"r"(out)
                     : "memory");
    for (int i = 0; i < 7; i++)
        MIX(out[i]);
    __asm__ volatile("fninit");
    // Environment and state images.
    unsigned char env[28], state[108];
    __asm__ volatile("fldpi\n fnsave %0\n frstor %0\n fstp %%st(0)\n fnstenv %1\n fldenv %1" : "=m"(state), "=m"(env));
    long double pi;
    memcpy(&pi, state + 28, 10);
    double pd = (double)pi;
    MIX(pd);
}

static void mmx(void)
{
    uint64_t r, x = 0x0102030405060708UL, y = 0xf0e0d0c0b0a09080UL;
    __asm__ volatile("movq %1,%%mm0\n movq %2,%%mm1\n paddb %%mm1,%%mm0\n pmaddwd %%mm1,%%mm0\n psrlq $3,%%mm0\n"
                     "punpcklbw %%mm1,%%mm0\n movq %%mm0,%0\n emms"
                     : "=m"(r)
                     : "m"(x), "m"(y));
    MIX(r);
}

static void sse(void)
{
    float f[4] = {1.5f, -2.25f, 1e-40f, 3e38f};
    __m128 v = _mm_loadu_ps(f);
    for (int i = 0; i < 100; i++)
        v = _mm_add_ps(_mm_mul_ps(v, _mm_set1_ps(1.001f)), _mm_set_ps(1, 2, 3, 4));
    _mm_storeu_ps(f, v);
    MIX(f);
    unsigned before = _mm_getcsr();
    for (unsigned mode = 0; mode < 4; mode++) {
        _mm_setcsr((before & ~0x6000u) | mode << 13);
        volatile double a = 1.0, b = 3.0;
        volatile double q = a / b;
        double qq = q;
        MIX(qq);
        long i = _mm_cvtsd_si64(_mm_set_sd(2.5));
        MIX(i);
        char text[4];
        snprintf(text, sizeof text, "%u", mode); // library code in between
        CHECK_EQ(_mm_getcsr() >> 13 & 3, mode);
    }
    _mm_setcsr(before);
    // Denormals flushed on request.
    volatile float tiny = 1e-40f, half = 0.5f;
    _mm_setcsr(before | 0x8040);
    volatile float z = tiny * half;
    CHECK(z == 0);
    _mm_setcsr(before);
    z = tiny * half;
    CHECK(z != 0);
    feclearexcept(FE_ALL_EXCEPT);
    volatile double one = 1, zero = 0;
    volatile double inf = one / zero;
    (void)inf;
    CHECK(fetestexcept(FE_DIVBYZERO));
}

__attribute__((target("avx2,fma"))) static void avx2(void)
{
    double d[4] = {0.1, 0.2, 0.3, 0.4};
    __m256d v = _mm256_loadu_pd(d);
    for (int i = 0; i < 200; i++)
        v = _mm256_fmadd_pd(v, _mm256_set1_pd(1.01), _mm256_permute4x64_pd(v, 0x1b));
    _mm256_storeu_pd(d, v);
    MIX(d);
    int table[64], out[8];
    for (int i = 0; i < 64; i++)
        table[i] = i * i;
    __m256i idx = _mm256_setr_epi32(3, 60, 5, 0, 63, 17, 17, 8);
    __m256i g = _mm256_i32gather_epi32(table, idx, 4);
    _mm256_storeu_si256((__m256i *)out, _mm256_shuffle_epi8(g, _mm256_set1_epi64x(0x0001020304050607)));
    MIX(out);
    _mm256_zeroupper();
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void avx512(void)
{
    double d[8];
    for (int i = 0; i < 8; i++)
        d[i] = i * 1.25;
    __m512d v = _mm512_loadu_pd(d);
    for (int i = 0; i < 200; i++)
        v = _mm512_mask_fmadd_pd(v, (__mmask8)(i * 37), _mm512_set1_pd(0.99), _mm512_set1_pd(1.5));
    v = _mm512_add_round_pd(v, _mm512_set1_pd(0.1), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    _mm512_storeu_pd(d, v);
    MIX(d);
    uint8_t bytes[64], out[64] = {0};
    for (int i = 0; i < 64; i++)
        bytes[i] = (uint8_t)(i * 7);
    __m512i b = _mm512_loadu_si512(bytes);
    __mmask64 m = _mm512_cmpgt_epu8_mask(b, _mm512_set1_epi8(100));
    _mm512_mask_storeu_epi8(out, m, _mm512_adds_epu8(b, b));
    MIX(out);
    MIX(m);
    int idx[16], src[256], dst[256] = {0};
    for (int i = 0; i < 256; i++)
        src[i] = i * 3;
    for (int i = 0; i < 16; i++)
        idx[i] = (i * 53) & 255;
    __m512i vi = _mm512_loadu_si512(idx);
    __m512i g = _mm512_i32gather_epi32(vi, src, 4);
    _mm512_i32scatter_epi32(dst, vi, g, 4);
    MIX(dst);
    _mm512_mask_compressstoreu_epi32(dst, 0x5a5a, g);
    MIX(dst);
}

int main(void)
{
    for (int i = 0; i < 20; i++) {
        x87();
        mmx();
        sse();
        if (!cpu_hidden("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            avx2();
        if (!cpu_hidden("avx512") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
            avx512();
    }
    printf("arithmetic %lx\n", h);
    return 0;
}

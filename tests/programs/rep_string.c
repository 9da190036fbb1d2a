// String instructions, all widths, with and without rep, both directions, zero counts, overlaps.
// build: dynamic static
#include "harness.h"

enum { N = 4096 };
static unsigned char a[N], b[N], want[N];

#define STRING(insn, di, si, cx, ax)                                                               \
    __asm__ volatile(insn : "+D"(di), "+S"(si), "+c"(cx), "+a"(ax)::"memory", "cc")
#define STRING_STD(insn, di, si, cx, ax)                                                           \
    __asm__ volatile("std\n" insn "\n cld" : "+D"(di), "+S"(si), "+c"(cx), "+a"(ax)::"memory", "cc")

static void fill(uint64_t seed)
{
    for (int i = 0; i < N; i++) {
        a[i] = (unsigned char)next_random(&seed);
        b[i] = (unsigned char)next_random(&seed);
    }
}

#define MOVS(suffix, width)                                                                        \
    for (size_t count = 0; count < 40; count++)                                                    \
        for (int down = 0; down < 2; down++) {                                                     \
            fill(count + 1);                                                                       \
            memcpy(want, b, N);                                                                    \
            unsigned char *di = b + 1000, *si = a + 1003;                                          \
            uint64_t cx = count, ax = 0;                                                           \
            if (down) {                                                                            \
                for (size_t i = 0; i < count; i++)                                                 \
                    memcpy(want + 1000 - i * width, a + 1003 - i * width, width);                  \
                STRING_STD("rep movs" suffix, di, si, cx, ax);                                     \
                CHECK(di == b + 1000 - count * width && si == a + 1003 - count * width);           \
            } else {                                                                               \
                memcpy(want + 1000, a + 1003, count * width);                                      \
                STRING("rep movs" suffix, di, si, cx, ax);                                         \
                CHECK(di == b + 1000 + count * width && si == a + 1003 + count * width);           \
            }                                                                                      \
            CHECK(cx == 0 && !memcmp(b, want, N));                                                 \
        }

#define STOS(suffix, width)                                                                        \
    for (size_t count = 0; count < 40; count++)                                                    \
        for (int down = 0; down < 2; down++) {                                                     \
            fill(count + 1);                                                                       \
            memcpy(want, b, N);                                                                    \
            unsigned char *di = b + 1001, *si = NULL;                                              \
            uint64_t cx = count, ax = 0x1122334455667788UL;                                        \
            for (size_t i = 0; i < count; i++)                                                     \
                memcpy(want + 1001 + (down ? -(long)(i * width) : (long)(i * width)), &ax, width); \
            if (down)                                                                              \
                STRING_STD("rep stos" suffix, di, si, cx, ax);                                     \
            else                                                                                   \
                STRING("rep stos" suffix, di, si, cx, ax);                                         \
            CHECK(cx == 0 && !memcmp(b, want, N));                                                 \
        }

#define LODS(suffix, width)                                                                        \
    do {                                                                                           \
        fill(9);                                                                                   \
        unsigned char *di = NULL, *si = a + 77;                                                    \
        uint64_t cx = 13, ax = ~0UL, expect = width == 4 ? 0 : ~0UL;                               \
        memcpy(&expect, a + 77 + 12 * width, width);                                               \
        STRING("rep lods" suffix, di, si, cx, ax);                                                 \
        CHECK(cx == 0 && si == a + 77 + 13 * width);                                               \
        CHECK_EQ(ax, expect);                                                                      \
        STRING("lods" suffix, di, si, cx, ax);                                                     \
        CHECK(si == a + 77 + 14 * width);                                                          \
    } while (0)

#define SCAS(suffix, width)                                                                        \
    for (int hit = 0; hit < 30; hit++) {                                                           \
        memset(b, 0, N);                                                                           \
        memset(b + 500 + hit * width, 0x77, width);                                                \
        unsigned char *di = b + 500, *si = NULL;                                                   \
        uint64_t cx = 100, ax = 0x7777777777777777UL;                                              \
        STRING("repne scas" suffix, di, si, cx, ax);                                               \
        CHECK(di == b + 500 + (hit + 1) * width && cx == (uint64_t)(99 - hit));                    \
        ax = 0;                                                                                    \
        di = b + 500;                                                                              \
        cx = 100;                                                                                  \
        STRING("repe scas" suffix, di, si, cx, ax);                                                \
        CHECK(di == b + 500 + (hit + 1) * width && cx == (uint64_t)(99 - hit));                    \
    }

#define CMPS(suffix, width)                                                                        \
    for (int diff = 0; diff < 30; diff++) {                                                        \
        memset(a, 5, N);                                                                           \
        memset(b, 5, N);                                                                           \
        b[300 + diff * width] = 4;                                                                 \
        unsigned char *di = b + 300, *si = a + 300, below, above;                                  \
        uint64_t cx = 100, ax = 0;                                                                 \
        __asm__ volatile("repe cmps" suffix "\n setb %4\n seta %5"                                 \
                         : "+D"(di), "+S"(si), "+c"(cx), "+a"(ax), "=&q"(below), "=&q"(above)      \
                         :                                                                         \
                         : "memory", "cc");                                                        \
        CHECK(cx == (uint64_t)(99 - diff) && above == 1 && below == 0);                            \
    }

int main(void)
{
    MOVS("b", 1) MOVS("w", 2) MOVS("l", 4) MOVS("q", 8)
    STOS("b", 1) STOS("w", 2) STOS("l", 4) STOS("q", 8)
    LODS("b", 1); LODS("w", 2); LODS("l", 4); LODS("q", 8);
    SCAS("b", 1) SCAS("w", 2) SCAS("l", 4) SCAS("q", 8)
    CMPS("b", 1) CMPS("w", 2) CMPS("l", 4) CMPS("q", 8)
    // An overlapping forward copy smears one byte, as memset-by-movsb tricks rely on.
    memset(a, 0, N);
    a[0] = 0xab;
    unsigned char *di = a + 1, *si = a;
    uint64_t cx = 1000, ax = 0;
    STRING("rep movsb", di, si, cx, ax);
    for (int i = 0; i <= 1000; i++)
        CHECK_EQ(a[i], 0xab);
    // A zero count leaves flags and memory alone.
    uint64_t f;
    cx = 0;
    di = NULL;
    si = NULL;
    __asm__ volatile("stc\n repe cmpsb\n pushfq\n pop %3" : "+D"(di), "+S"(si), "+c"(cx), "=r"(f)::"memory", "cc");
    CHECK(f & 1);
    printf("strings ok %lx\n", hash_bytes(1, want, N));
    return 0;
}

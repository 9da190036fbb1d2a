/* Ways that data takes through a program, each from the first page of a pool to its second.
 *
 *     flows POOL CASE
 *
 * `tests/suites/follow.rs` labels the bytes of the first page as they are loaded, and knows for each case what the bytes of
 * the second page, and those that leave, must and must not depend on. The pool is made there, with the input in it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static uint64_t load64(const unsigned char *in)
{
    uint64_t value;
    memcpy(&value, in, sizeof value);
    return value;
}

static void store64(unsigned char *out, uint64_t value)
{
    memcpy(out, &value, sizeof value);
}

/* Keeps the compiler from knowing what is there. */
static void forget(void *p)
{
    __asm__ volatile("" : : "r"(p) : "memory");
}

NOINLINE static void registers(const unsigned char *in, unsigned char *out)
{
    uint64_t value = load64(in);
    store64(out, value ^ 0x1111111111111111);
    store64(out + 8, value + 1);
    store64(out + 16, __builtin_bswap64(value));
    out[24] = in[3];
    out[25] = 7;
    store64(out + 32, value << 8);
    store64(out + 40, value * 3);
}

NOINLINE static void overwritten(const unsigned char *in, unsigned char *out)
{
    unsigned char *heap = malloc(64);
    memcpy(heap, in, 64);
    forget(heap);
    memset(heap, 1, 32);
    forget(heap);
    memcpy(out, heap, 64);
    uint64_t value = load64(in);
    __asm__ volatile("xor %0, %0" : "+r"(value));
    store64(out + 64, value);
    free(heap);
}

NOINLINE static void sse(const unsigned char *in, unsigned char *out)
{
    __m128i a = _mm_loadu_si128((const __m128i *)in);
    __m128i b = _mm_loadu_si128((const __m128i *)(in + 16));
    _mm_storeu_si128((__m128i *)out, _mm_xor_si128(a, _mm_set1_epi8(5)));
    _mm_storeu_si128((__m128i *)(out + 16), _mm_unpacklo_epi8(a, b));
    _mm_storeu_si128((__m128i *)(out + 32), _mm_shuffle_epi32(b, 0x1B));
}

/* How far it is to the end of a text, which is compared with what lies behind the end. */
NOINLINE static void ends(const unsigned char *in, unsigned char *out)
{
    unsigned char text[32];
    memcpy(text, in, sizeof text);
    text[15] = 0;
    forget(text);
    __m128i first = _mm_loadu_si128((const __m128i *)text);
    __m128i second = _mm_loadu_si128((const __m128i *)(text + 16));
    uint32_t zeros = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(first, _mm_setzero_si128()));
    zeros |= (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(second, _mm_setzero_si128())) << 16;
    uint32_t length;
    __asm__ volatile("bsf %1, %0" : "=r"(length) : "r"(zeros) : "cc");
    out[0] = (unsigned char)length;
    __asm__ volatile("tzcnt %1, %0" : "=r"(length) : "r"(zeros) : "cc");
    out[8] = (unsigned char)length;
    out[16] = (unsigned char)(zeros >> 24);
}

__attribute__((target("avx2"))) NOINLINE static void avx(const unsigned char *in, unsigned char *out)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)in);
    _mm256_storeu_si256((__m256i *)out, a);
    static const int table[64] = {1, 2, 3};
    __m256i indices = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)in));
    indices = _mm256_and_si256(indices, _mm256_set1_epi32(63));
    _mm256_storeu_si256((__m256i *)(out + 32), _mm256_i32gather_epi32(table, indices, 4));
}

NOINLINE static void copies(const unsigned char *in, unsigned char *out)
{
    unsigned char *heap = malloc(256);
    memcpy(heap, in, 200);
    forget(heap);
    memmove(heap + 3, heap, 200);
    forget(heap);
    memcpy(out, heap + 3, 200);
    free(heap);
}

NOINLINE static void grown(const unsigned char *in, unsigned char *out)
{
    unsigned char *heap = malloc(200000);
    memset(heap, 0, 200000);
    memcpy(heap + 100000, in, 64);
    forget(heap);
    /* Moved by the kernel. */
    heap = realloc(heap, 8 << 20);
    memcpy(out, heap + 100000, 64);
    heap = realloc(heap, 150000);
    memcpy(out + 64, heap + 100000, 64);
    free(heap);
    /* What the kernel gives is fresh. */
    char *mapped = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(mapped, in, 64);
    forget(mapped);
    mmap(mapped, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memcpy(out + 128, mapped, 64);
}

NOINLINE static void text(const unsigned char *in, unsigned char *out)
{
    char copy[64], line[64];
    strcpy(copy, (const char *)in);
    forget(copy);
    memcpy(out, copy, 8);
    snprintf(line, sizeof line, "n=%u;", *(const uint32_t *)(in + 32));
    forget(line);
    memcpy(out + 16, line, 8);
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

NOINLINE static void sorted(const unsigned char *in, unsigned char *out)
{
    uint32_t numbers[8];
    memcpy(numbers, in, sizeof numbers);
    qsort(numbers, 8, sizeof *numbers, ascending);
    memcpy(out, numbers, sizeof numbers);
}

struct large {
    unsigned char bytes[96];
};

NOINLINE static struct large turned(struct large given)
{
    forget(&given);
    return given;
}

NOINLINE static void passed(const unsigned char *in, unsigned char *out)
{
    struct large value;
    memcpy(&value, in, sizeof value);
    value = turned(value);
    memcpy(out, &value, sizeof value);
    /* Spilled over a call. */
    double a = *(const double *)(in + 128), b = *(const double *)(in + 136);
    forget(out);
    sched_yield();
    *(double *)(out + 96) = a;
    *(double *)(out + 104) = b;
}

NOINLINE static void flags(const unsigned char *in, unsigned char *out)
{
    uint64_t value = load64(in), chosen = 1, two = 2;
    unsigned char below;
    __asm__ volatile("cmp $1000, %2; setb %0; cmovae %3, %1"
                     : "=&r"(below), "+&r"(chosen)
                     : "r"(value), "r"(two)
                     : "cc");
    out[0] = below;
    store64(out + 8, chosen);
    uint64_t low = 0, high = 0;
    __asm__ volatile("add %2, %0; adc $0, %1" : "+&r"(low), "+&r"(high) : "r"(value) : "cc");
    store64(out + 16, high);
    /* A branch does not spread it. */
    uint64_t branched = 3;
    __asm__ volatile("test $1, %b1; jz 1f; mov $4, %0; 1:" : "+r"(branched) : "r"(value) : "cc");
    out[24] = (unsigned char)branched;
}

NOINLINE static void tables(const unsigned char *in, unsigned char *out)
{
    static uint32_t table[256];
    for (int i = 0; i < 256; i++)
        table[i] = i * 0x9E3779B9u;
    forget(table);
    uint32_t crc = 0;
    for (int i = 0; i < 8; i++)
        crc = crc >> 8 ^ table[(crc ^ in[i]) & 255];
    memcpy(out, &crc, sizeof crc);
    /* The place depends on it, what is there does not. */
    out[64 + (in[9] & 15)] = 1;
}

NOINLINE static void strings(const unsigned char *in, unsigned char *out)
{
    unsigned char heap[64];
    memset(heap, 0, sizeof heap);
    const void *from = in;
    void *to = heap;
    size_t count = 40;
    __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
    from = heap + 39;
    to = out + 39;
    count = 40;
    __asm__ volatile("std; rep movsb; cld" : "+S"(from), "+D"(to), "+c"(count) : : "memory", "cc");
    to = out + 64;
    count = 4;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(load64(in + 48)) : "memory");
    /* Overlapping: each byte is that before it. */
    heap[0] = in[60];
    from = heap;
    to = heap + 1;
    count = 15;
    __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
    memcpy(out + 128, heap, 16);
    /* It ends at the third byte. */
    unsigned char other[16];
    memcpy(other, in, 16);
    forget(other);
    other[2] ^= 1;
    from = in;
    to = other;
    count = 16;
    unsigned char same;
    __asm__ volatile("repe cmpsb; sete %0" : "=r"(same), "+S"(from), "+D"(to), "+c"(count) : : "memory", "cc");
    out[160] = same;
}

NOINLINE static void bits(const unsigned char *in, unsigned char *out)
{
    uint64_t words[4] = {0, 0, 0, 0}, index = 64 + (in[0] & 63);
    __asm__ volatile("bts %1, (%0)" : : "r"(words), "r"(index) : "memory", "cc");
    memcpy(out, words, sizeof words);
    long double number = *(const int32_t *)(in + 4);
    __asm__ volatile("" : "+t"(number));
    number = number * 3 + 1;
    *(int32_t *)(out + 64) = (int32_t)number;
    *(float *)(out + 72) = *(const float *)(in + 8) * 2;
}

/* The low halves of two registers change places many times: nobody is left out. */
NOINLINE static void mixed(const unsigned char *in, unsigned char *out)
{
    uint64_t a = load64(in), b = load64(in + 8);
    static uint8_t table[256];
    for (int i = 0; i < 256; i++)
        table[i] = (uint8_t)(i * 167 + 13);
    forget(table);
    store64(out, a * 0x9E3779B97F4A7C15 + b);
    store64(out + 8, (a >> 7) + (b << 9) - (a ^ b));
    store64(out + 16, (a | 1) / ((b & 0xFFFF) | 1));
    store64(out + 24, __builtin_popcountll(a) + __builtin_ctzll(b | 1ull << 40));
    store64(out + 32, (uint64_t)((double)(int64_t)a * 0.5) ^ (uint64_t)(int64_t)(float)(int32_t)b);
    for (int i = 0; i < 8; i++)
        out[40 + i] = table[in[i] ^ in[15 - i]];
    __m128i x = _mm_set_epi64x((long long)a, (long long)b);
    x = _mm_add_epi16(_mm_slli_epi32(x, 3), _mm_srli_epi64(x, 5));
    x = _mm_mullo_epi16(x, _mm_unpackhi_epi8(x, _mm_set1_epi8(3)));
    x = _mm_or_si128(x, _mm_cmpgt_epi8(x, _mm_setzero_si128()));
    _mm_storeu_si128((__m128i *)(out + 48), x);
    out[64] = (unsigned char)_mm_movemask_epi8(_mm_set_epi64x((long long)a, (long long)b));
    uint64_t low = a, high = b;
    __asm__ volatile("shld $13, %1, %0; sar $3, %1; rcl $2, %0; sbb %1, %0; not %1; ror $11, %1"
                     : "+r"(low), "+r"(high) : : "cc");
    store64(out + 72, low);
    store64(out + 80, high);
    unsigned char heap[64];
    memcpy(heap, in, 16);
    forget(heap);
    for (int i = 0; i < 16; i++)
        heap[16 + i] = (unsigned char)(heap[i] - heap[15 - i] * 3);
    forget(heap);
    memcpy(out + 96, heap + 16, 16);
}

NOINLINE static void leaving(const unsigned char *in, unsigned char *out)
{
    unsigned char buffer[32];
    memset(buffer, 1, sizeof buffer);
    memcpy(buffer + 5, in + 10, 10);
    forget(buffer);
    int sink = open("/dev/null", O_WRONLY), ends[2];
    if (write(sink, buffer, sizeof buffer) != sizeof buffer)
        exit(2);
    struct iovec parts[2] = {{buffer, 6}, {(void *)(in + 40), 2}};
    if (writev(sink, parts, 2) != 8)
        exit(2);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || send(ends[0], buffer + 14, 4, 0) != 4)
        exit(2);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1};
    if (sendmsg(ends[0], &message, 0) != 6)
        exit(2);
    /* None of it leaves. */
    if (write(-1, buffer, sizeof buffer) != -1)
        exit(2);
    /* What comes from the kernel is new. */
    if (read(ends[1], buffer, 4) != 4)
        exit(2);
    memcpy(out, buffer, 8);
}

/* Through a file that is tracked, by descriptors. */
static const char *pool_name;
NOINLINE static void filed(const unsigned char *in, unsigned char *out)
{
    (void)out;
    unsigned char buffer[16];
    memcpy(buffer, in, sizeof buffer);
    forget(buffer);
    int file = open(pool_name, O_RDWR);
    if (pwrite(file, buffer, 16, 4096) != 16 || pread(file, buffer, 8, 32) != 8)
        exit(2);
    forget(buffer);
    memcpy(out + 32, buffer, 16);
}

static volatile sig_atomic_t handled;
static void handler(int signal)
{
    (void)signal;
    unsigned char noise[256];
    for (unsigned i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)i;
    forget(noise);
    handled++;
}

NOINLINE static void interrupted(const unsigned char *in, unsigned char *out)
{
    signal(SIGUSR1, handler);
    signal(SIGILL, SIG_DFL);
    uint64_t value = load64(in), number = 234 /* tgkill */, result;
    long pid = getpid(), tid = gettid();
    __m128i wide = _mm_loadu_si128((const __m128i *)(in + 16));
    __asm__ volatile("" : "+x"(wide), "+r"(value));
    __asm__ volatile("syscall" : "=a"(result), "+x"(wide), "+r"(value)
                     : "a"(number), "D"(pid), "S"(tid), "d"((long)SIGUSR1) : "rcx", "r11", "memory");
    store64(out, value);
    _mm_storeu_si128((__m128i *)(out + 16), wide);
    out[32] = (unsigned char)handled;
}

struct work {
    const unsigned char *in;
    unsigned char bytes[16];
};

static void *worker(void *given)
{
    struct work *work = given;
    memcpy(work->bytes, work->in, 16);
    return 0;
}

NOINLINE static void threads(const unsigned char *in, unsigned char *out)
{
    pthread_t one, two;
    struct work first = {in, {0}}, second = {in + 32, {0}};
    pthread_create(&one, 0, worker, &first);
    pthread_create(&two, 0, worker, &second);
    pthread_join(one, 0);
    pthread_join(two, 0);
    memcpy(out, first.bytes, 16);
    memcpy(out + 16, second.bytes, 16);
}

NOINLINE static void forked(const unsigned char *in, unsigned char *out)
{
    unsigned char *heap = malloc(64);
    memset(heap, 0, 64);
    memcpy(heap, in, 16);
    forget(heap);
    pid_t child = fork();
    if (child == 0) {
        memcpy(out, heap, 16);
        memcpy(heap, in + 16, 16);
        forget(heap);
        _exit(0);
    }
    waitpid(child, 0, 0);
    /* The child's memory is its own, the pool is not. */
    memcpy(out + 16, heap, 16);
    memcpy(out + 32, out, 8);
}

static const struct {
    const char *name;
    void (*run)(const unsigned char *, unsigned char *);
} cases[] = {
    {"registers", registers}, {"overwritten", overwritten}, {"sse", sse},
    {"copies", copies},       {"grown", grown},             {"text", text},
    {"sorted", sorted},       {"passed", passed},           {"flags", flags},
    {"tables", tables},       {"strings", strings},         {"bits", bits},
    {"mixed", mixed},         {"leaving", leaving},         {"filed", filed},
    {"interrupted", interrupted}, {"threads", threads},     {"forked", forked},
    {"ends", ends},
};

int main(int count, char **args)
{
    if (count != 3)
        return 1;
    pool_name = args[1];
    int file = open(args[1], O_RDWR);
    unsigned char *pool = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (pool == MAP_FAILED)
        return 1;
    if (strcmp(args[2], "avx") == 0) {
        if (!__builtin_cpu_supports("avx2"))
            return 77;
        avx(pool, pool + 4096);
        return 0;
    }
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, args[2]) == 0) {
            cases[i].run(pool, pool + 4096);
            return 0;
        }
    return 1;
}

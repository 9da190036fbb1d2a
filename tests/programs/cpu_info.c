// Unprivileged instructions that ask the machine: cpuid, rdtsc(p), xgetbv, rdrand, rdpid, and the
// vDSO clocks.
// build: dynamic static
#include "harness.h"
#include <cpuid.h>
#include <sched.h>
#include <sys/time.h>
#include <x86intrin.h>

int main(void)
{
    unsigned a, b, c, d;
    char vendor[13] = {0};
    __cpuid(0, a, b, c, d);
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    printf("vendor %s\n", vendor);
    // cpuid clears the upper halves of its four registers.
    uint64_t ra = ~0UL & ~0xffffffffUL, rb = ~0UL, rc = 0, rd = ~0UL;
    __asm__ volatile("cpuid" : "+a"(ra), "+b"(rb), "+c"(rc), "+d"(rd));
    CHECK(ra >> 32 == 0 && rb >> 32 == 0 && rc >> 32 == 0 && rd >> 32 == 0);
    __cpuid(1, a, b, c, d);
    CHECK(d >> 25 & 1); // SSE
    uint64_t before = __rdtsc();
    for (int i = 0; i < 100000; i++) {
        unsigned aux;
        uint64_t now = i & 1 ? __rdtsc() : __rdtscp(&aux);
        CHECK(now >= before);
        before = now;
    }
    if (c >> 27 & 1) {
        unsigned lo, hi;
        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
        CHECK((lo & 3) == 3);
    }
    if (c >> 30 & 1) {
        uint64_t r;
        unsigned char ok = 0;
        for (int i = 0; i < 100 && !ok; i++)
            __asm__ volatile("rdrand %0\n setc %1" : "=r"(r), "=q"(ok)::"cc");
        CHECK(ok);
    }
    unsigned cpu, node;
    CHECK(getcpu(&cpu, &node) == 0);
    CHECK(cpu < 4096);
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (int i = 0; i < 20000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &t1);
        CHECK(t1.tv_sec > t0.tv_sec || (t1.tv_sec == t0.tv_sec && t1.tv_nsec >= t0.tv_nsec));
        t0 = t1;
    }
    struct timeval tv;
    CHECK(gettimeofday(&tv, NULL) == 0);
    time_t now = time(NULL);
    CHECK(now - tv.tv_sec <= 1);
    struct timespec rt;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &rt);
    CHECK(rt.tv_sec - tv.tv_sec <= 1);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &rt);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &rt);
    printf("machine ok\n");
    return 0;
}

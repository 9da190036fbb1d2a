// The FS base belongs to the program: read and switched where the kernel allows it.
// build: dynamic static
#include "harness.h"
#include <asm/prctl.h>
#include <pthread.h>
#include <sys/auxv.h>

static void *in_thread(void *arg)
{
    uint64_t fs = 0;
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs) == 0);
    CHECK_EQ(fs, *(uint64_t *)fs); // the thread block points at itself
    CHECK(fs != *(uint64_t *)arg); // each thread has its own
    return NULL;
}

int main(void)
{
    uint64_t fs = 0, gs = 1;
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs) == 0);
    CHECK_EQ(fs, *(uint64_t *)fs);
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs) == 0);
    CHECK_EQ(gs, 0); // unused by the program, whatever a tool keeps there
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, in_thread, &fs) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    uint64_t *block = calloc(64, 8), got = 0, v;
    block[3] = 33;
    // Away from libc's thread block and back, with nothing of libc in between.
    for (int i = 0; i < 1000; i++) {
        __asm__ volatile("mov %[num],%%eax\n mov %[set],%%edi\n mov %[block],%%rsi\n syscall\n"
                         "mov %%fs:24,%[got]\n"
                         "mov %[num],%%eax\n mov %[set],%%edi\n mov %[fs],%%rsi\n syscall\n"
                         : [got] "=&r"(got)
                         : [num] "i"(SYS_arch_prctl), [set] "i"(ARCH_SET_FS), [block] "r"(block), [fs] "r"(fs)
                         : "rax", "rcx", "rdi", "rsi", "r11", "memory");
        CHECK_EQ(got, 33);
    }
    if (getauxval(AT_HWCAP2) & 2) { // rdfsbase and wrfsbase usable from user mode
        for (int i = 0; i < 1000; i++) {
            __asm__ volatile("rdfsbase %0" : "=r"(v));
            CHECK_EQ(v, fs);
            __asm__ volatile("wrfsbase %1\n mov %%fs:24,%0\n wrfsbase %2" : "=&r"(got) : "r"(block), "r"(fs));
            CHECK_EQ(got, 33);
        }
    }
    printf("fs ok\n");
    return 0;
}

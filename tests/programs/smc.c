// Self-modifying code in every style: RWX pages, W^X by mprotect, two mappings of one memory,
// code replaced by munmap+mmap, code that patches itself just ahead, patched by another thread.
// build: dynamic static nopie
#include "harness.h"
#include <pthread.h>
#include <sys/mman.h>

typedef int (*fn)(int);

// lea imm32(%rdi),%eax ; ret
static int emit_add(unsigned char *p, int imm)
{
    p[0] = 0x8d;
    p[1] = 0x87;
    memcpy(p + 2, &imm, 4);
    p[6] = 0xc3;
    return 7;
}

static volatile int thread_go, thread_done;
static unsigned char *shared_code;
static void *patcher(void *arg)
{
    (void)arg;
    for (int i = 1; i <= 2000; i++) {
        while (thread_go != i)
            ;
        emit_add(shared_code, i * 7);
        __sync_synchronize();
        thread_done = i;
    }
    return NULL;
}

int main(void)
{
    unsigned char *rwx = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(rwx != MAP_FAILED);
    long sum = 0;
    // 1. Rewritten and called again.
    for (int i = 0; i < 20000; i++) {
        emit_add(rwx, i);
        CHECK_EQ(((fn)rwx)(5), 5 + i);
        sum += i;
    }
    // 2. Only the immediate is patched, by stores of each width, and across the page boundary.
    for (int i = 0; i < 3000; i++) {
        unsigned char *at = rwx + 4096 - 1 - i % 7;
        emit_add(at, 0);
        CHECK_EQ(((fn)at)(1), 1);
        at[2] = (unsigned char)(i & 0x7f);
        CHECK_EQ(((fn)at)(1), 1 + (i & 0x7f));
        uint16_t half = (uint16_t)(i & 0x7fff);
        memcpy(at + 2, &half, 2);
        CHECK_EQ(((fn)at)(1), 1 + half);
    }
    // 3. Data beside code on the same page, written all the time.
    volatile int *data = (volatile int *)(rwx + 2048);
    emit_add(rwx, 1);
    *data = 0;
    for (int i = 0; i < 20000; i++)
        *data = ((fn)rwx)(*data);
    CHECK_EQ(*data, 20000);
    // 4. Code that overwrites an instruction a few bytes ahead of itself, in the same block:
    //    movb %dil,1(next) ; next: mov $imm8.. ; ret
    //    40 88 3d 01 00 00 00   mov %dil,1(%rip)
    //    b8 00 00 00 00         mov $0,%eax
    //    c3
    static const unsigned char ahead[] = {0x40, 0x88, 0x3d, 1, 0, 0, 0, 0xb8, 0, 0, 0, 0, 0xc3};
    memcpy(rwx + 512, ahead, sizeof ahead);
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(((fn)(rwx + 512))(i & 0x7f), i & 0x7f);
    // 5. W^X.
    unsigned char *wx = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2000; i++) {
        CHECK(mprotect(wx, 4096, PROT_READ | PROT_WRITE) == 0);
        emit_add(wx, -i);
        CHECK(mprotect(wx, 4096, PROT_READ | PROT_EXEC) == 0);
        CHECK_EQ(((fn)wx)(3), 3 - i);
    }
    // 6. One memory, two mappings.
    int fd = memfd_create("smc", 0);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    unsigned char *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *x = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    CHECK(w != MAP_FAILED && x != MAP_FAILED);
    for (int i = 0; i < 2000; i++) {
        emit_add(w, i * 3);
        CHECK_EQ(((fn)x)(4), 4 + i * 3);
    }
    // The same through the descriptor.
    for (int i = 0; i < 500; i++) {
        unsigned char code[7];
        emit_add(code, i * 5);
        CHECK(pwrite(fd, code, 7, 0) == 7);
        CHECK_EQ(((fn)x)(4), 4 + i * 5);
    }
    // 7. Unmapped and mapped again at the same address; replaced by MAP_FIXED; by mremap.
    for (int i = 0; i < 300; i++) {
        CHECK(munmap(wx, 4096) == 0);
        CHECK(mmap(wx, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == wx);
        emit_add(wx, i);
        CHECK_EQ(((fn)wx)(0), i);
        CHECK(mmap(wx, 4096, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, fd, 0) == wx);
        CHECK_EQ(((fn)wx)(0), 499 * 5);
        unsigned char *moved = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        emit_add(moved, i + 100000);
        CHECK_EQ(((fn)moved)(0), i + 100000);
        CHECK(mremap(moved, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, wx) == wx);
        CHECK_EQ(((fn)wx)(0), i + 100000);
    }
    // 8. read(2) into executable memory.
    int p[2];
    CHECK(pipe(p) == 0);
    for (int i = 0; i < 500; i++) {
        unsigned char code[7];
        emit_add(code, i * 11);
        CHECK(write(p[1], code, 7) == 7);
        CHECK(read(p[0], rwx, 7) == 7);
        CHECK_EQ(((fn)rwx)(2), 2 + i * 11);
    }
    // 9. Patched by another thread, with proper hand-over.
    shared_code = rwx + 1024;
    pthread_t t;
    CHECK(pthread_create(&t, NULL, patcher, NULL) == 0);
    for (int i = 1; i <= 2000; i++) {
        thread_go = i;
        while (thread_done != i)
            ;
        unsigned a = 0, b, c, d;
        __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "=c"(c), "=d"(d)::"memory"); // serialise
        CHECK_EQ(((fn)shared_code)(1), 1 + i * 7);
    }
    pthread_join(t, NULL);
    // 10. rep movs of code over code that just ran.
    for (int i = 0; i < 500; i++) {
        unsigned char code[7];
        emit_add(code, i * 13);
        void *to = rwx, *from = code;
        size_t n = 7;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
        CHECK_EQ(((fn)rwx)(2), 2 + i * 13);
    }
    printf("self-modifying code ok %ld\n", sum);
    return 0;
}

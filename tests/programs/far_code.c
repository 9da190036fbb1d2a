// Code scattered over the address space: calls between places more than 2 GiB apart, RIP-relative
// data beside each piece, thousands of pieces.
// build: dynamic static nopie
#include "harness.h"
#include <sys/mman.h>

typedef uint64_t (*fn)(uint64_t);

int main(void)
{
    static const uintptr_t places[] = {0x10000000,      0x7ff00000,      0xfff00000,      0x100000000,
                                       0x3000000000,    0x100000000000,  0x200000000000,  0x3ffff0000000,
                                       0x600000000000,  0x6ffffff00000};
    enum { PLACES = sizeof places / sizeof *places };
    fn chain = NULL;
    fn entries[PLACES];
    for (int i = 0; i < PLACES; i++) {
        unsigned char *p = mmap((void *)places[i], 65536, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == MAP_FAILED && errno == EEXIST)
            p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        // add $i,data(%rip) ; add data(%rip),%rdi ; then ret or jmp through a pointer beside the code
        unsigned char code[64];
        int n = 0;
        code[n++] = 0x48; code[n++] = 0x83; code[n++] = 0x05;
        int32_t d = 256 - (n + 5);
        memcpy(code + n, &d, 4); n += 4;
        code[n++] = (unsigned char)(i + 1);
        code[n++] = 0x48; code[n++] = 0x03; code[n++] = 0x3d;
        d = 256 - (n + 4);
        memcpy(code + n, &d, 4); n += 4;
        if (chain) {
            // call *ptr(%rip) ; add $1,%rax ; ret, keeping the stack aligned
            code[n++] = 0x50;
            code[n++] = 0xff; code[n++] = 0x15;
            d = 264 - (n + 4);
            memcpy(code + n, &d, 4); n += 4;
            code[n++] = 0x59;
            code[n++] = 0x48; code[n++] = 0x83; code[n++] = 0xc0; code[n++] = 1;
            code[n++] = 0xc3;
        } else {
            code[n++] = 0x48; code[n++] = 0x89; code[n++] = 0xf8; code[n++] = 0xc3;
        }
        memcpy(p, code, (size_t)n);
        memcpy(p + 264, &chain, 8);
        CHECK(mprotect(p, 65536, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
        chain = entries[i] = (fn)p;
    }
    uint64_t total = 0;
    for (int round = 0; round < 2000; round++)
        for (int i = 0; i < PLACES; i++)
            total = total * 3 + entries[i]((uint64_t)round);
    // A thousand pieces on their own pages, far from each other.
    enum { PIECES = 1000 };
    static fn pieces[PIECES];
    for (int i = 0; i < PIECES; i++) {
        void *hint = (void *)(0x400000000000UL + (uintptr_t)i * 0x40000000UL);
        unsigned char *p = mmap(hint, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        int32_t imm = i * 3;
        static const unsigned char lea_ret[] = {0x48, 0x8d, 0x87};
        memcpy(p, lea_ret, 3);
        memcpy(p + 3, &imm, 4);
        p[7] = 0xc3;
        pieces[i] = (fn)p;
    }
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < PIECES; i++)
            CHECK_EQ(pieces[i](7), 7 + i * 3);
    printf("far code %lx\n", total);
    return 0;
}

// A tiny JIT: random expressions compiled to machine code, checked against an interpreter.
// build: dynamic nopie
//
// Functions call earlier functions directly (rel32), so invalidation must follow links; the buffer
// is recycled many times.
#include "harness.h"
#include <sys/mman.h>

enum { BUF = 1 << 16, FUNCS = 200, OPS = 24 };
struct op { int kind; int32_t imm; int callee; };
static struct op program[FUNCS][OPS];
static unsigned char *entry[FUNCS];

static uint32_t interpret(int f, uint32_t x)
{
    for (int i = 0; i < OPS; i++) {
        struct op *o = &program[f][i];
        switch (o->kind) {
        case 0: x += (uint32_t)o->imm; break;
        case 1: x ^= (uint32_t)o->imm; break;
        case 2: x *= (uint32_t)o->imm; break;
        case 3: x = x << (o->imm & 31) | x >> (-o->imm & 31); break;
        case 4: if ((int32_t)x < o->imm) x = ~x; break;
        case 5: x = interpret(o->callee, x); break;
        case 6: for (int k = 0; k < 10; k++) x += x >> 3; break;
        }
    }
    return x;
}

static unsigned char *compile(int f, unsigned char *p)
{
    // The value lives in edi and is returned in eax.
    entry[f] = p;
    for (int i = 0; i < OPS; i++) {
        struct op *o = &program[f][i];
        switch (o->kind) {
        case 0: *p++ = 0x81; *p++ = 0xc7; memcpy(p, &o->imm, 4); p += 4; break;
        case 1: *p++ = 0x81; *p++ = 0xf7; memcpy(p, &o->imm, 4); p += 4; break;
        case 2: *p++ = 0x69; *p++ = 0xff; memcpy(p, &o->imm, 4); p += 4; break;
        case 3: *p++ = 0xc1; *p++ = 0xc7; *p++ = o->imm & 31; break;
        case 4: // cmp $imm,%edi ; jge +2 ; not %edi
            *p++ = 0x81; *p++ = 0xff; memcpy(p, &o->imm, 4); p += 4;
            *p++ = 0x7d; *p++ = 2; *p++ = 0xf7; *p++ = 0xd7; break;
        case 5: { // call rel32 ; mov %eax,%edi
            int32_t rel = (int32_t)(entry[o->callee] - (p + 5));
            *p++ = 0xe8; memcpy(p, &rel, 4); p += 4; *p++ = 0x89; *p++ = 0xc7; break;
        }
        case 6: // mov $10,%ecx ; 1: mov %edi,%edx ; shr $3,%edx ; add %edx,%edi ; dec %ecx ; jnz 1b
            *p++ = 0xb9; *p++ = 10; *p++ = 0; *p++ = 0; *p++ = 0;
            *p++ = 0x89; *p++ = 0xfa; *p++ = 0xc1; *p++ = 0xea; *p++ = 3;
            *p++ = 0x01; *p++ = 0xd7; *p++ = 0xff; *p++ = 0xc9; *p++ = 0x75; *p++ = 0xf5; break;
        }
    }
    *p++ = 0x89; *p++ = 0xf8; *p++ = 0xc3;
    return p;
}

int main(void)
{
    unsigned char *rwx = mmap(NULL, BUF, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = memfd_create("jit", 0);
    CHECK(rwx != MAP_FAILED && ftruncate(fd, BUF) == 0);
    unsigned char *wx = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t s = 99;
    uint32_t total = 0;
    for (int generation = 0; generation < 40; generation++) {
        unsigned char *base = generation % 2 ? wx : rwx, *p = base;
        if (base == wx)
            CHECK(mprotect(wx, BUF, PROT_READ | PROT_WRITE) == 0);
        for (int f = 0; f < FUNCS; f++) {
            int calls = 0;
            for (int i = 0; i < OPS; i++) {
                struct op *o = &program[f][i];
                o->kind = (int)(next_random(&s) % 7);
                // Few and near callees keep the call tree small.
                if (o->kind == 5 && (f < 4 || calls++))
                    o->kind = 0;
                o->imm = (int32_t)next_random(&s);
                o->callee = f < 4 ? 0 : f - 4 + (int)(next_random(&s) % 4);
            }
            p = compile(f, p);
            CHECK(p < base + BUF - 512);
        }
        if (base == wx)
            CHECK(mprotect(wx, BUF, PROT_READ | PROT_EXEC) == 0);
        for (int f = 0; f < FUNCS; f++)
            for (uint32_t x = 0; x < 5; x++) {
                uint32_t got = ((uint32_t(*)(uint32_t))entry[f])(x * 77777), want = interpret(f, x * 77777);
                if (got != want)
                    FAIL("generation %d function %d: %#x instead of %#x", generation, f, got, want);
                total = total * 31 + got;
            }
    }
    printf("jit %08x\n", total);
    return 0;
}

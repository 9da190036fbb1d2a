// Code that changes without a store of the program's: by a write to /proc/self/mem, by a write to the file of a private mapping whose page has
// not been copied, by advice that throws a changed page away.
// build: dynamic static
#include "harness.h"
#include <fcntl.h>
#include <signal.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/uio.h>

typedef int (*function)(void);

// mov eax, value; ret
static void put(unsigned char *at, unsigned char value)
{
    memcpy(at, (unsigned char[]){0xb8, value, 0, 0, 0, 0xc3}, 6);
}

static int call(unsigned char *at)
{
    return ((function)at)();
}

static void by_memory_file(void)
{
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    put(code, 1);
    CHECK(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0);
    CHECK_EQ(call(code), 1);
    char own[64];
    snprintf(own, sizeof own, "/proc/%d/mem", getpid());
    int folder = open("/proc/self", O_PATH | O_DIRECTORY);
    int files[] = {open("/proc/self/mem", O_RDWR), open(own, O_WRONLY | O_CLOEXEC), openat(folder, "mem", O_RDWR)};
    for (int i = 0; i < 3; i++) {
        CHECK(files[i] >= 0);
        for (int round = 0; round < 3; round++) {
            unsigned char value = (unsigned char)(10 * i + round + 2);
            off_t at = (off_t)(uintptr_t)(code + 1);
            struct iovec parts = {&value, 1};
            if (round == 0)
                CHECK(pwrite(files[i], &value, 1, at) == 1);
            else if (round == 1)
                CHECK(lseek(files[i], at, SEEK_SET) == at && write(files[i], &value, 1) == 1);
            else
                CHECK(pwritev(files[i], &parts, 1, at) == 1);
            CHECK_EQ(call(code), value);
        }
    }
    // A page that is writable as well, and was translated.
    CHECK(mprotect(code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    for (unsigned char value = 40; value < 60; value++) {
        CHECK(pwrite(files[0], &value, 1, (off_t)(uintptr_t)(code + 1)) == 1);
        CHECK_EQ(call(code), value);
        put(code, value + 100);
        CHECK_EQ(call(code), value + 100);
    }
    puts("by /proc/self/mem ok");
}

static void by_file(const char *path)
{
    unsigned char page[4096] = {0};
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    put(page, 1);
    CHECK(file >= 0 && write(file, page, sizeof page) == sizeof page);
    // By the descriptor that it was mapped from.
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    CHECK(code != MAP_FAILED);
    for (unsigned char value = 1; value < 20; value++) {
        put(page, value);
        CHECK(pwrite(file, page, sizeof page, 0) == sizeof page);
        CHECK_EQ(call(code), value);
    }
    CHECK(munmap(code, 4096) == 0 && close(file) == 0);
    // By one that is opened later.
    file = open(path, O_RDONLY);
    code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    CHECK(code != MAP_FAILED && close(file) == 0);
    CHECK_EQ(call(code), 19);
    file = open(path, O_WRONLY);
    CHECK(file >= 0);
    for (unsigned char value = 21; value < 40; value++) {
        put(page, value);
        CHECK(pwrite(file, page, 6, 0) == 6);
        CHECK_EQ(call(code), value);
    }
    // By a shared mapping.
    unsigned char *shared;
    int both = open(path, O_RDWR);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, both, 0);
    CHECK(shared != MAP_FAILED);
    put(shared, 50);
    CHECK_EQ(call(code), 50);
    puts("by the file ok");

    // Changed privately, and back to what the file has.
    for (int writable = 0; writable < 2; writable++) {
        int prot = PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0);
        int again = open(path, O_RDONLY);
        unsigned char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, again, 0);
        CHECK(own != MAP_FAILED && close(again) == 0);
        put(own, 60);
        CHECK(mprotect(own, 4096, prot) == 0);
        CHECK_EQ(call(own), 60);
        CHECK(madvise(own, 4096, MADV_DONTNEED) == 0);
        CHECK_EQ(call(own), 50);
        CHECK(munmap(own, 4096) == 0);
    }
    puts("by advice ok");
}

static sigjmp_buf illegal;

static void on_illegal(int signal)
{
    (void)signal;
    siglongjmp(illegal, 1);
}

// What is no instruction becomes one when its second byte changes, and the other way round; on pages that are seldom and often written to,
// and on one that others could write to.
static void invalid_and_valid(int flags)
{
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    // mov eax, 41; ff ff (invalid) or ff c0 (inc eax); ret
    memcpy(code, (unsigned char[]){0xb8, 41, 0, 0, 0, 0xff, 0xff, 0xc3}, 8);
    for (int round = 0; round < 200; round++) {
        int is_valid = round % 2;
        ((volatile unsigned char *)code)[6] = is_valid ? 0xc0 : 0xff;
        if (sigsetjmp(illegal, 1) == 0) {
            CHECK_EQ(call(code), 42);
            CHECK(is_valid);
        } else {
            CHECK(!is_valid);
        }
    }
    munmap(code, 4096);
    puts("invalid and valid ok");
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_illegal};
    sigaction(SIGILL, &action, NULL);
    invalid_and_valid(MAP_PRIVATE);
    invalid_and_valid(MAP_SHARED);
    by_memory_file();
    by_file("code");
    return 0;
}

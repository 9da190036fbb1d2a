// What is right and what is wrong with persistent memory, one mode each, for the suite of `brownout check`.
// build: dynamic
// args: POOL keep
//
// Everything that matters is a function of its own, so that reports name it. clflush is durable by itself, so nothing
// here needs a fence. -DFIXED mends `forget`.
#include "../../include/brownout.h"
#include "pm_pool.h"
#include <signal.h>
#include <sys/wait.h>

#define OWN_FUNCTION __attribute__((noinline)) static

enum { LINE = 64, POOL_SIZE = 4096 };

OWN_FUNCTION void keep(unsigned char *line)
{
    PM_STORE64(line, 1);
    PM_CLFLUSH(line);
}

// A correctness finding.
OWN_FUNCTION void forget(unsigned char *line)
{
    PM_STORE64(line, 2);
#ifdef FIXED
    PM_CLFLUSH(line);
#endif
}

// Another one, of its own cause.
OWN_FUNCTION void forget_too(unsigned char *line)
{
    PM_STORE64(line, 3);
}

OWN_FUNCTION void forget_in_child(unsigned char *line)
{
    PM_STORE64(line, 4);
}

// A performance finding.
OWN_FUNCTION void flush_clean(unsigned char *line)
{
    PM_CLFLUSH(line);
}

// A correctness finding that does not wait for the program's end.
OWN_FUNCTION void assert_too_early(unsigned char *line)
{
    PM_STORE64(line, 5);
    brownout_is_persisted(line, 8);
}

static int asks(const char *mode, const char *word)
{
    return strstr(mode, word) != NULL;
}

// A mode is any of these words, joined as one likes.
int main(int argc, char **argv)
{
    if (argc != 3)
        FAIL("usage: %s POOL MODE", argv[0]);
    const char *mode = argv[2];
    struct pool p = pool_create(argc, argv, POOL_SIZE);

    if (!asks(mode, "all"))
        keep(p.base);
    if (asks(mode, "forget"))
        forget(p.base + LINE);
    if (asks(mode, "too"))
        forget_too(p.base + 2 * LINE);
    if (asks(mode, "clean"))
        flush_clean(p.base);
    if (asks(mode, "early"))
        assert_too_early(p.base + 3 * LINE);
    if (asks(mode, "fork")) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            forget_in_child(p.base + 4 * LINE);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    if (asks(mode, "segv"))
        raise(SIGSEGV);
    if (asks(mode, "deaf"))
        CHECK(signal(SIGTERM, SIG_IGN) != SIG_ERR);
    if (asks(mode, "wait")) {
        CHECK(write(1, "ready\n", 6) == 6);
        for (;;)
            pause();
    }
    CHECK(write(1, "done\n", 5) == 5);
    return asks(mode, "seven") ? 7 : 0;
}

// C++ exceptions: nested, rethrown, across a dlopen'ed library, in threads, and out of a signal
// handler of a synchronous fault.
// build: dynamic nopie
// flags: -fnon-call-exceptions -rdynamic
// libs: -ldl
// needs: cxx_plugin
#include "harness.h"
#include <csignal>
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int live;
struct Guard {
    Guard() { __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST); }
    ~Guard() { __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST); }
};

[[gnu::noinline]] static long recurse(int depth, int throw_at)
{
    Guard g;
    if (depth == throw_at)
        throw depth;
    if (depth % 10 == 9) {
        try {
            return recurse(depth + 1, throw_at) + 1;
        } catch (int &v) {
            v += 1000;
            throw; // rethrow, changed
        }
    }
    return recurse(depth + 1, throw_at) + 1;
}

struct Base {
    virtual ~Base() = default;
    virtual int id() const { return 1; }
};
struct Derived : Base {
    int id() const override { return 2; }
};

static int callback(int v)
{
    Guard g;
    if (v > 2)
        throw std::string("callback");
    return v * 2;
}

static void on_segv(int)
{
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGSEGV);
    sigprocmask(SIG_UNBLOCK, &s, nullptr);
    throw std::runtime_error("segv");
}

[[gnu::noinline]] static int load(volatile int *p)
{
    Guard g;
    return *p;
}

int main(int, char **argv)
{
    long total = 0;
    for (int i = 0; i < 300; i++) {
        try {
            recurse(0, i % 55);
        } catch (int v) {
            total += v;
        }
    }
    CHECK_EQ(live, 0);
    printf("rethrown %ld\n", total);

    for (int i = 0; i < 200; i++) {
        try {
            if (i % 2)
                throw Derived();
            throw Base();
        } catch (const Base &b) {
            CHECK_EQ(b.id(), i % 2 ? 2 : 1);
        }
    }

    std::string path(argv[0]);
    path = path.substr(0, path.rfind('/') + 1) + "cxx_plugin.so";
    int counter = 0;
    for (int i = 0; i < 50; i++) {
        void *lib = dlopen(path.c_str(), RTLD_NOW);
        if (!lib)
            FAIL("dlopen: %s", dlerror());
        auto plugin_throw = (void (*)(int, int *))dlsym(lib, "plugin_throw");
        auto plugin_call = (int (*)(int (*)(int), int, int *))dlsym(lib, "plugin_call");
        try {
            plugin_throw(i % 7, &counter);
            CHECK(!"no exception");
        } catch (const std::out_of_range &e) {
            CHECK(std::string(e.what()) == "from the plugin");
        }
        CHECK_EQ(plugin_call(callback, 2, &counter), 4);
        try {
            plugin_call(callback, 3, &counter);
            CHECK(!"no exception");
        } catch (const std::runtime_error &e) {
            CHECK(std::string(e.what()) == "wrapped callback");
        }
        CHECK_EQ(counter, 0);
        CHECK(dlclose(lib) == 0);
    }

    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> caught(16);
    for (int t = 0; t < 16; t++)
        threads.emplace_back([t, &caught] {
            for (int i = 0; i < 100; i++) {
                try {
                    recurse(0, 20 + t);
                } catch (int) {
                    caught[t] = std::current_exception();
                }
            }
        });
    for (auto &t : threads)
        t.join();
    total = 0;
    for (auto &e : caught) {
        try {
            std::rethrow_exception(e);
        } catch (int v) {
            total += v;
        }
    }
    printf("threads %ld\n", total);

    struct sigaction sa = {};
    sa.sa_handler = on_segv;
    CHECK(sigaction(SIGSEGV, &sa, nullptr) == 0);
    int caught_faults = 0;
    for (int i = 0; i < 200; i++) {
        try {
            load((volatile int *)16);
        } catch (const std::runtime_error &) {
            caught_faults++;
        }
    }
    CHECK_EQ(caught_faults, 200);
    CHECK_EQ(live, 0);

    // Uncaught: terminate handler runs, then abort.
    std::set_terminate([] {
        printf("terminate\n");
        fflush(stdout);
        _exit(0);
    });
    throw std::logic_error("uncaught");
}

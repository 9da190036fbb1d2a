// Two libraries loaded in turn at (usually) the same address: stale translations would show.
// build: dynamic
// libs: -ldl
// needs: dl_even dl_odd
#include "harness.h"
#include <dlfcn.h>
#include <pthread.h>

static char folder[4096];

static void *loop(void *arg)
{
    int rounds = *(int *)arg;
    for (int i = 0; i < rounds; i++) {
        char path[5000];
        snprintf(path, sizeof path, "%s/%s.so", folder, i % 2 ? "dl_odd" : "dl_even");
        void *lib = dlopen(path, i % 3 ? RTLD_NOW : RTLD_LAZY);
        if (!lib)
            FAIL("dlopen: %s", dlerror());
        int (*value)(int) = (int (*)(int))dlsym(lib, "value");
        int (*(*chooser)(void))(int) = (int (*(*)(void))(int))dlsym(lib, "chooser");
        CHECK(value && chooser);
        for (int x = 0; x < 20; x++) {
            int want = i % 2 ? 2000 + x * 3 + 1 + 6 : 1000 + x * 2 + 1 + 5;
            CHECK_EQ(value(x), want);
            CHECK_EQ(chooser()(x), want);
        }
        CHECK(dlclose(lib) == 0);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    snprintf(folder, sizeof folder, "%s", argv[0]);
    char *slash = strrchr(folder, '/');
    CHECK(slash);
    *slash = 0;
    int many = 1000, few = 200;
    loop(&many);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, loop, &few) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    CHECK(dlopen("/nonexistent/library.so", RTLD_NOW) == NULL);
    printf("%s\n", dlerror());
    return 0;
}

// Loaded by dlopen_loop: same size as dl_odd, so that both land on the same address in turn.
// build: shared
#include <stdlib.h>
static int base = 1000;
static __thread int tls = 5;
static int *heap;
__attribute__((constructor)) static void start(void) { heap = malloc(64); *heap = 1; }
__attribute__((destructor)) static void stop(void) { free(heap); }
int value(int x) { return base + x * 2 + *heap + tls; }
int (*chooser(void))(int) { return value; }

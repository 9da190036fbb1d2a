/* Every function of brownout.h, natively: it answers its default and changes nothing. C89 and C++98. */
#include "brownout.h"
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                          \
    do {                                                          \
        if (!(condition)) {                                       \
            printf("line %d: %s is false\n", __LINE__, #condition); \
            return 1;                                             \
        }                                                         \
    } while (0)

int main(void)
{
    char memory[64];
    char before[64];
    const char constant = 1;
    volatile int device = 2;
    char *guard = memory;
    void *addr = memory;
    brownout_size len = 77;

    memset(memory, 0x5a, sizeof memory);
    memcpy(before, memory, sizeof memory);

    CHECK(brownout_running() == 0);
    brownout_start();
    brownout_stop();
    brownout_exclude(memory, sizeof memory);
    brownout_include(memory, sizeof memory);
    brownout_is_persisted(&constant, sizeof constant);
    brownout_is_persisted(&device, sizeof device);
    brownout_is_ordered_before(memory, 8, memory + 8, 8);
    brownout_section_begin();
    brownout_section_end();
    CHECK(brownout_checkpoint() == 0);
    brownout_tx_begin();
    brownout_tx_add(memory, 8);
    brownout_tx_alloc(memory, 8);
    brownout_tx_only(memory, 8);
    brownout_tx_end();
    brownout_store(memory, 8);
    brownout_flush(memory, 8);
    brownout_fence();
    brownout_ofence();
    brownout_dfence();
    brownout_set_clean(memory, 8);
    brownout_sync_var(memory, 8, 0);
    brownout_register_variable("memory", memory, sizeof memory);
    CHECK(brownout_find_variable("memory", &addr, &len) == 0);
    CHECK(addr == guard && len == 77);
    brownout_unregister_variable("memory");
    brownout_marker("a marker");

    CHECK(memcmp(memory, before, sizeof memory) == 0);
    printf("enabled %d\n", BROWNOUT_ENABLED);
    return 0;
}

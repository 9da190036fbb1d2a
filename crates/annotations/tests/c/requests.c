/* Every request once, with arguments that differ: see the test of the same name. Nothing reads through these pointers. */
#include "brownout.h"

static const volatile void *const FIRST = (const volatile void *)0x1000;
static const volatile void *const SECOND = (const volatile void *)0x2000;

int main(void)
{
    void *addr = 0;
    brownout_size len = 0;

    if (brownout_running() != BROWNOUT_INTERFACE)
        return 1;
    brownout_start();
    brownout_stop();
    brownout_exclude(FIRST, 0x11);
    brownout_include(FIRST, 0x12);
    brownout_is_persisted(FIRST, 0x13);
    brownout_is_ordered_before(FIRST, 0x14, SECOND, 0x15);
    brownout_tx_begin();
    brownout_tx_add(FIRST, 0x16);
    brownout_tx_alloc(FIRST, 0x17);
    brownout_tx_only(FIRST, 0x18);
    brownout_tx_end();
    brownout_section_begin();
    brownout_section_end();
    if (brownout_checkpoint() != 5)
        return 2;
    brownout_ofence();
    brownout_dfence();
    brownout_store(FIRST, 0x19);
    brownout_flush(FIRST, 0x1a);
    brownout_fence();
    brownout_set_clean(FIRST, 0x1b);
    brownout_sync_var(FIRST, 8, 0xfffffffffffffffe);
    brownout_register_variable("a name", FIRST, 0x1c);
    if (!brownout_find_variable("a name", &addr, &len) || addr != (void *)0x7000 || len != 0x70)
        return 3;
    brownout_unregister_variable("a name");
    brownout_marker("a marker");
    /* Any number but 0 is true. */
    brownout_must_hold("a condition", 7);
    brownout_must_hold("another", 0);
    return 0;
}

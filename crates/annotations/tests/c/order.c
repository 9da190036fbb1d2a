/* Stores must stand where they are written, before, between and after requests: see the test of the same name. */
#include "brownout.h"

void stores_between_requests(long *slot);

void stores_between_requests(long *slot)
{
    *slot = 0x1111;
    brownout_section_begin();
    *slot = 0x2222;
    brownout_section_end();
    *slot = 0x3333;
}

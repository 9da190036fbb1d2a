/* The headers in a translation unit that has no library and no other header. */
#define PMTEST_KERNEL_CODE
#include "pmtest.h"

unsigned long annotated(long *counter);

unsigned long annotated(long *counter)
{
    TX_CHECKER_START;
    ++*counter;
    brownout_is_persisted(counter, sizeof *counter);
    TX_CHECKER_END;
    return brownout_checkpoint();
}

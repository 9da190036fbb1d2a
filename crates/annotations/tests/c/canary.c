/* Must not compile with the tests' warnings. */
#include "brownout.h"

int narrowed(brownout_size len);

int narrowed(brownout_size len)
{
    int result = len;
    brownout_fence();
    return result;
}

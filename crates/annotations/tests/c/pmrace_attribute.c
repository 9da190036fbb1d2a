/* PMRace's annotation on declarations, as its programs have it, and as the calls that say it to Brownout. C99 and C++11. */
#include "pmrace.h"

struct bucket {
    int lock pm_sync_var_hint(sizeof(int), 0);
    pm_sync_var_hint(sizeof(long), 2) long version;
    long count;
};

static int resizing pm_sync_var_hint(4, 0);

int main(void)
{
    struct bucket bucket = {0, 2, 0};
    pm_sync_var_hint((const volatile void *)0x1000, sizeof bucket.lock, 0);
    pm_sync_var_hint((const volatile void *)0x2000, sizeof bucket.version, 2);
    return resizing + bucket.lock + (bucket.version != 2);
}

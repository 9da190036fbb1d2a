/* PMRace's annotation as a call. C89 and C++98. Nothing reads through these pointers. */
#include "pmrace.h"

int main(int argc, char **argv)
{
    (void)argv;
    pm_sync_var_hint((const volatile void *)0x1000, 4, 0);
    if (argc > 0)
        pm_sync_var_hint((const volatile void *)0x2000, 8, 2);
    else
        pm_sync_var_hint((const volatile void *)0x3000, 1, 1);
    return 0;
}

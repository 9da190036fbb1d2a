/* PMTest's annotations as the paper writes them, without arguments where it shows none. C89 and C++98. */
#include "pmtest.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    static char node[128];
    brownout_size size = 9;
    void *addr;

    PMTest_INIT;
    PMTest_THREAD_INIT;
    PMTest_START;
    if (argc > 0)
        TX_CHECKER_START;
    else
        TX_CHECKER_END;
    node[0] = 1;
    PMTest_EXCLUDE(node + 64, 64);
    PMTest_INCLUDE(node + 64, 64);
    isPersist(node, 8);
    isOrderedBefore(node, 8, node + 8, 8);
    if (argc > 0)
        TX_CHECKER_END;
    PMTest_REG_VAR("node", node, sizeof node);
    addr = PMTest_GET_VAR("node", &size);
    PMTest_UNREG_VAR("node");
    PMTest_SEND_TRACE;
    PMTest_GET_RESULT;
    PMTest_END;
    PMTest_EXIT;
    if (addr || size != 0) {
        printf("%s: a name is known natively\n", argv[0]);
        return 1;
    }
    return 0;
}

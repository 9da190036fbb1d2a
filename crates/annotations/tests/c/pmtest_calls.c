/* PMTest's annotations with argument lists of any length. C99 and C++11. */
#include "pmtest.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    static char node[128];
    brownout_size size = 9;
    void *addr = node;

    PMTest_INIT(4);
    PMTest_INIT();
    PMTest_THREAD_INIT(argc, argv);
    PMTest_START();
    if (argc > 0)
        TX_CHECKER_START();
    else
        TX_CHECKER_END();
    node[0] = 1;
    if (argc > 0)
        TX_CHECKER_END();
    PMTest_CHECKER_START();
    PMTest_CHECKER_END();
    C_registerVariable("node", node, sizeof node);
    if (PMTest_GET_VAR("node", &addr, &size) != 0 || addr != node || size != 9) {
        printf("%s: a name is known natively\n", argv[0]);
        return 1;
    }
    PMTest_SEND_TRACE(addr);
    PMTest_GET_RESULT(addr, 1, 2);
    PMTest_END();
    PMTest_EXIT(addr);
    return 0;
}

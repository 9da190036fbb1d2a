/* PMTest's annotations as its released headers spell them, and as its examples use them. C89 and C++98. */
#include "pmtest.hh"
#include "pmtest.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    static struct {
        int a;
        int b;
    } fields;
    void *instance;
    void *other;
    brownout_size size = 9;

    PMTest_init(instance, 2);
    if (!instance) {
        printf("%s: no instance\n", argv[0]);
        return 1;
    }
    PMTest_START;
    if (argc > 0)
        PMTest_CHECKER_START;
    PMTest_transactionAdd(&fields.a, sizeof fields.a);
    fields.a = 1;
    PMTest_assign((void *)(&fields.a), sizeof fields.a);
    PMTest_flush((void *)(&fields.a), sizeof fields.a);
    PMTest_commit();
    PMTest_barrier();
    PMTest_fence();
    if (argc > 0)
        PMTest_CHECKER_END;
    PMTest_exclude(&fields, sizeof fields);
    PMTest_include(&fields, sizeof fields);
    PMTest_isPersistent(&fields.a, sizeof fields.a);
    PMTest_isPersistedBefore(&fields.a, sizeof fields.a, &fields.b, sizeof fields.b);
    PMTest_sendTrace(instance);
    PMTest_END;
    PMTest_getResult(instance);
    PMTest_exit(instance);

    other = C_createVeriInstance();
    C_initThread();
    metadataPtr = C_createMetadataVector();
    C_execVeri(other, metadataPtr);
    C_getNewMetadataPtr();
    C_getVeri(other, (void *)(0));
    C_registerVariable("fields", &fields, sizeof fields);
    if (C_getVariable("fields", &size) || size != 0) {
        printf("a name is known natively\n");
        return 1;
    }
    C_unregisterVariable("fields");
    C_deleteMetadataVector(metadataPtr);
    C_deleteVeriInstance(other);
    return PMTest_initDevice() + PMTest_exitDevice();
}

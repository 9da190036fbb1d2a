/*
 * PMTest's annotations for Brownout: a source that was annotated for PMTest compiles unchanged, and needs no library.
 *
 * Both spellings are here, that of the paper (Liu et al., ASPLOS 2019, table 2: PMTest_EXCLUDE, isPersist) and that of
 * the released headers (PMTest_exclude, PMTest_isPersistent, C_registerVariable). Everything maps to brownout.h, which
 * says what each request asserts, and does nothing natively.
 *
 * What differs from PMTest:
 *
 * 1. Brownout sees stores, write-backs and fences itself. PMTest_assign, _flush, _commit, _barrier and _fence report
 *    further ones, for what it cannot see. Where they stand beside the real instruction, as PMTest wants them, compile
 *    with -DPMTEST_OPERATIONS_ARE_REAL: they are then empty, and nothing counts twice.
 * 2. What a thread does before its first PMTest_START is judged, too. PMTest_END stops that until PMTest_START.
 * 3. Traces need not be cut. PMTest_SEND_TRACE does nothing, and what is pending across it stays pending.
 * 4. The checker pair asserts that all stores between its ends are persistent at its end. Undo logs are checked in
 *    transactions: those of libpmemobj, and those between brownout_tx_begin() and brownout_tx_end().
 * 5. Natively no name is registered: PMTest_GET_VAR answers a null pointer and the size 0.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef BROWNOUT_PMTEST_H
#define BROWNOUT_PMTEST_H

#include "brownout.h"

#if (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L) || (defined(__cplusplus) && __cplusplus >= 201103L)
#define PMTEST_VARIADIC 1
#else
#define PMTEST_VARIADIC 0
#endif

/*
 * Names that are used with and without parentheses, as in `PMTest_START;`, `PMTest_INIT();` and `PMTest_INIT(4);`. They
 * end in the member `pmtest_done`, which is a macro, too, when an argument list follows, and swallows that list. The
 * arguments are not evaluated. Before C99 and C++11 the list must be empty.
 */
struct pmtest_unit {
    int pmtest_done;
};
BROWNOUT_FUNCTION struct pmtest_unit pmtest_after(int request)
{
    struct pmtest_unit unit;
    unit.pmtest_done = request;
    return unit;
}
#if PMTEST_VARIADIC
#define pmtest_done(...) pmtest_done
#else
#define pmtest_done() pmtest_done
#endif
#define PMTEST_DO(request) (void)pmtest_after(((request), 0)).pmtest_done

/* ---------------------------------------------------------------- set-up, and what is judged */

#define PMTest_INIT PMTEST_DO((void)0)
#define PMTest_EXIT PMTEST_DO((void)0)
#define PMTest_THREAD_INIT PMTEST_DO((void)0)
#define PMTest_START PMTEST_DO(brownout_start())
#define PMTest_END PMTEST_DO(brownout_stop())

#define PMTest_EXCLUDE(addr, size) brownout_exclude((addr), (size))
#define PMTest_INCLUDE(addr, size) brownout_include((addr), (size))
#define PMTest_exclude(addr, size) brownout_exclude((addr), (size))
#define PMTest_include(addr, size) brownout_include((addr), (size))

/* ---------------------------------------------------------------- checkers */

#define isPersist(addr, size) brownout_is_persisted((addr), (size))
#define isOrderedBefore(addrA, sizeA, addrB, sizeB) brownout_is_ordered_before((addrA), (sizeA), (addrB), (sizeB))
#define PMTest_isPersistent(addr, size) brownout_is_persisted((addr), (size))
#define PMTest_isPersistedBefore(addrA, sizeA, addrB, sizeB) \
    brownout_is_ordered_before((addrA), (sizeA), (addrB), (sizeB))

#define TX_CHECKER_START PMTEST_DO(brownout_section_begin())
#define TX_CHECKER_END PMTEST_DO(brownout_section_end())
#define PMTest_CHECKER_START PMTEST_DO(brownout_section_begin())
#define PMTest_CHECKER_END PMTEST_DO(brownout_section_end())
#define PMTest_transactionAdd(addr, size) brownout_tx_add((addr), (size))

/* ---------------------------------------------------------------- traces and results */

#define PMTest_SEND_TRACE PMTEST_DO((void)0)
#define PMTest_GET_RESULT PMTEST_DO(brownout_checkpoint())

/* ---------------------------------------------------------------- operations by hand */

#ifdef PMTEST_OPERATIONS_ARE_REAL
#define PMTest_assign(addr, size) ((void)(addr), (void)(size))
#define PMTest_flush(addr, size) ((void)(addr), (void)(size))
#define PMTest_commit() ((void)0)
#define PMTest_barrier() ((void)0)
#define PMTest_fence() ((void)0)
#else
#define PMTest_assign(addr, size) brownout_store((addr), (size))
#define PMTest_flush(addr, size) brownout_flush((addr), (size))
#define PMTest_commit() brownout_fence()
#define PMTest_barrier() brownout_fence()
#define PMTest_fence() brownout_fence()
#endif

/* ---------------------------------------------------------------- functions of the release */

/* An instance and a trace are handles that nothing is behind; only their being non-null means something. */
BROWNOUT_FUNCTION void *pmtest_handle(void)
{
    static char handle;
    return &handle;
}

/* The current trace. */
#ifdef PMTEST_KERNEL_CODE
static void *metadataPtr __attribute__((__unused__));
#else
__extension__ static __thread void *metadataPtr __attribute__((__unused__));
#endif

BROWNOUT_FUNCTION void *C_createVeriInstance(void)
{
    return pmtest_handle();
}

BROWNOUT_FUNCTION void C_deleteVeriInstance(void *instance)
{
    (void)instance;
}

BROWNOUT_FUNCTION void *C_createMetadataVector(void)
{
    return pmtest_handle();
}

BROWNOUT_FUNCTION void C_deleteMetadataVector(void *trace)
{
    (void)trace;
}

BROWNOUT_FUNCTION void C_initThread(void)
{
    metadataPtr = pmtest_handle();
}

BROWNOUT_FUNCTION void C_getNewMetadataPtr(void)
{
    metadataPtr = pmtest_handle();
}

BROWNOUT_FUNCTION void C_initVeri(void **instance, int traces)
{
    *instance = pmtest_handle();
    metadataPtr = pmtest_handle();
    (void)traces;
}

BROWNOUT_FUNCTION void C_exitVeri(void *instance)
{
    (void)instance;
}

BROWNOUT_FUNCTION void C_execVeri(void *instance, void *trace)
{
    (void)instance;
    (void)trace;
}

BROWNOUT_FUNCTION void C_sendTrace(void *instance)
{
    (void)instance;
}

BROWNOUT_FUNCTION void C_getVeri(void *instance, void *results)
{
    (void)instance;
    (void)results;
    brownout_checkpoint();
}

BROWNOUT_FUNCTION void C_getVeriDefault(void *instance)
{
    (void)instance;
    brownout_checkpoint();
}

BROWNOUT_FUNCTION void C_registerVariable(const char *name, const volatile void *addr, brownout_size size)
{
    brownout_register_variable(name, addr, size);
}

BROWNOUT_FUNCTION void C_unregisterVariable(const char *name)
{
    brownout_unregister_variable(name);
}

/* The address of the name, or null; its size, or 0. */
BROWNOUT_FUNCTION void *C_getVariable(const char *name, brownout_size *size)
{
    void *addr = 0;
    *size = 0;
    brownout_find_variable(name, &addr, size);
    return addr;
}

#define PMTest_init(instance, traces) C_initVeri(&(instance), (traces))
#define PMTest_exit(instance) C_exitVeri((instance))
#define PMTest_sendTrace(instance) C_sendTrace((instance))
#define PMTest_getResult(instance) C_getVeriDefault((instance))

/* The kernel's side: its trace goes nowhere else. */
#define PMTest_initDevice() (0)
#define PMTest_exitDevice() (0)
#define PMTest_transactionDelim() ((void)0)
#define PMTest_ending() ((void)0)

/* ---------------------------------------------------------------- variables, as the paper spells them */

#define PMTest_REG_VAR(name, addr, size) brownout_register_variable((name), (addr), (size))
#define PMTest_UNREG_VAR(name) brownout_unregister_variable((name))
/* PMTest_GET_VAR(name, &size) answers the address; PMTest_GET_VAR(name, &addr, &size) answers 1, or 0 if unknown. */
#if PMTEST_VARIADIC
#define PMTEST_FOURTH(first, second, third, fourth, ...) fourth
#define PMTest_GET_VAR(...) PMTEST_FOURTH(__VA_ARGS__, brownout_find_variable, C_getVariable, , )(__VA_ARGS__)
#else
#define PMTest_GET_VAR(name, size) C_getVariable((name), (size))
#endif

#endif /* BROWNOUT_PMTEST_H */

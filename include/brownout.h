/*
 * Annotations: what a program can tell Brownout, and what it can ask it to check.
 *
 * Header only, for C89 to C23 and C++, hosted or freestanding: it includes nothing and needs no library. A request is
 * five instructions that do nothing when the program runs by itself, so annotations may stay in production code. With
 * -DBROWNOUT_DISABLE, and where there is no x86-64 or no GNU inline assembly, every function here is empty.
 *
 * Natively every request answers its default: 0. An assertion never stops the program; a failed one is a finding in
 * Brownout's report, with the place of the call. Compilers do not move accesses to memory over a request.
 *
 * Ranges are an address and a length in bytes. An empty range asserts nothing.
 *
 * The mechanism is Valgrind's client request: the address of six words (code, five arguments) in rax, the default
 * answer in rdx. Under Valgrind itself these codes are unknown and answer their default, too.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef BROWNOUT_H
#define BROWNOUT_H

#if defined(__GNUC__)
__extension__ typedef __UINT64_TYPE__ brownout_word;
typedef __SIZE_TYPE__ brownout_size;
typedef __UINTPTR_TYPE__ brownout_address;
/* Inlined even without optimisation, so that the program counter of a request lies in the caller. */
#define BROWNOUT_FUNCTION static __inline__ __attribute__((__always_inline__, __unused__))
#else
#include <stddef.h>
typedef unsigned long long brownout_word;
typedef size_t brownout_size;
typedef size_t brownout_address;
#define BROWNOUT_FUNCTION static inline
#endif

/* Requests compile to something. (Not in the x32 ABI: a 64-bit tool does not run it.) */
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__ILP32__) && !defined(BROWNOUT_DISABLE)
#define BROWNOUT_ENABLED 1
#else
#define BROWNOUT_ENABLED 0
#endif

/* Numbers of the requests, relative to BROWNOUT_BASE. They never change. From 0x8000 on the first argument is a
   string. Use the functions below; these are for bindings to other languages. */
enum brownout_code {
    BROWNOUT_BASE = 0x424f0000,
    BROWNOUT_RUNNING = 0x00,
    BROWNOUT_START = 0x01,
    BROWNOUT_STOP = 0x02,
    BROWNOUT_EXCLUDE = 0x03,
    BROWNOUT_INCLUDE = 0x04,
    BROWNOUT_IS_PERSISTED = 0x05,
    BROWNOUT_IS_ORDERED_BEFORE = 0x06,
    BROWNOUT_TX_BEGIN = 0x07,
    BROWNOUT_TX_END = 0x08,
    BROWNOUT_TX_ADD = 0x09,
    BROWNOUT_TX_ONLY = 0x0a,
    BROWNOUT_SECTION_BEGIN = 0x0b,
    BROWNOUT_SECTION_END = 0x0c,
    BROWNOUT_CHECKPOINT = 0x0d,
    BROWNOUT_OFENCE = 0x0e,
    BROWNOUT_DFENCE = 0x0f,
    BROWNOUT_STORE = 0x10,
    BROWNOUT_FLUSH = 0x11,
    BROWNOUT_FENCE = 0x12,
    BROWNOUT_TX_ALLOC = 0x13,
    BROWNOUT_SET_CLEAN = 0x14,
    BROWNOUT_SYNC_VAR = 0x15,
    BROWNOUT_REGISTER_VARIABLE = 0x8000,
    BROWNOUT_UNREGISTER_VARIABLE = 0x8001,
    BROWNOUT_FIND_VARIABLE = 0x8002,
    BROWNOUT_MARKER = 0x8003,
    BROWNOUT_MUST_HOLD = 0x8004
};

/* What brownout_running() answers under a tool that knows all of the above. */
enum brownout_interface { BROWNOUT_INTERFACE = 1 };

/* Casts that C++ programs may compile with -Wold-style-cast. */
#ifdef __cplusplus
#define BROWNOUT_CAST(type, value) static_cast<type>(value)
#define BROWNOUT_POINTER_CAST(type, value) reinterpret_cast<type>(value)
#else
#define BROWNOUT_CAST(type, value) ((type)(value))
#define BROWNOUT_POINTER_CAST(type, value) ((type)(value))
#endif

BROWNOUT_FUNCTION brownout_word brownout_word_of(const volatile void *pointer)
{
    return BROWNOUT_POINTER_CAST(brownout_address, pointer);
}

/* One request with up to four arguments (the fifth is not in use yet). Answers 0 natively. */
BROWNOUT_FUNCTION brownout_word brownout_request(enum brownout_code code, brownout_word a, brownout_word b,
                                                 brownout_word c, brownout_word d)
{
#if BROWNOUT_ENABLED
    brownout_word block[6];
    brownout_word answer = 0;
    block[0] = BROWNOUT_CAST(brownout_word, BROWNOUT_BASE) + BROWNOUT_CAST(brownout_word, code);
    block[1] = a;
    block[2] = b;
    block[3] = c;
    block[4] = d;
    block[5] = 0;
    /* The rotations make 128 bits, so rdi is what it was. Written for AT&T and for Intel syntax (-masm=intel). */
    __asm__ __volatile__("{rolq $3, %%rdi|rol rdi, 3}\n\t"
                         "{rolq $13, %%rdi|rol rdi, 13}\n\t"
                         "{rolq $61, %%rdi|rol rdi, 61}\n\t"
                         "{rolq $51, %%rdi|rol rdi, 51}\n\t"
                         "{xchgq %%rbx, %%rbx|xchg rbx, rbx}"
                         : "+d"(answer)
                         : "a"(&block[0])
                         : "cc", "memory");
    return answer;
#else
    (void)code;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return 0;
#endif
}

/* -------------------------------------------------------------------------------- who watches, and what */

/* 0 natively; else the version of this interface that the tool speaks (BROWNOUT_INTERFACE or later). */
BROWNOUT_FUNCTION unsigned brownout_running(void)
{
    return BROWNOUT_CAST(unsigned, brownout_request(BROWNOUT_RUNNING, 0, 0, 0, 0));
}

/* From here on the calling thread's accesses are judged: so it is at the beginning, and again after brownout_stop(). */
BROWNOUT_FUNCTION void brownout_start(void)
{
    brownout_request(BROWNOUT_START, 0, 0, 0, 0);
}

/* From here on the calling thread's accesses are followed, but not judged, until brownout_start(). */
BROWNOUT_FUNCTION void brownout_stop(void)
{
    brownout_request(BROWNOUT_STOP, 0, 0, 0, 0);
}

/* Stores to the range are not judged, whoever makes them: it need not survive a crash, or is protected otherwise. */
BROWNOUT_FUNCTION void brownout_exclude(const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_EXCLUDE, brownout_word_of(addr), len, 0, 0);
}

/* Takes brownout_exclude() back, for all of the range or for a part of it. */
BROWNOUT_FUNCTION void brownout_include(const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_INCLUDE, brownout_word_of(addr), len, 0, 0);
}

/* -------------------------------------------------------------------------------- assertions */

/* Asserts that everything stored to the range so far is persistent now: written back, and fenced since. */
BROWNOUT_FUNCTION void brownout_is_persisted(const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_IS_PERSISTED, brownout_word_of(addr), len, 0, 0);
}

/* Asserts that `a` is persistent before `b` can be: no crash shows what was last stored to `b` without what was last
   stored to `a`. */
BROWNOUT_FUNCTION void brownout_is_ordered_before(const volatile void *a, brownout_size a_len, const volatile void *b,
                                                  brownout_size b_len)
{
    brownout_request(BROWNOUT_IS_ORDERED_BEFORE, brownout_word_of(a), a_len, brownout_word_of(b), b_len);
}

/* A section of the calling thread begins. */
BROWNOUT_FUNCTION void brownout_section_begin(void)
{
    brownout_request(BROWNOUT_SECTION_BEGIN, 0, 0, 0, 0);
}

/* It ends. Asserts that everything that the thread stored since its beginning is persistent. */
BROWNOUT_FUNCTION void brownout_section_end(void)
{
    brownout_request(BROWNOUT_SECTION_END, 0, 0, 0, 0);
}

/* Waits until everything up to here is checked. Answers the number of failed checks (correctness findings) so far,
   natively 0: a test can end with `return brownout_checkpoint() != 0;`. */
BROWNOUT_FUNCTION unsigned long brownout_checkpoint(void)
{
    return BROWNOUT_CAST(unsigned long, brownout_request(BROWNOUT_CHECKPOINT, 0, 0, 0, 0));
}

/* -------------------------------------------------------------------------------- transactions */
/* For undo-logging libraries of your own. libpmemobj's transactions are known without annotations. */

/* A transaction of the calling thread begins. They nest; the outermost one counts. Asserts, until it ends, that the
   thread stores only to ranges that it has added or allocated. */
BROWNOUT_FUNCTION void brownout_tx_begin(void)
{
    brownout_request(BROWNOUT_TX_BEGIN, 0, 0, 0, 0);
}

/* It ends. Asserts, at the outermost level, that everything written in it is persistent. */
BROWNOUT_FUNCTION void brownout_tx_end(void)
{
    brownout_request(BROWNOUT_TX_END, 0, 0, 0, 0);
}

/* The range is in the log of the calling thread's transaction, which may store to it from here on. */
BROWNOUT_FUNCTION void brownout_tx_add(const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_TX_ADD, brownout_word_of(addr), len, 0, 0);
}

/* The range was allocated in the calling thread's transaction, which may store to it and need not log it. */
BROWNOUT_FUNCTION void brownout_tx_alloc(const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_TX_ALLOC, brownout_word_of(addr), len, 0, 0);
}

/* Asserts of all threads that from here on they store to the range in transactions only. */
BROWNOUT_FUNCTION void brownout_tx_only(const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_TX_ONLY, brownout_word_of(addr), len, 0, 0);
}

/* -------------------------------------------------------------------------------- events by hand */
/* Brownout sees the program's own stores, write-backs and fences. Report only what it cannot see, such as the work of a
   device, or what other hardware would do. */

/* Someone else has stored to the range. */
BROWNOUT_FUNCTION void brownout_store(const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_STORE, brownout_word_of(addr), len, 0, 0);
}

/* The range was written back, to be complete at the thread's next fence. */
BROWNOUT_FUNCTION void brownout_flush(const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_FLUSH, brownout_word_of(addr), len, 0, 0);
}

/* A fence of the calling thread: its write-backs are complete. */
BROWNOUT_FUNCTION void brownout_fence(void)
{
    brownout_request(BROWNOUT_FENCE, 0, 0, 0, 0);
}

/* HOPS' ordering fence: the calling thread's stores before it persist before those after it. It persists nothing. */
BROWNOUT_FUNCTION void brownout_ofence(void)
{
    brownout_request(BROWNOUT_OFENCE, 0, 0, 0, 0);
}

/* HOPS' draining fence: all stores of the calling thread are persistent. */
BROWNOUT_FUNCTION void brownout_dfence(void)
{
    brownout_request(BROWNOUT_DFENCE, 0, 0, 0, 0);
}

/* Forgets what is pending on the range: from here on it is as good as persistent. */
BROWNOUT_FUNCTION void brownout_set_clean(const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_SET_CLEAN, brownout_word_of(addr), len, 0, 0);
}

/* -------------------------------------------------------------------------------- synchronisation */

/* The range is a lock, a flag or a version by which threads wait for each other, and it lies in persistent memory. A crash
   may leave whatever it holds at that moment, so recovery must set it back: `initial` is what it then holds, as a number of
   `len` bytes (bytes after the eighth are 0). Say so whenever the program has opened its pool, before threads use it. */
BROWNOUT_FUNCTION void brownout_sync_var(const volatile void *addr, brownout_size len, brownout_word initial)
{
    brownout_request(BROWNOUT_SYNC_VAR, brownout_word_of(addr), len, initial, 0);
}

/* -------------------------------------------------------------------------------- names and markers */

/* Gives the range a name, for reports and for brownout_find_variable() in another function. */
BROWNOUT_FUNCTION void brownout_register_variable(const char *name, const volatile void *addr, brownout_size len)
{
    brownout_request(BROWNOUT_REGISTER_VARIABLE, brownout_word_of(name), brownout_word_of(addr), len, 0);
}

/* Forgets the name. */
BROWNOUT_FUNCTION void brownout_unregister_variable(const char *name)
{
    brownout_request(BROWNOUT_UNREGISTER_VARIABLE, brownout_word_of(name), 0, 0, 0);
}

/* Looks a name up. Answers 1 and fills `*addr` and `*len`, or answers 0 (always so natively) and leaves them alone. */
BROWNOUT_FUNCTION int brownout_find_variable(const char *name, void **addr, brownout_size *len)
{
    brownout_word found[2];
    found[0] = 0;
    found[1] = 0;
    if (brownout_request(BROWNOUT_FIND_VARIABLE, brownout_word_of(name), brownout_word_of(&found[0]), 0, 0) != 1)
        return 0;
    *addr = BROWNOUT_POINTER_CAST(void *, BROWNOUT_CAST(brownout_address, found[0]));
    *len = BROWNOUT_CAST(brownout_size, found[1]);
    return 1;
}

/* A marker in the trace: at most 1024 bytes of text. */
BROWNOUT_FUNCTION void brownout_marker(const char *text)
{
    brownout_request(BROWNOUT_MARKER, brownout_word_of(text), 0, 0, 0);
}

/* -------------------------------------------------------------------------------- after a crash */

/* Says that the condition (not 0) must hold after recovery, whatever the crash left. `text` names it in the report of
 * `brownout explore`. The program runs on either way. */
BROWNOUT_FUNCTION void brownout_must_hold(const char *text, int condition)
{
    brownout_request(BROWNOUT_MUST_HOLD, brownout_word_of(text), condition != 0, 0, 0);
}

#endif /* BROWNOUT_H */

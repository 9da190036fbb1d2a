/*
 * Custom rules in C: what crosses between `brownout check --rule LIBRARY.so` and a rule's library.
 *
 * A library exports one structure: `const struct brownout_rule_plugin brownout_rule_plugin = { BROWNOUT_RULE_MAGIC, … };`. For C99 and later, and
 * C++11 and later, on 64-bit machines; it needs no library. docs/custom-rules.md says what a rule may do; in Rust it is shorter, with the crate brownout-rule.
 *
 * Promises of both sides. Pointers that are passed to a function are valid until it returns, and no longer; the instance, what
 * `create` has put into `info`, and the static tables are the exceptions. `call` is valid for the call that it was passed to. One instance is called from one
 * thread at a time. Text is UTF-8 unless it comes from the checked program, and ends where its length says: there is no NUL behind it.
 *
 * How it grows. BROWNOUT_RULE_VERSION grows when something changes its meaning or goes, and then a library must be built anew. Else new fields go to the
 * end of structures that begin with `size`, and new kinds of events may appear: ignore those that you do not know. Before you read what was added to a
 * structure of the tool's, see in its `size` whether it is there.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef BROWNOUT_RULE_H
#define BROWNOUT_RULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "BROWNRUL", the first word of a table. */
#define BROWNOUT_RULE_MAGIC UINT64_C(0x4c55524e574f5242)
#define BROWNOUT_RULE_VERSION 1u

/* What entry points of a library return. Whoever returns anything but OK has called `fail` before. */
enum { BROWNOUT_RULE_OK = 0, BROWNOUT_RULE_FAILED = 1 };
/* `severity` of a rule. */
enum { BROWNOUT_RULE_CORRECTNESS = 0, BROWNOUT_RULE_PERFORMANCE = 1 };
/* `needs` of a rule: bytes of stores, and loads. Both cost time. */
enum { BROWNOUT_RULE_NEEDS_VALUES = 1, BROWNOUT_RULE_NEEDS_LOADS = 2 };

/* Kinds of events. */
enum brownout_rule_kind {
    BROWNOUT_RULE_KIND_OTHER = 0,
    BROWNOUT_RULE_KIND_STORE = 1,
    BROWNOUT_RULE_KIND_NT_STORE = 2,
    BROWNOUT_RULE_KIND_RMW = 3,
    BROWNOUT_RULE_KIND_KERNEL_STORE = 4,
    BROWNOUT_RULE_KIND_LOAD = 5,
    BROWNOUT_RULE_KIND_FLUSH = 6,
    BROWNOUT_RULE_KIND_FENCE = 7,
    BROWNOUT_RULE_KIND_FILE = 8,
    BROWNOUT_RULE_KIND_MAP = 9,
    BROWNOUT_RULE_KIND_UNMAP = 10,
    BROWNOUT_RULE_KIND_MSYNC = 11,
    BROWNOUT_RULE_KIND_FSYNC = 12,
    BROWNOUT_RULE_KIND_FILE_WRITE = 13,
    BROWNOUT_RULE_KIND_TRUNCATE = 14,
    BROWNOUT_RULE_KIND_TX_BEGIN = 15,
    BROWNOUT_RULE_KIND_TX_END = 16,
    BROWNOUT_RULE_KIND_TX_ADD = 17,
    BROWNOUT_RULE_KIND_TX_REMOVE = 18,
    BROWNOUT_RULE_KIND_TX_ALLOC = 19,
    BROWNOUT_RULE_KIND_TX_FREE = 20,
    BROWNOUT_RULE_KIND_LIBRARY_CALL = 21,
    BROWNOUT_RULE_KIND_PMEMCHECK = 22,
    BROWNOUT_RULE_KIND_ANNOTATION = 23,
    BROWNOUT_RULE_KIND_MARKER = 24,
    BROWNOUT_RULE_KIND_VARIABLE = 25,
    BROWNOUT_RULE_KIND_VARIABLE_GONE = 26,
    BROWNOUT_RULE_KIND_PROCESS_START = 27,
    BROWNOUT_RULE_KIND_PROCESS_EXIT = 28,
    BROWNOUT_RULE_KIND_THREAD_START = 29,
    BROWNOUT_RULE_KIND_THREAD_EXIT = 30,
    BROWNOUT_RULE_KIND_END = 31
};

/* State of bytes. */
enum brownout_rule_state {
    BROWNOUT_RULE_DIRTY = 1,    /* stored, not written back */
    BROWNOUT_RULE_FLUSHING = 2, /* written back, not fenced */
    BROWNOUT_RULE_DRAINING = 3, /* stored past the cache, not fenced */
    BROWNOUT_RULE_PERSISTED = 4
};

/* Bytes that somebody else owns. A null pointer goes with length 0 only. */
typedef struct brownout_rule_bytes {
    const char *data;
    size_t len;
} brownout_rule_bytes;

/* Bytes of persistent memory. With a file, the file and the offset count; without, the address does, in the process of the event. */
typedef struct brownout_rule_place {
    uint64_t address;
    uint64_t len;
    uint64_t offset; /* in the file: the same in every process and every run */
    uint32_t file;   /* 0: in none that is tracked */
    uint32_t reserved;
} brownout_rule_place;

/* Where and when something happened. Keep it to name an earlier event in a later finding. All 0: the end of the run. */
typedef struct brownout_rule_site {
    uint64_t index; /* in the total order of events */
    uint64_t pc;
    uint32_t context; /* the callers */
    uint32_t thread;
    uint32_t process;
    uint32_t kind; /* enum brownout_rule_kind */
    brownout_rule_place place;
} brownout_rule_site;

/* What a rule is. The tool sets `size`, and all bits of `kinds`, before the call; the library fills in the rest. */
typedef struct brownout_rule_info {
    uint32_t size;
    uint32_t severity;
    uint32_t needs; /* bits */
    uint32_t reserved;
    uint64_t kinds;            /* bit N: events of kind N are wanted; without it they may be left out */
    brownout_rule_bytes id;      /* lower-case words with hyphens, of no other rule */
    brownout_rule_bytes summary; /* what it looks for, one sentence without final stop */
} brownout_rule_info;

/*
 * An event. Fields that a kind does not use are 0 or empty.
 *
 *   kind                       code                                     flags   args       bytes    text
 *   stores, load, file write   system call number (kernel store)                           content
 *   flush                      0 clflush, 1 clflushopt, 2 clwb, 3 request
 *   fence                      0 sfence, 1 mfence, 2 locked, 3 request
 *   file, truncate                                                              size                path (file)
 *   map                        PROT_*                                   MAP_*
 *   msync                                                               MS_*
 *   transaction begin, end     depth                                            id
 *   library call                                                                arguments           function
 *   pmemcheck, annotation      request                                          arguments           its string
 *   marker, variable (gone)                                                                         text, or name
 *   process start              parent                                                               executable
 *
 * `place` is set wherever bytes are concerned; events about a file as a whole set its `file` only. `bytes` are empty unless the rule needs values.
 */
typedef struct brownout_rule_event {
    uint32_t size;
    uint32_t kind; /* enum brownout_rule_kind */
    uint64_t index;
    uint64_t pc;
    uint32_t context;
    uint32_t thread;
    uint32_t process;
    uint32_t code;
    uint32_t flags;
    uint32_t reserved;
    brownout_rule_place place;
    uint64_t args[6];
    brownout_rule_bytes bytes;
    brownout_rule_bytes text;
} brownout_rule_event;

/* A part of the bytes that were asked about. */
typedef struct brownout_rule_status {
    uint32_t size;
    uint32_t state; /* enum brownout_rule_state */
    brownout_rule_place place;
    brownout_rule_site store; /* the last store to them */
} brownout_rule_status;

/* An event of a finding; the text is one line without final stop. */
typedef struct brownout_rule_finding_event {
    brownout_rule_site site;
    brownout_rule_bytes text;
} brownout_rule_finding_event;

/* A finding; the tool copies it. Those with the same rule, message and code are one with a count, so keep numbers out of the message. */
typedef struct brownout_rule_finding {
    uint32_t size; /* sizeof (brownout_rule_finding) */
    uint32_t reserved;
    brownout_rule_bytes message; /* one sentence without final stop */
    const brownout_rule_finding_event *events;
    size_t event_count; /* at least one; the first is where to look first */
    const brownout_rule_bytes *help;
    size_t help_count;
    const brownout_rule_bytes *notes;
    size_t note_count;
} brownout_rule_finding;

/* What the tool offers. Answers are about the moment before the event takes effect; they are 0 or 1. */
typedef struct brownout_rule_host {
    uint32_t version;
    uint32_t size;
    uint32_t event_size;
    uint32_t status_size;
    /* Why the call fails: one sentence for the user. */
    void (*fail)(void *call, brownout_rule_bytes message);
    /* The last stores to all of it survive every crash from now on. */
    uint32_t (*is_persisted)(void *call, brownout_rule_place place);
    /* No crash leaves the last stores to `later` without those to `earlier`. */
    uint32_t (*is_ordered_before)(void *call, brownout_rule_place earlier, brownout_rule_place later);
    /* Calls `visit` for each part that was stored to. It may ask, too. */
    void (*status)(void *call, brownout_rule_place place, void (*visit)(void *data, const brownout_rule_status *status), void *data);
    /* The thread has an open transaction. */
    uint32_t (*in_transaction)(void *call, uint32_t thread);
    /* Its transaction has logged or allocated every byte of it. */
    uint32_t (*is_logged)(void *call, uint32_t thread, brownout_rule_place place);
    void (*report)(void *call, const brownout_rule_finding *finding);
} brownout_rule_host;

/* What a library exports, under this very name. */
struct brownout_rule_plugin {
    uint64_t magic;   /* BROWNOUT_RULE_MAGIC */
    uint32_t version; /* BROWNOUT_RULE_VERSION */
    uint32_t size;    /* sizeof (struct brownout_rule_plugin) */
    /* Makes an instance and describes it. Returns null after it has called `fail`; it may call nothing else of `host`, which it may keep. */
    void *(*create)(const brownout_rule_host *host, void *call, brownout_rule_bytes options, brownout_rule_info *info);
    uint32_t (*event)(void *instance, const brownout_rule_host *host, void *call, const brownout_rule_event *event);
    /* The run is over. */
    uint32_t (*end)(void *instance, const brownout_rule_host *host, void *call);
    /* Called once, last, also after a failure. */
    void (*destroy)(void *instance);
};

extern const struct brownout_rule_plugin brownout_rule_plugin;

#ifdef __cplusplus
}
#endif

#endif /* BROWNOUT_RULE_H */

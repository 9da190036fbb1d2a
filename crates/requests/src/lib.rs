//! The numbers of client requests: what programs and their libraries say about themselves.
//!
//! Two vocabularies share Valgrind's client-request preamble: [`annotation`]s of this project, and
//! the requests of [`pmemcheck`], which libpmem and libpmemobj make. The engine recognises them,
//! `trace` makes them part of the vocabulary of events, and the bindings for C and Rust spell the
//! same numbers.
//!
//! Guarantee: a number never changes its meaning, because programs are compiled with it and traces
//! hold it.
//!
//! ```
//! use brownout_requests::{ANNOTATION_BASE, annotation};
//! let request = ANNOTATION_BASE + u64::from(annotation::IS_PERSISTED);
//! assert_eq!(request, 0x424f_0005);
//! ```
#![no_std]

/// First word of the client-request preamble's code space for this project's annotations ('B','O').
pub const ANNOTATION_BASE: u64 = 0x424f_0000;
/// pmemcheck's code space ('P','C').
pub const PMEMCHECK_BASE: u64 = 0x5043_0000;

/// pmemcheck's requests that mean something here: offsets from [`PMEMCHECK_BASE`], arguments in
/// order. `_N` ones take the number of a transaction first, the others mean the calling thread's
/// own.
pub mod pmemcheck {
    /// addr, len: track this range.
    pub const REGISTER_PMEM_MAPPING: u32 = 0;
    /// descriptor, addr, len: track this range of a file.
    pub const REGISTER_PMEM_FILE: u32 = 1;
    /// addr, len: do not track it any more.
    pub const REMOVE_PMEM_MAPPING: u32 = 2;
    /// addr, len: is it tracked?
    pub const CHECK_IS_PMEM_MAPPING: u32 = 3;
    /// Prints the ranges that are tracked.
    pub const PRINT_PMEM_MAPPINGS: u32 = 4;
    /// addr, len: take it for written back.
    pub const DO_FLUSH: u32 = 5;
    /// Take this for a fence.
    pub const DO_FENCE: u32 = 6;
    /// Prints statistics.
    pub const WRITE_STATS: u32 = 8;
    /// addr, len: forget stores that are not persistent.
    pub const SET_CLEAN: u32 = 17;
    /// A transaction begins; they nest.
    pub const START_TX: u32 = 18;
    /// As `START_TX`.
    pub const START_TX_N: u32 = 19;
    /// It ends.
    pub const END_TX: u32 = 20;
    /// As `END_TX`.
    pub const END_TX_N: u32 = 21;
    /// addr, len: the transaction may change this range.
    pub const ADD_TO_TX: u32 = 22;
    /// As `ADD_TO_TX`.
    pub const ADD_TO_TX_N: u32 = 23;
    /// addr, len: it may not any more.
    pub const REMOVE_FROM_TX: u32 = 24;
    /// As `REMOVE_FROM_TX`.
    pub const REMOVE_FROM_TX_N: u32 = 25;
    /// The calling thread takes part in a transaction.
    pub const ADD_THREAD_TX_N: u32 = 26;
    /// It does not any more.
    pub const REMOVE_THREAD_FROM_TX_N: u32 = 27;
    /// addr, len: no transaction needs to know of changes to this range.
    pub const ADD_TO_GLOBAL_TX_IGNORE: u32 = 28;
    /// A string: a marker in the store log.
    pub const EMIT_LOG: u32 = 30;
}

/// This project's annotations: offsets from [`ANNOTATION_BASE`], arguments in order.
///
/// `include/brownout.h` and `crates/annotations` spell the same numbers; a test compares them.
/// Numbers never change.
pub mod annotation {
    /// Answers [`INTERFACE`]. Natively the answer is 0. Not an event.
    pub const RUNNING: u32 = 0x00;
    /// What [`RUNNING`] answers.
    pub const INTERFACE: u64 = 1;
    /// The calling thread's accesses are judged (again).
    pub const START: u32 = 0x01;
    /// The calling thread's accesses are not judged until `START`.
    pub const STOP: u32 = 0x02;
    /// addr, len: never judge stores to this range.
    pub const EXCLUDE: u32 = 0x03;
    /// addr, len: judge them again.
    pub const INCLUDE: u32 = 0x04;
    /// addr, len: all of it must be persistent now.
    pub const IS_PERSISTED: u32 = 0x05;
    /// a, a_len, b, b_len: `a` must be persistent before `b` can be.
    pub const IS_ORDERED_BEFORE: u32 = 0x06;
    /// A transaction of the calling thread begins; they nest.
    pub const TX_BEGIN: u32 = 0x07;
    /// It ends.
    pub const TX_END: u32 = 0x08;
    /// addr, len: logged in the transaction.
    pub const TX_ADD: u32 = 0x09;
    /// addr, len: may only be stored to in a transaction, from now on.
    pub const TX_ONLY: u32 = 0x0a;
    /// A section of the calling thread begins.
    pub const SECTION_BEGIN: u32 = 0x0b;
    /// It ends: what the thread stored since its beginning must be persistent.
    pub const SECTION_END: u32 = 0x0c;
    /// Waits until all is checked; answers the number of failed checks (correctness findings) so
    /// far.
    pub const CHECKPOINT: u32 = 0x0d;
    /// HOPS' ordering fence.
    pub const OFENCE: u32 = 0x0e;
    /// HOPS' draining fence.
    pub const DFENCE: u32 = 0x0f;
    /// addr, len: a store that the engine cannot see (done by a device, say).
    pub const STORE: u32 = 0x10;
    /// addr, len: a write-back of the range, likewise.
    pub const FLUSH: u32 = 0x11;
    /// A fence, likewise.
    pub const FENCE: u32 = 0x12;
    /// addr, len: allocated in the calling thread's transaction.
    pub const TX_ALLOC: u32 = 0x13;
    /// addr, len: forget what is pending on the range: it is as good as persistent.
    pub const SET_CLEAN: u32 = 0x14;
    /// addr, len, initial: a lock, flag or version; after recovery it must hold `initial`, as a
    /// little-endian number of `len` bytes.
    pub const SYNC_VAR: u32 = 0x15;
    /// name, addr, len: a name for a range. (First argument a string, as in all codes from 0x8000.)
    pub const REGISTER_VARIABLE: u32 = 0x8000;
    /// name: forget it.
    pub const UNREGISTER_VARIABLE: u32 = 0x8001;
    /// name, address of two 64-bit words that receive address and length; answers 1 if the name is
    /// known.
    pub const FIND_VARIABLE: u32 = 0x8002;
    /// text: a marker in the trace.
    pub const MARKER: u32 = 0x8003;
    /// text, condition: recovery is over, and the condition (not 0) must hold.
    pub const MUST_HOLD: u32 = 0x8004;
}

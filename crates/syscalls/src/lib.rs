//! What the engine must know about x86-64 Linux system calls.
//!
//! **Purpose.** In the target, tracked persistent memory (PM) is read-only or inaccessible at the
//! program's addresses; the same pages are writable at an *alias* address. So before a system call
//! every pointer into PM among its arguments, direct or nested, is rewritten to the alias
//! ([`prepare`]), and afterwards what the kernel wrote into PM is reported ([`finish`]).
//!
//! **Guarantee.** For every call of the table, with any arguments:
//!
//! - the program sees the result and the memory that it would see without PM tracking;
//! - every byte of PM that the kernel changed before the call returned lies in a reported range;
//! - a reported range was written by the kernel, with the exceptions listed below.
//!
//! What cannot be followed is said, never ignored: [`Unsupported`] for calls whose pointers are out
//! of reach, [`Prepared::retained`] for pointers that the kernel uses after the call,
//! [`Prepared::unknown`] for extents that only a comparison can tell (which `finish` makes).
//!
//! **Source.** The kernel's `syscall_64.tbl` and `uapi` headers up to Linux 6.18, and its code
//! where the manual pages are silent (what is written on `EINTR`, which fields of `siginfo_t`).
//!
//! **Deviations**, all towards reporting too much or by comparison:
//!
//! 1. After `EFAULT` the kernel may have written a part. Everything it could have written is
//!    reported.
//! 2. The fd sets of `select` are reported for `nfds` bits; the kernel stops at the size of the
//!    process's descriptor table. Padding between control messages is reported as written.
//!    `ioctl` is believed when its number tells direction and size.
//! 3. Where only the kernel knows how much it wrote ([`Wrote::Changed`]) the range is compared with
//!    its content before the call: a byte overwritten by the same value is not reported, and what
//!    another thread stored meanwhile is.
//! 4. A buffer that lies partly in PM (or in two PM mappings with different aliases) is split if it
//!    is one of a vector, else replaced by a copy for the time of the call, up to [`BOUNCE_MAX`]; a
//!    longer one is shortened to the part before the border if a short transfer is a legal outcome.
//!    Where the kernel writes to such a copy of a buffer that is partly not mapped at all, the
//!    program misses the `EFAULT`.
//! 5. Asynchronous I/O (`io_submit`) is reported when its event is collected, from the `iocb` that
//!    the event names, which must be unchanged since. Reads through `io_uring` cannot be followed.
//! 6. `recvmmsg` that faults in a message after the first returns the number of those before it;
//!    what it wrote of the faulting one is not reported, and lost where a copy stood in. (The
//!    kernel has lost the message, too.)
//!
//! **Use.** No PM: call nothing. Otherwise, around each call of the program:
//!
//! ```
//! use brownout_syscalls::{Memory, Prepared, Translate, finish, prepare};
//! # struct NoPm;
//! # impl Translate for NoPm { fn alias_of(&self, _: u64) -> Option<u64> { None } }
//! # impl Memory for NoPm {
//! #     fn read(&self, _: u64, _: &mut [u8]) -> bool { false }
//! #     fn write(&self, _: u64, _: &[u8]) -> bool { false }
//! # }
//! # fn syscall(_: u64, _: &[u64; 6]) -> i64 { 0 }
//! # let (engine, nr, mut args) = (NoPm, 39, [0; 6]);
//! let mut prepared = Prepared::new(); // one a thread, used again and again
//! match prepare(nr, &mut args, &engine, &engine, &mut prepared) {
//!     Ok(()) => {}
//!     Err(unsupported) => { /* answer `unsupported.answer()`, or warn and go on */ }
//! }
//! let result = syscall(nr, &args);
//! finish(&prepared, result, &engine, &engine, &mut |_addr, _len| { /* a store event */ });
//! ```
//!
//! Two things stand beside that: [`may_block`] says which calls a thread may come to wait in, and
//! [`pipeline`] is the shape in which the engine takes a call through everything that concerns it.

#![no_std]

extern crate alloc;

mod blocking;
mod cases;
mod effect;
mod finish;
mod kind;
mod layouts;
mod memory;
mod names;
pub mod paths;
pub mod pipeline;
mod prepare;
mod prepared;
mod scratch;
mod table;
mod unsupported;

pub use blocking::may_block;
pub use effect::{
    FileEffect, FileRead, FileTarget, FileWrite, Position, ReadAt, SyncScope, WrittenAt,
    asks_for_change, file_effect, file_read, is_file_write, is_sync, sync_scope,
};
pub use finish::finish;
pub use kind::{
    ArgKind, Bound, Dir, FieldLen, Layout, Nested, Out, Pointee, PointerField, Reason, When, Wrote,
};
pub use memory::{Memory, Run, Translate};
pub use names::{errno_name, signal_name};
pub use prepare::{BOUNCE_MAX, UNKNOWN_MAX, prepare};
pub use prepared::{Prepared, Range};
pub use table::{SyscallInfo, all, info, name};
pub use unsupported::Unsupported;

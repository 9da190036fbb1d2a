//! Follows labelled bytes through a whole run: which stores to persistent memory, and which bytes
//! that leave a process, depend on bytes that were loaded before.
//!
//! ```text
//!  live run with `follow` ─┬─ events ───────┐
//!                          └─ what was      ├─▶ Follower ─┬─ loads:  is this byte a source?   ─▶ Observer
//!                             executed ─────┘             ├─ stores: this depends on sources  ─▶
//!                                                         └─ leaves: so does this             ─▶
//! ```
//! A source is whatever the [`Observer`] says when tracked bytes are loaded. A [`Label`] stands for
//! a set of sources. Labels are kept for each byte of the registers of each thread, of the memory
//! of each process (pages on demand), and of tracked files, which all mappings and processes share;
//! instructions move them as `brownout-flow` says, byte by byte. All of it happens in the tool,
//! from a record of the instructions that were executed: the program itself is not changed, and
//! what is followed need not be known when it runs.
//!
//! # Guarantee
//!
//! Never too little, but for the deviations below: what an instruction computes from a labelled
//! byte has its label. A label that is not there, where [`Follower::given_up`] is 0, is not missing
//! for want of a rule.
//!
//! What `tzcnt` or `bsf` finds in a register depends on its bytes up to the first bit that is set,
//! and not on those behind: so the length of a string, which is found by comparing many bytes at
//! once, does not depend on what lies eight bytes or more behind its end.
//!
//! The observer hears of an access between the event that the access is and the next one, so that
//! whatever it keeps of the state of persistent memory is what it was then.
//!
//! # Pointers
//!
//! A value that is loaded by a labelled pointer, or with a labelled index, has the pointer's label,
//! too. Programs compute by tables: checksums, character classes, state machines; there content
//! becomes an address, and the result must not lose it. DataFlowSanitizer, on which PMRace is
//! built, does the same by default. What is *stored* by a labelled pointer has only its own label,
//! as there, but the observer is told the pointer's beside it: which place was written depends on
//! it. [`Follower::by_pointers`] turns the first off.
//!
//! # Source
//!
//! Data flow of instructions: `brownout-flow`. Order and addresses: the engine's `follow.rs` and
//! `translate/follow.rs`. Effects of system calls: `brownout-syscalls`.
//!
//! # Deviations
//!
//! 1. What is executed *because* of a labelled byte has no label of it: conditional branches do not
//!    spread labels. (`setcc`, `cmov`, `adc` and their like are data.)
//! 2. An instruction that is not known: what it writes has no label, and it is counted.
//! 3. What the kernel writes has no label, unless it comes from a tracked file: a byte that goes
//!    through a pipe, a socket, an ordinary file or a shared mapping of one is new when it comes
//!    back.
//! 4. Memory that processes share without a tracked file has labels of its own in each.
//! 5. A signal handler that changes the registers in its frame changes no labels.
//! 6. A set of more than [`MEMBERS_MAX`] sources says that it is not complete.
//!
//! # Cost
//!
//! Some 10 ns an instruction while there is no label anywhere in its process, some 30 ns once there
//! is. `examples/follow.rs` measures it on any program.

mod bytes;
mod code;
mod follower;
mod sets;
mod thread;

pub use follower::{Access, Follower, Observer, Received};
pub use sets::{Label, MEMBERS_MAX, Sets};
pub use thread::Given;

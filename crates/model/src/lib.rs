//! What persistent memory may hold after a crash.
//!
//! **Purpose.** Two views of one semantics, fed with the same events: [`Intervals`] answers "is
//! this persisted, is this ordered before that" in logarithmic time; [`History`] and [`CrashState`]
//! give the legal crash states, read lazily. [`reference`](mod@reference) gives them by brute
//! force, for tests. [`keys`] stand for addresses, so that all mappings of a file share state.
//! [`names`] says which names and sizes of files a crash may leave. Which instruction does what is
//! one table, [`Domain::rules`]. No I/O, no `unsafe`.
//!
//! **Guarantee.** Crash states are exactly the legal ones of the recorded interleaving. Intervals
//! never call persisted or ordered what a crash state contradicts; they may fail to see an order
//! (two stores in one line). The files in `tests/litmus` are the specification, each checked
//! against all three.
//!
//! **Source.** Px86 as in Jaaru (ASPLOS'21, sections 2 and 4, Table 1) after Raad et al. (POPL'20);
//! intervals and HOPS as in PMTest (ASPLOS'19, sections 4.4 and 5.2).
//!
//! **Deviations.**
//!
//! 1. One interleaving: stores have left the store buffer where the trace shows them, so the cells
//!    of Table 1 about loads passing stores have no effect here. Exploring other interleavings is a
//!    scheduler's work; so is to know whether a store may have left later than it was recorded
//!    (`buffers.rs` of `brownout-schedule`).
//! 2. `clwb` and `clflushopt` take effect at their place in the trace, unless
//!    [`FlushOrder::Program`] is asked for. They could pass another thread's store; but the locks
//!    and loads that forbid it are not recorded.
//! 3. An epoch also ends at `clflush`, `msync` and, under eADR, each store. PMTest ends it at
//!    fences only, and would then take a store before a `clflush` for one after it.
//! 4. HOPS' epochs are each thread's own, and stores to one line persist in cache order. PMTest
//!    compares beginnings in a global count, which takes another thread's `ofence` for one's own.
//! 5. A non-temporal store may be missing although a later ordinary store to the same word
//!    persisted, as the contract says ("unordered against everything else"). Hardware that merges
//!    the two leaves fewer states; none is missed.
//! 6. A page is written back as a whole. A torn page write is the storage's failure, not the
//!    program's.
//! 7. `msync` is a completed write-back of its range in the x86 domain too, and no fence for
//!    anything else.
//! 8. A string instruction (`rep movs`, `rep stos`) is one store for each element, from the first
//!    to the last or, with the direction flag set, from the last to the first. So `rep movsb` of 8
//!    aligned bytes can be torn between any two of them. Processors with fast strings move larger
//!    blocks, which leaves fewer states, and may show them out of order (Intel's manual, volume 3,
//!    "Fast-String Operation and Out-of-Order Stores"): crash states in which a later element of
//!    the *same line* is there without an earlier one are not among ours. Different lines are
//!    independent anyway. A program that relies on an order inside one string instruction is wrong
//!    on such processors, and is not reported for that.
//!
//! ```
//! use brownout_model::{
//!     ByteRange, Config, Event, FlushKind, History, Intervals, Key, Line, Op, Thread, Write,
//! };
//!
//! let (data, flag) = (Key(0x1000), Key(0x1040));
//! let by = |op| Event::new(Thread(1), op);
//! let events = [
//!     by(Op::Store(Write::new(data, vec![7; 8]))),
//!     by(Op::Flush { kind: FlushKind::Clwb, line: Line::of(data) }),
//!     by(Op::Sfence),
//!     by(Op::Store(Write::new(flag, vec![1]))),
//! ];
//! let mut intervals = Intervals::new(Config::default());
//! let mut history = History::new(Config::default());
//! for event in &events {
//!     intervals.apply(event);
//!     history.apply(event)?;
//! }
//! let (data, flag) = (ByteRange::new(data, 8), ByteRange::new(flag, 1));
//! assert!(intervals.is_persisted(data) && !intervals.is_persisted(flag));
//! assert!(intervals.is_ordered_before(data, flag));
//!
//! let mut crash = history.crash();
//! assert_eq!(crash.states(), Some(2)); // the flag is there, or it is not
//! assert_eq!(crash.may_read(data).len(), 1);
//! assert_eq!(crash.read(flag, 1), Some(vec![1]));
//! assert_eq!(crash.states(), Some(1)); // the read has decided
//! # Ok::<(), brownout_model::MissingValues>(())
//! ```
#![forbid(unsafe_code)]

mod choices;
mod convert;
mod crash;
mod domain;
mod intervals;
pub mod keys;
pub mod names;
pub mod reference;
pub mod registered;
mod shadow;
mod state;
mod types;

pub use choices::{
    Choices, Cut, LineBytes, LineMask, Survivors, UncertainWrite, mask_within, masked,
};
pub use convert::from_recorded;
pub use crash::{CrashState, History, MissingValues, ReadOption};
pub use domain::{Config, Domain, FenceRule, FlushOrder, FlushRule, Rules, StoreRule};
pub use intervals::{FlushOutcome, Interval, Intervals, Outcome, Status};
pub use state::{Input, Persistency};
pub use types::{
    Atomicity, ByteRange, Epoch, Event, FlushKind, Key, LINE_BYTES, Line, Moment, Op, Tag, Thread,
    Unit, Write,
};

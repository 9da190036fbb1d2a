//! One thread of the run at a time.
//!
//! ```text
//!  translated code ─▶ a point (`translate/points.rs`) ─┐
//!  system calls    ─▶ `calls.rs`, `futex.rs`, …       ─┼─▶ `turn.rs`: Table::decide ─▶ the turn goes to another seat, or stays
//!  threads, ends   ─▶ `process.rs`                    ─┘
//! ```
//! A thread executes the program only while it has the *turn*. It may lose it at a point: before an
//! access to persistent memory, a write-back, a fence, a locked instruction, `pause`, a system call
//! that others can notice, at its start and at its end, and when it has gone on for long without
//! any of these. `brownout_schedule` decides who goes on; threads of all processes of the run take
//! part.
//!
//! Invariants (tag `TURN`):
//! - TURN-1: a thread executes the program, and uses the table but for its atomic words, only while
//!   it has the turn.
//! - TURN-2: whoever has the turn changes who can go on, never the thread concerned.
//!
//! **Nobody else's time counts** (TURN-2). Whoever has the turn changes who can go on, never the
//! thread concerned: a futex is a queue in the table, a signal that a thread sends marks the one
//! that gets it, the end of a thread is told by itself. A thread that is chosen and has not come
//! back from the kernel yet is waited for. So when a thread goes on is a matter of decisions, not
//! of the kernel's scheduler.
//!
//! **What waits in the kernel** is tried without waiting, and again when another thread has made a
//! call that could have changed it (`calls.rs`). Calls for which there is no such way are made
//! without the turn; when they return is the kernel's business, and a run in which that matters
//! cannot be repeated exactly. The tool says so where it happens.
//!
//! **Time** is the table's clock. Timeouts and sleeping end when everybody waits, or when it has
//! come so far by itself.

pub mod calls;
pub mod deadlock;
pub mod futex;
pub mod queues;
pub mod streams;
pub mod timers;
pub mod turn;
pub mod waiting;

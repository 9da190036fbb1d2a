//! Who goes on: one thread of a run at a time, by decisions that can be repeated.
//!
//! ```text
//!  engine, at a point of a thread ─▶ Table::decide ─▶ Strategy::choose ─▶ the seat that has the turn now
//!                                       │                                 │
//!                                       └── decisions that differ from "go on" ─▶ a list, which replays the run
//! ```
//! All of it lies in memory that the processes of a run share with the tool ([`Shared`]): threads
//! of several processes take turns, and each process must find what the others have left. So it is
//! plain data without pointers, zeroed memory is a valid beginning, and nothing here allocates or
//! asks the kernel. Whoever has the turn may change the table, nobody else.
//!
//! **Guarantee.** Who goes on at a step follows from the plan, the list, and what the threads did
//! at the steps before. So the same list gives the same run, as long as the program itself does the
//! same when it is given the same turns. Each decision in a list carries a number made of all
//! points before it; a list that is used on another program, or on one that looks at the real time,
//! does not match and is refused ([`Verdict::Diverged`]), never followed silently into another run.
//!
//! **Time** is counted, not measured: each step costs [`STEP_NS`], and when everybody waits, the
//! clock moves to the next deadline.
//!
//! **Sources.** PCT is that of Burckhardt and others (ASPLOS 2010). Delays and the preference for
//! reads of what another thread has stored and not persisted are those of PMRace (ASPLOS 2022);
//! there both are made of sleeping, here they are decisions.
#![no_std]
#![forbid(unsafe_code)]

mod buffers;
mod decision;
mod seat;
mod strategy;
mod table;

pub use decision::{DECISIONS_MAX, Decision, TURNS_MAX, Turn, decode, encode};
pub use seat::{BACK, NO_DEADLINE, Point, PointKind, SEATS, Seat, SeatState};
pub use strategy::{GOALS_MAX, Goal, Kind, Plan, Pursuit};
pub use table::{Alone, STEP_NS, Table, Verdict};

use core::sync::atomic::AtomicU32;

extern crate alloc;
#[cfg(test)]
extern crate std;

/// What all processes of a run and the tool share.
#[repr(C)]
pub struct Shared {
    /// The seat that has the turn, plus one; 0: nobody has.
    pub turn: AtomicU32,
    /// A process that has passed on its turn and is about to end: whoever has the turn waits until
    /// it has. 0: none.
    pub ending: AtomicU32,
    /// The seat, plus one, of a thread that is about to execute another program: that begins with
    /// the turn.
    pub executing: AtomicU32,
    /// 1: all that are there wait for each other. Each says where, and the last one ends the run.
    pub deadlock: AtomicU32,
    /// By seat, what its thread sleeps on: 1 when it may look for the turn.
    pub gates: [AtomicU32; SEATS],
    /// Whoever has the turn may change it.
    pub table: core::cell::UnsafeCell<Table>,
}

//! Small random programs on persistent memory, and everything that their recovery may come to after
//! a crash.
//!
//! ```text
//!  seed ─▶ script ─┬─▶ events ─▶ after each: every legal memory ─▶ `litmus_vm check` on it ─▶ outcomes   (brute force)
//!                  └─▶ `brownout explore -- litmus_vm run` ─▶ outcomes                                   (under test)
//! ```
//!
//! Purpose: the ground truth for an exploration that is clever. The brute force has nothing in
//! common with it: which memories are legal comes from [`brownout_model::reference`], which tries
//! all sets of stores, and a recovery runs to its end on each memory, natively, in a process that
//! knows nothing of the tool.
//!
//! Guarantee: exhaustive. A script that has too many memories for that is never generated. The same
//! seed gives the same script.
//!
//! Two more judges keep it honest. The events that the tool records must be those of the script,
//! and [`recover`], a second implementation of recovery, must agree with the program on each
//! memory. The module's own tests compare the enumeration with a lazy search through the model's
//! crash states, and show that the scripts can tell the x86 domain from wrong ones.
//!
//! Does not check: crashes inside recovery, other domains than x86, recoveries that do not end.

mod brute_force;
mod generator;
#[cfg(test)]
mod lazy;
mod native;
mod recovery;
mod script;

pub use brute_force::{Image, Memories, STATES_MAX};
pub use generator::generate;
pub use native::{Litmus, Truth};
pub use recovery::{Ending, Memory, recover};
pub use script::{Copying, Op, POOL_BYTES, Script, Step};

#[cfg(test)]
mod tests;

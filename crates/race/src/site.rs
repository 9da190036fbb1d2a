//! Where and when in a run something was done, and by whom.

use brownout_trace::epochs::Epoch;
use brownout_trace::event::{ContextId, ProcessId, TargetAddr, ThreadId};

/// Where in the code something was done, and by whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    pub thread: ThreadId,
    pub process: ProcessId,
    /// When `pc` meant what it means here.
    pub epoch: Epoch,
    pub pc: TargetAddr,
    pub context: ContextId,
    /// The same in all runs: made of the instruction and of all return addresses above it.
    pub name: u64,
}

/// Something that was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Its place in the total order of the run's events.
    pub event: u64,
    pub site: Site,
    /// By a locked instruction.
    pub is_locked: bool,
    /// By a non-temporal store.
    pub is_streaming: bool,
}

/// Mixes a number into another one (as rustc-hash does).
pub fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// A name for several numbers together.
pub fn name_of(words: &[u64]) -> u64 {
    words.iter().fold(0, |hash, word| mix(hash, *word))
}

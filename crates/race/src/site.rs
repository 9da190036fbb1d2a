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

/// Of a store and a load of the same bytes: whether two threads made them.
pub fn is_inter(store: &Done, load: &Done) -> bool {
    store.site.thread != load.site.thread
}

/// What an early read is known by, the same in all runs: the names of the store and of the load.
/// What another thread has stored is read by another name than what the thread has stored itself.
pub fn pair_of(store: &Done, load: &Done) -> (u64, u64) {
    let is_inter = u64::from(is_inter(store, load));
    (store.site.name, mix(load.site.name, is_inter))
}

/// Mixes a number into another one (as rustc-hash does).
pub fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// A name for several numbers together.
pub fn name_of(words: &[u64]) -> u64 {
    words.iter().fold(0, |hash, word| mix(hash, *word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_stored_makes_a_difference() {
        let by = |thread, name| {
            let mut done = Done::default();
            (done.site.thread, done.site.name) = (ThreadId(thread), name);
            done
        };
        let (store, own, other) = (by(1, 7), by(1, 8), by(2, 8));
        assert!(!is_inter(&store, &own) && is_inter(&store, &other));
        assert_ne!(pair_of(&store, &own), pair_of(&store, &other));
        // Whichever two threads those are.
        assert_eq!(pair_of(&store, &other), pair_of(&by(3, 7), &own));
    }
}

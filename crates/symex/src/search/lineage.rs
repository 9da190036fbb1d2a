//! What each input was made of: the tree of paths that the page of a campaign draws.
//!
//! Guarantee: a path that was kept hangs below the last one that was kept on the way to it. Inputs
//! are remembered by a hash, so one may hang elsewhere once in billions; nothing but the picture
//! depends on it.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

/// A path that did something new to persistent memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its input.
    pub input: Vec<u8>,
    /// Below which one it hangs, by its place among those of this search.
    pub from: Option<usize>,
    /// The branch that was last turned since then; none if the solver had no part in it.
    pub turned: Option<String>,
}

/// Where an input comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The last path that was kept on the way to it, itself included.
    pub(super) kept: Option<usize>,
    /// The branch that was last turned since, by its instruction.
    pub(super) turned: Option<u64>,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    /// By input.
    origins: FxHashMap<u64, Origin>,
    /// That of the inputs that are being made.
    now: Origin,
}

fn hashed(input: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    input.hash(&mut hasher);
    hasher.finish()
}

impl Lineage {
    /// What is born from now on was made of this; to turn a branch, if one is given.
    pub(super) fn begin(&mut self, input: &[u8], turned: Option<u64>) {
        let of = self.of(input);
        self.now = Origin {
            turned: turned.or(of.turned),
            ..of
        };
    }

    /// An input that did not exist before.
    pub(super) fn born(&mut self, input: &[u8]) {
        if self.now != Origin::default() {
            self.origins.insert(hashed(input), self.now);
        }
    }

    /// The input is the `at`th that is kept.
    pub(super) fn keep(&mut self, input: &[u8], at: usize) {
        let origin = Origin {
            kept: Some(at),
            turned: None,
        };
        self.origins.insert(hashed(input), origin);
    }

    /// Where an input comes from.
    pub(super) fn of(&self, input: &[u8]) -> Origin {
        let known = self.origins.get(&hashed(input));
        known.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_hang_below_the_last_one_that_was_kept() {
        let mut lineage = Lineage::default();
        let origin = |kept, turned| Origin { kept, turned };
        lineage.keep(b"first", 0);
        lineage.begin(b"first", Some(7));
        lineage.born(b"dull");
        assert_eq!(lineage.of(b"dull"), origin(Some(0), Some(7)));
        // What is made of it without the solver comes from that branch, too.
        lineage.begin(b"dull", None);
        lineage.born(b"new");
        assert_eq!(lineage.of(b"new"), origin(Some(0), Some(7)));
        lineage.keep(b"new", 1);
        lineage.begin(b"new", None);
        lineage.born(b"newer");
        assert_eq!(lineage.of(b"newer"), origin(Some(1), None));
        // From somebody else: nobody knows of what it was made.
        lineage.begin(b"heard", None);
        lineage.born(b"other");
        assert_eq!(lineage.of(b"other"), Origin::default());
    }
}

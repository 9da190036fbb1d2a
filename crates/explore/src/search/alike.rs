//! Crash states after which recovery does the same, because it reads the same.
//!
//! One execution tells of all of them how recovery ends. What a second crash leaves differs all the
//! same: what recovery has not read may be anything, and comes back where it is overwritten, or was
//! never touched. So all of them are kept, for [`nested`](crate::nested).

use brownout_model::LineMask;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

use super::known::TrieId;
use crate::line::LineKey;
use crate::trie::PathId;
use crate::view::Narrowed;

/// So many crash states are kept, in all.
const KEPT_MAX: usize = 100_000;

/// Part of the crash states of a failure point.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    pub layer: usize,
    pub point: u32,
    pub narrowed: Narrowed,
}

/// See the module's header.
#[derive(Default)]
pub struct Alike {
    numbers: FxHashMap<(TrieId, PathId), usize>,
    /// Those of one execution each, in the order in which they were found.
    all: Vec<Vec<State>>,
    kept: usize,
    /// How many were not kept, because there are too many.
    pub left_out: u64,
}

impl Alike {
    /// Recovery of this state is that execution.
    pub fn add(&mut self, execution: (TrieId, PathId), state: State) {
        let next = self.all.len();
        let number = *self.numbers.entry(execution).or_insert(next);
        if number == next {
            self.all.push(Vec::new());
        }
        // The first of each costs no more than the execution did.
        if number != next && self.kept >= KEPT_MAX {
            self.left_out += 1;
            return;
        }
        self.kept += 1;
        self.all[number].push(state);
    }

    /// All of them, by execution. In an order that does not depend on which was found first, so
    /// that those that are taken of many are the same whatever runs side by side.
    pub fn take(&mut self) -> (Vec<Vec<State>>, u64) {
        let mut taken = std::mem::take(self);
        for states in &mut taken.all {
            states.sort();
        }
        taken.all.sort();
        (taken.all, taken.left_out)
    }
}

/// What the recoveries of one run's crashes have read of what was there before, and how they ended.
#[derive(Default)]
pub struct Noted {
    /// Bytes that any of them has read, by line.
    pub reads: FxHashMap<LineKey, LineMask>,
    /// Numbers of outcomes.
    pub outcomes: BTreeSet<u32>,
}

//! Decisions that wait to be turned, in levels of how new they are.

use std::collections::{BTreeMap, BinaryHeap};

use super::turn::{DETAILS, Turn};

/// How new what may lead to a way is that no run has gone: less than that way, more than all else.
pub(super) const LEADS: u8 = 2 * DETAILS as u8 - 1;

/// What waits, by how new it is. Of each level, the one with the highest rank comes first.
#[derive(Default)]
pub(super) struct Levels(BTreeMap<u8, BinaryHeap<Turn>>);

impl Levels {
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BinaryHeap::len).sum()
    }

    /// Only those stay.
    pub(super) fn retain(&mut self, stays: impl Fn(&Turn) -> bool) {
        for level in self.0.values_mut() {
            level.retain(&stays);
        }
    }

    pub(super) fn push(&mut self, turn: Turn) {
        self.0.entry(turn.rank.novelty).or_default().push(turn);
    }

    /// What no run has gone comes first, and what may lead there. Of the rest, one of the newest
    /// level as often as not, else one of the next likewise: what is less new has to wait, but not
    /// for ever, since there may always be something newer.
    pub(super) fn pop(&mut self, random: &mut fastrand::Rng) -> Option<Turn> {
        self.0.retain(|_, level| !level.is_empty());
        let mut levels = self.0.iter_mut().rev();
        let chosen = levels.find(|(novelty, _)| **novelty >= LEADS || random.bool());
        match chosen {
            Some((_, level)) => level.pop(),
            None => self.0.values_mut().next_back()?.pop(),
        }
    }
}

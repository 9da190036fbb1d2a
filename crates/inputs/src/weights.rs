//! How often each change is tried: as often as it is worth.
//!
//! Every change has a base weight ([`Change::base`]), which is multiplied by up to [`MOST`] as it
//! finds something new. Counts are halved from time to time, so that what mattered an hour ago does
//! not matter for ever; no change ever falls below its base. When nothing new has come for long,
//! `populate` and `drain` become likelier: what is left is probably behind a split or a rebuild.
//!
//! The state is a few whole numbers: the same trials give the same weights on every machine. It can
//! be saved through serde; `brownout fuzz` does not, and learns anew when a campaign is resumed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::{Below, weighted};

/// A change that always finds something is tried so many times as often as one that never does.
pub const MOST: u64 = 8;
/// Counts of a change are halved when it was tried so often.
const MEMORY: u32 = 2048;
/// After so many trials without anything new, the structures are populated more often, and after
/// the second number much more often.
const DRY: [u64; 2] = [500, 4000];

/// How often each change was tried lately, and how often it found something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weights {
    counts: BTreeMap<Change, Count>,
    /// Trials since something new came.
    dry: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    tried: u32,
    found: u32,
}

impl Weights {
    /// Says what came of an input that these changes made.
    pub fn tried(&mut self, changes: &[Change], found: bool) {
        self.dry = if found { 0 } else { self.dry.saturating_add(1) };
        for change in changes {
            let count = self.counts.entry(*change).or_default();
            count.tried += 1;
            count.found += u32::from(found);
            if count.tried >= MEMORY {
                count.tried /= 2;
                count.found /= 2;
            }
        }
    }

    /// Says that something else (a change of bytes, another worker) found something new.
    pub fn found_elsewhere(&mut self) {
        self.dry = 0;
    }

    /// How many trials there were since something new came.
    pub fn dry(&self) -> u64 {
        self.dry
    }

    /// How much this change is worth now.
    pub fn of(&self, change: Change) -> u64 {
        // In sixteenths, so that small differences count.
        let count = self.counts.get(&change).copied().unwrap_or_default();
        // A new campaign's first finds must not decide everything: as if each had failed 64 times
        // before.
        let rate = u64::from(count.found) * 256 / (u64::from(count.tried) + 64);
        // Findings are rare: one in sixteen is as good as it gets.
        let bonus = (rate * (MOST - 1)).min(16 * (MOST - 1));
        let dry = match change {
            Change::Populate | Change::Drain if self.dry > DRY[1] => 6,
            Change::Populate | Change::Drain if self.dry > DRY[0] => 3,
            _ => 1,
        };
        change.base() * dry * (16 + bonus)
    }

    /// One of these changes.
    pub(crate) fn choose(&self, among: &[Change], random: &mut dyn Below) -> Option<Change> {
        let weights: Vec<u64> = among.iter().map(|change| self.of(*change)).collect();
        weighted(&weights, random).map(|index| among[index])
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Weights};
    use crate::change::Change;

    #[test]
    fn what_finds_something_is_tried_more_often_but_nothing_is_forgotten() {
        let mut weights = Weights::default();
        let before = weights.of(Change::Swap);
        for _ in 0..10_000 {
            weights.tried(&[Change::Swap], true);
            weights.tried(&[Change::Repeat], false);
        }
        assert_eq!(weights.of(Change::Swap), before * MOST);
        assert_eq!(weights.of(Change::Repeat), Change::Repeat.base() * 16);
        // And it does not last.
        for _ in 0..100_000 {
            weights.tried(&[Change::Swap], false);
        }
        assert_eq!(weights.of(Change::Swap), before);
    }

    #[test]
    fn structures_are_filled_when_nothing_new_comes() {
        let mut weights = Weights::default();
        let early = weights.of(Change::Populate);
        for _ in 0..5_000 {
            weights.tried(&[Change::Add], false);
        }
        assert!(weights.of(Change::Populate) > 4 * early);
        weights.found_elsewhere();
        assert_eq!(weights.of(Change::Populate), early);
        assert_eq!(weights.dry(), 0);
    }

    #[test]
    fn the_state_is_saved_and_read_again() {
        let mut weights = Weights::default();
        weights.tried(&[Change::Swap, Change::DeleteRange], true);
        weights.tried(&[Change::Populate], false);
        let text = serde_json::to_string(&weights).expect("plain data");
        assert!(text.contains("\"delete-range\""), "{text}");
        assert_eq!(
            serde_json::from_str::<Weights>(&text).expect("the same"),
            weights
        );
    }
}

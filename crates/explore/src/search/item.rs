//! What is left to be tried of the crash states of a failure point.

use std::collections::{BTreeMap, BTreeSet};

use brownout_model::Unit;

use crate::trie::Read;
use crate::view::Narrowed;

/// A failure point: of which run, and its number there.
pub type Place = (usize, u32);

/// Part of the crash states of one failure point.
#[derive(Clone)]
pub struct Item {
    pub layer: usize,
    pub point: u32,
    pub narrowed: Narrowed,
    /// By the first unit of each.
    pub bulks: BTreeMap<Unit, Bulk>,
    pub retries: u32,
    /// How it ended when it was run and did not fit.
    pub ended: BTreeSet<u32>,
    /// The class on whose budget this is run.
    pub payer: Option<BulkClass>,
    /// The read that sees what makes it torn.
    pub torn_at: Option<Read>,
}

/// What of a bulk of uncertain data a recovery has seen so far. A bulk is a stretch of adjacent
/// units with more contents than can all be tried.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    pub class: BulkClass,
    pub first: Unit,
    pub choices: u32,
    pub newest: u32,
    pub oldest: u32,
}

impl Bulk {
    /// After one more read, which saw the newest or the oldest content, or one between.
    pub fn after(self, is_newest: bool, is_oldest: bool) -> Bulk {
        Bulk {
            choices: self.choices + 1,
            newest: self.newest + u32::from(is_newest),
            oldest: self.oldest + u32::from(is_oldest),
            ..self
        }
    }

    /// Of what it holds next, the oldest makes it less torn than the newest.
    pub fn is_mostly_oldest(self) -> bool {
        self.oldest > self.newest
    }

    /// In how many places it is neither all newest nor all oldest: 0 if it is not torn.
    pub fn torn(self) -> u32 {
        self.choices - self.newest.max(self.oldest)
    }
}

/// Bulks that one piece of code has written and another one reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BulkClass {
    pub load: u64,
    pub store: u64,
    /// What makes it torn is covered by a checksum; then `store` is 0.
    pub summed: bool,
}

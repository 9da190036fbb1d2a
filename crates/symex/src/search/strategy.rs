//! What a strategy decides, and what it may look at; `strategies/` has them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::reach::Reach;
use super::test::Test;
use super::turn::{Rank, Turn};
use crate::modules::OwnCode;

/// What a strategy may look at.
pub(super) struct Known<'s> {
    /// All paths, by their numbers.
    pub(super) tests: &'s [Test],
    /// Ways that decisions went.
    pub(super) covered: &'s FxHashSet<u64>,
    /// By decision and way not gone: how often it was tried.
    pub(super) tries: &'s FxHashMap<u64, u32>,
    /// Where the program's own code is.
    pub(super) own: &'s OwnCode,
    /// What lies behind the ways of decisions; None if nobody wants to know.
    pub(super) reach: Option<&'s Reach>,
}

/// When which decision is turned, and what is done beside.
pub(super) trait Order: Sync {
    /// Beside the decisions that are turned in order, inputs are made of others, and decisions are
    /// turned for the sake of ways that cannot be gone otherwise.
    fn helps(&self) -> bool {
        false
    }

    /// How far a run has come with persistent memory tells ways apart, and what it does anew there
    /// is worth a closer look.
    fn sees_pm(&self) -> bool {
        false
    }

    /// A number for a new decision of a path: of what is otherwise alike, the larger comes first.
    fn number(&self, test: u32, at: u32, random: &mut fastrand::Rng) -> u64;

    /// When a decision that has such a number (`turn.rank.order`) is turned.
    fn rank(&self, known: &Known<'_>, turn: &Turn) -> Rank;
}

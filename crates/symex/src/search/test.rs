//! What is kept of a path that was run.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::turn::{DETAILS, setting};
use crate::path::Decision;

/// A path that was run. One that is of no use any more is empty.
#[derive(Default)]
pub(super) struct Test {
    pub(super) input: Vec<u8>,
    pub(super) decisions: Vec<Decision>,
    /// For each decision, a number for all before it that count (`expected.rs`).
    pub(super) before: Vec<u64>,
    /// For each decision, how often it was met before since persistent memory was changed; 255: as
    /// often or more.
    pub(super) times: Vec<u8>,
    /// The instructions that were captured.
    pub(super) chosen: Arc<[u64]>,
    /// Decisions that were not turned yet, and to which place.
    pub(super) open: FxHashSet<(u32, u32)>,
    /// Those that were.
    pub(super) turned: FxHashSet<(u32, u32)>,
    /// Those that may lead to a way that no run has gone, and how many on the path are more likely
    /// to.
    pub(super) towards: FxHashMap<(u32, u32), u32>,
    /// It takes as long to run as many others.
    pub(super) is_dear: bool,
    /// Positions that are reached only if bytes have certain values.
    pub(super) narrow: FxHashSet<(u32, u32)>,
    /// Those of the program itself, if the path was new.
    pub(super) owned: FxHashSet<(u32, u32)>,
}

impl Test {
    /// All before a decision in ever more detail.
    pub(super) fn setting(&self, at: usize) -> [u64; DETAILS] {
        setting(&self.decisions, at, self.times[at])
    }
}

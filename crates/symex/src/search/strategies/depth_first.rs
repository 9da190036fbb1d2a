//! The last decision of the newest path first.

use super::super::strategy::{Known, Order};
use super::super::turn::{Rank, Turn};

/// See the module's header.
pub(super) struct DepthFirst;

impl Order for DepthFirst {
    fn number(&self, test: u32, at: u32, _: &mut fastrand::Rng) -> u64 {
        u64::from(test) << 32 | u64::from(at)
    }

    fn rank(&self, _: &Known<'_>, turn: &Turn) -> Rank {
        Rank::numbered(turn.rank.order)
    }
}

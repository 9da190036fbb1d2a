//! Any decision.

use super::super::strategy::{Known, Order};
use super::super::turn::{Rank, Turn};

/// See the module's header.
pub(super) struct Random;

impl Order for Random {
    fn number(&self, _: u32, _: u32, random: &mut fastrand::Rng) -> u64 {
        random.u64(..)
    }

    fn rank(&self, _: &Known<'_>, turn: &Turn) -> Rank {
        Rank::numbered(turn.rank.order)
    }
}

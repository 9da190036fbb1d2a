//! What is new first, where that counts which is new behind a change of persistent memory. Of what
//! is as new, and was tried as often, that comes first which leads to more of what the program does
//! to persistent memory (`reach.rs`).

use super::super::strategy::{Known, Order};
use super::super::turn::{Rank, Turn};
use super::newest;

/// See the module's header.
pub(super) struct Pm;

impl Order for Pm {
    fn helps(&self) -> bool {
        true
    }

    fn sees_pm(&self) -> bool {
        true
    }

    fn number(&self, _: u32, _: u32, random: &mut fastrand::Rng) -> u64 {
        random.u64(..)
    }

    fn rank(&self, known: &Known<'_>, turn: &Turn) -> Rank {
        newest::rank(known, turn)
    }
}

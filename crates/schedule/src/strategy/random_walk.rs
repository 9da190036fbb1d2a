//! Anybody, at one point in four.
//!
//! At each point would be the walk that theory likes; but programs have stretches of points at which nothing hangs on who goes on,
//! and a thread that is interrupted in each of them hardly ever gets far ahead of the others.

use super::choice::{Choice, Plan, Random, Strategy};

#[derive(Clone, Copy, Default)]
pub struct RandomWalk;

const ONE_IN: u64 = 4;

impl Strategy for RandomWalk {
    fn choose(&mut self, _: &Plan, choice: &Choice<'_>, random: &mut Random) -> usize {
        match random.below(ONE_IN) {
            0 => choice.anybody(random),
            _ => choice.usual,
        }
    }
}

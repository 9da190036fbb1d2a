//! Each access to persistent memory is delayed by a random time of up to a millisecond.
//!
//! This is the baseline of PMRace (ASPLOS 2022, section 6.1): no decisions, only time. Time is
//! counted in points, of which each takes about a microsecond.

use super::choice::{Choice, Plan, Random, Strategy};
use crate::seat::SEATS;

const POINT_NS: u64 = 1_000;
const DELAY_MAX_NS: u64 = 1_000_000;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Delay {
    /// By seat: when its delay is over.
    until: [u64; SEATS],
    now: u64,
}

impl Default for Delay {
    fn default() -> Delay {
        Delay {
            until: [0; SEATS],
            now: 0,
        }
    }
}

impl Strategy for Delay {
    fn choose(&mut self, _: &Plan, choice: &Choice<'_>, random: &mut Random) -> usize {
        self.now += POINT_NS;
        if let Some(me) = choice.me
            && choice.point.kind.is_access()
        {
            self.until[me] = self.now + random.below(DELAY_MAX_NS);
        }
        if self.until[choice.usual] <= self.now {
            return choice.usual;
        }
        let first = choice.able().min_by_key(|at| self.until[*at]);
        let first = first.unwrap_or(choice.usual);
        self.now = self.now.max(self.until[first]);
        first
    }

    fn arrives(&mut self, seat: usize, _: &mut Random) {
        self.until[seat] = 0;
    }
}

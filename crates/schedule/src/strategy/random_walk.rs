//! Anybody, at one point in so many; how many is drawn for each run.
//!
//! At each point would be the walk that theory likes, and a program with a dozen points needs it:
//! with fewer decisions most of its runs are the same one. But programs also have long stretches of
//! points at which nothing hangs on who goes on, and a thread that is interrupted in each of them
//! hardly ever gets far ahead of the others. No rate suits both, so seeds differ in their rate;
//! where the plan says how long the run is, it has some decisions at any rate, and never so many
//! that there is no room for those at its end.
//!
//! In half of the runs threads differ in their speed, too, by up to 64: among equals, a thread that
//! has little to do is through with it before the next one has been started. And whoever cannot go
//! on, or gives way, is followed by anybody, not by the next one in turn.

use super::choice::{Choice, Plan, Random, Strategy};
use crate::decision::DECISIONS_MAX;
use crate::seat::SEATS;

/// One point in so many. Half of all runs are for programs with few points.
const RATES: [u64; 8] = [1, 1, 2, 2, 4, 8, 20, 50];
/// Decisions that a run of known length has, about, whatever its rate.
const DECISIONS_MIN: u64 = 4;
/// The most. Whoever cannot go on is followed by anybody, which takes decisions, too, and an
/// interrupted run is often longer.
const DECISIONS_MOST: u64 = DECISIONS_MAX as u64 / 4;
/// How often the slowest speed is doubled, at most.
const DOUBLINGS_MAX: u64 = 6;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct RandomWalk {
    /// Of this run; 0 before it is drawn.
    one_in: u64,
    /// Whether threads differ in their speed.
    is_uneven: u64,
    /// By seat: a power of two.
    doublings: [u8; SEATS],
}

impl Default for RandomWalk {
    fn default() -> RandomWalk {
        RandomWalk {
            one_in: 0,
            is_uneven: 0,
            doublings: [0; SEATS],
        }
    }
}

impl RandomWalk {
    pub fn new(plan: &Plan, random: &mut Random) -> RandomWalk {
        let at = random.below(RATES.len() as u64);
        let rarest = match plan.length {
            0 => u64::MAX,
            length => length / DECISIONS_MIN,
        };
        RandomWalk {
            one_in: RATES[at as usize]
                .min(rarest)
                .max(plan.length / DECISIONS_MOST)
                .max(1),
            is_uneven: random.below(2),
            ..RandomWalk::default()
        }
    }

    fn speed(&self, seat: usize) -> u64 {
        1 << self.doublings[seat]
    }

    /// Somebody, the faster the likelier.
    fn anybody(&self, choice: &Choice<'_>, random: &mut Random) -> usize {
        let all = choice.able().map(|at| self.speed(at)).sum();
        let mut drawn = random.below(all);
        let found = choice.able().find(|at| {
            let speed = self.speed(*at);
            let is_it = drawn < speed;
            drawn = drawn.saturating_sub(speed);
            is_it
        });
        found.unwrap_or(choice.usual)
    }
}

impl Strategy for RandomWalk {
    fn choose(&mut self, _: &Plan, choice: &Choice<'_>, random: &mut Random) -> usize {
        let goes_on = choice.me == Some(choice.usual);
        if goes_on && random.below(self.one_in.max(1)) != 0 {
            return choice.usual;
        }
        self.anybody(choice, random)
    }

    fn arrives(&mut self, seat: usize, random: &mut Random) {
        let doublings = random.below(DOUBLINGS_MAX + 1) as u8;
        self.doublings[seat] = if self.is_uneven == 1 { doublings } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seat::{Point, SEATS, Seat};
    use crate::strategy::Kind;

    /// How often the other one of two threads goes on, at a thousand points.
    fn interruptions(plan: &Plan) -> usize {
        let mut random = Random(plan.seed);
        let mut walk = RandomWalk::new(plan, &mut random);
        walk.arrives(0, &mut random);
        walk.arrives(1, &mut random);
        let seats: [Seat; SEATS] = core::array::from_fn(|_| Seat::default());
        let choice = Choice {
            me: Some(0),
            usual: 0,
            point: Point::default(),
            able: &[0, 1],
            seats: &seats,
            step: 1,
        };
        (0..1000)
            .filter(|_| walk.choose(plan, &choice, &mut random) != 0)
            .count()
    }

    #[test]
    fn seeds_differ_in_how_often_they_interrupt() {
        let counts: alloc::vec::Vec<usize> = (0..64)
            .map(|seed| interruptions(&Plan::new(Kind::Random, seed)))
            .collect();
        let often = counts.iter().filter(|count| **count > 400).count();
        let rarely = counts.iter().filter(|count| **count < 40).count();
        assert!(often >= 8 && rarely >= 4, "{counts:?}");
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    }

    #[test]
    fn a_long_run_has_room_for_its_decisions_at_any_rate() {
        for seed in 0..64 {
            let length = 1_000_000;
            let plan = Plan::new(Kind::Random, seed).with_length(length);
            let walk = RandomWalk::new(&plan, &mut Random(seed));
            assert!(length / walk.one_in <= DECISIONS_MAX as u64 / 2, "{seed}");
        }
    }

    #[test]
    fn a_short_run_has_decisions_at_any_rate() {
        for seed in 0..64 {
            let plan = Plan::new(Kind::Random, seed).with_length(12);
            let is_uneven = RandomWalk::new(&plan, &mut Random(seed)).is_uneven == 1;
            let least = if is_uneven { 1 } else { 120 };
            assert!(interruptions(&plan) >= least, "seed {seed}");
        }
    }
}

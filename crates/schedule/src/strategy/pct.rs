//! Probabilistic concurrency testing: random priorities, and a few points at which whoever has the
//! turn falls behind all others.
//!
//! A bug that needs `d` ordering decisions is hit with a probability of at least `1 / (n *
//! k^(d-1))`, for `n` threads and `k` points (Burckhardt and others, ASPLOS 2010). `depth` of the
//! plan is `d`, `length` is `k`. If the plan does not say how long the run is, each run guesses:
//! points beyond its end would change nothing, and points in its first thousandth hardly anything.
//!
//! Deviation: a thread that gives way (it spins, or yields) falls behind all others, too, because
//! it waits for one of them.

use super::choice::{Choice, Plan, Random, Strategy};
use crate::seat::SEATS;

/// Priorities that are lowered at stated points.
const CHANGES_MAX: usize = 16;
/// The shortest run that is guessed, in steps, and how often that is doubled: 8,192 is the longest.
const GUESS_MIN: u64 = 16;
const GUESSES: u64 = 10;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Pct {
    /// By seat; the highest goes on.
    priority: [i64; SEATS],
    /// The next priority below all others.
    lowest: i64,
    /// At these steps.
    changes: [u64; CHANGES_MAX],
    count: u32,
    _pad: u32,
}

impl Default for Pct {
    fn default() -> Pct {
        Pct {
            priority: [0; SEATS],
            lowest: 0,
            changes: [0; CHANGES_MAX],
            count: 0,
            _pad: 0,
        }
    }
}

impl Pct {
    pub fn new(plan: &Plan, random: &mut Random) -> Pct {
        let mut pct = Pct::default();
        let count = (plan.depth.saturating_sub(1) as usize).min(CHANGES_MAX);
        let length = match plan.length {
            0 => GUESS_MIN << random.below(GUESSES),
            length => length,
        };
        for change in &mut pct.changes[..count] {
            *change = 1 + random.below(length);
        }
        pct.count = count as u32;
        pct
    }

    fn falls_behind(&mut self, seat: usize) {
        self.lowest -= 1;
        self.priority[seat] = self.lowest;
    }
}

impl Strategy for Pct {
    fn choose(&mut self, _: &Plan, choice: &Choice<'_>, _: &mut Random) -> usize {
        if let Some(me) = choice.me {
            let changes = &self.changes[..self.count as usize];
            if choice.point.kind.gives_way() || changes.contains(&choice.step) {
                self.falls_behind(me);
            }
        }
        let highest = choice.able().max_by_key(|at| self.priority[*at]);
        highest.unwrap_or(choice.usual)
    }

    fn arrives(&mut self, seat: usize, random: &mut Random) {
        self.priority[seat] = 1 + random.below(1 << 32) as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Kind;

    fn changes(plan: Plan) -> impl Iterator<Item = u64> {
        let pct = Pct::new(&plan, &mut Random(plan.seed));
        (0..pct.count as usize).map(move |at| pct.changes[at])
    }

    #[test]
    fn changes_lie_in_the_run() {
        let plans = (0..200).map(|seed| Plan::new(Kind::Pct, seed).with_length(20));
        let mut steps: alloc::vec::Vec<u64> = plans.flat_map(changes).collect();
        steps.sort_unstable();
        steps.dedup();
        assert!(steps.iter().copied().eq(1..=20), "{steps:?}");
    }

    #[test]
    fn without_a_length_some_runs_change_early_and_some_late() {
        let plans = (0..200).map(|seed| Plan::new(Kind::Pct, seed));
        let steps: alloc::vec::Vec<u64> = plans.flat_map(changes).collect();
        let early = steps.iter().filter(|step| **step <= 32).count();
        let late = steps.iter().filter(|step| **step > 1000).count();
        assert!(early >= 40 && late >= 40, "{early} early, {late} late");
    }
}

//! Strategies: who goes on where there is a choice.
//!
//! | strategy | file | who goes on |
//! |---|---|---|
//! | go-on | `go_on.rs` | whoever had the turn, as long as it can |
//! | round-robin | `round_robin.rs` | the next one, every few points |
//! | random | `random_walk.rs` | anybody, at one point in so many |
//! | pct | `pct.rs` | who has the highest priority; a few times that becomes the lowest |
//! | pm | `pm_aware.rs` | who reads what another one has stored and not yet persisted |
//! | delay | `delay.rs` | who is not delayed: each access to persistent memory is, by a random time |
//! | replay | `table.rs` | who did in the run whose list this is |
//! | steer | `table.rs` | who is in the list for this step, if that thread can; else as go-on |
//!
//! A new one is a file with a [`Strategy`], a row here, a [`Kind`], and its lines in
//! [`Strategies`]. Its state lies in shared memory: plain data, for which zeroed memory is a valid
//! beginning.

mod choice;
mod delay;
mod go_on;
mod pct;
mod pm_aware;
mod random_walk;
mod round_robin;

pub use choice::{Choice, GOALS_MAX, Goal, Kind, Plan};
use choice::{Random, Strategy};
pub use pm_aware::Pursuit;

/// The state of all strategies. A run uses one of them.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Strategies {
    random: Random,
    go_on: go_on::GoOn,
    random_walk: random_walk::RandomWalk,
    round_robin: round_robin::RoundRobin,
    pct: pct::Pct,
    pm_aware: pm_aware::PmAware,
    delay: delay::Delay,
}

impl Strategies {
    /// At the beginning of a run.
    pub fn new(plan: &Plan) -> Strategies {
        let mut random = Random(plan.seed);
        Strategies {
            random_walk: random_walk::RandomWalk::new(plan, &mut random),
            pct: pct::Pct::new(plan, &mut random),
            random,
            ..Strategies::default()
        }
    }

    fn chosen(&mut self, kind: Kind) -> (&mut dyn Strategy, &mut Random) {
        let strategy: &mut dyn Strategy = match kind {
            // A list is followed by whoever has it.
            Kind::GoOn | Kind::Replay | Kind::Steer => &mut self.go_on,
            Kind::RoundRobin => &mut self.round_robin,
            Kind::Random => &mut self.random_walk,
            Kind::Pct => &mut self.pct,
            Kind::PmAware => &mut self.pm_aware,
            Kind::Delay => &mut self.delay,
        };
        (strategy, &mut self.random)
    }

    /// Who goes on.
    pub fn choose(&mut self, plan: &Plan, choice: &Choice<'_>) -> usize {
        let (strategy, random) = self.chosen(plan.kind());
        strategy.choose(plan, choice, random)
    }

    /// What became of the goals of `pm_aware.rs`.
    pub fn pursuit(&self) -> Pursuit {
        self.pm_aware.pursuit()
    }

    /// A thread has come.
    pub fn arrives(&mut self, plan: &Plan, seat: usize) {
        let (strategy, random) = self.chosen(plan.kind());
        strategy.arrives(seat, random);
    }
}

//! What is asked of a strategy, and what it may know.

use crate::seat::{Point, SEATS, Seat};

/// Pairs of instructions that a run is to bring together.
pub const GOALS_MAX: usize = 16;

/// A store that shall be read before it is persistent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Goal {
    /// The instruction that stores.
    pub store: u64,
    /// The instruction that reads; 0: any.
    pub load: u64,
}

/// Which strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// `go_on.rs`.
    #[default]
    GoOn = 0,
    /// `round_robin.rs`.
    RoundRobin = 1,
    /// `random_walk.rs`.
    Random = 2,
    /// `pct.rs`.
    Pct = 3,
    /// `pm_aware.rs`.
    PmAware = 4,
    /// `delay.rs`.
    Delay = 5,
    /// A list of decisions, all of which must fit.
    Replay = 6,
    /// A list of decisions, of which those count that can be followed.
    Steer = 7,
}

impl Kind {
    /// All of them, with the names that users give them.
    pub const NAMES: [(Kind, &'static str); 8] = [
        (Kind::GoOn, "go-on"),
        (Kind::RoundRobin, "round-robin"),
        (Kind::Random, "random"),
        (Kind::Pct, "pct"),
        (Kind::PmAware, "pm"),
        (Kind::Delay, "delay"),
        (Kind::Replay, "replay"),
        (Kind::Steer, "steer"),
    ];

    /// What users call it.
    pub fn name(self) -> &'static str {
        let named = Kind::NAMES.iter().find(|(kind, _)| *kind == self);
        named.map_or("", |(_, name)| name)
    }

    /// The one that users call so.
    pub fn named(name: &str) -> Option<Kind> {
        let named = Kind::NAMES.iter().find(|(_, known)| *known == name);
        named.map(|(kind, _)| *kind)
    }
}

/// What a run is decided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Plan {
    pub(super) kind: u32,
    /// How many times `pct.rs` lowers a priority, plus one; how many points `round_robin.rs` gives
    /// to each; how many runs `pm_aware.rs` has been given these goals for before.
    pub depth: u32,
    /// Of whatever is random.
    pub seed: u64,
    /// About how many steps the run has, as one before it had; 0: nobody knows. See `pct.rs` and
    /// `random_walk.rs`.
    pub length: u64,
    /// How many of `goals` there are.
    pub goal_count: u32,
    /// 1: whoever went on is written down at each step ([`Table::turns`](crate::Table::turns)), and
    /// who could have.
    pub keeps_turns: u32,
    /// Of `pm_aware.rs`.
    pub goals: [Goal; GOALS_MAX],
}

impl Plan {
    /// With that strategy, and its usual parameters.
    pub fn new(kind: Kind, seed: u64) -> Plan {
        Plan {
            kind: kind as u32,
            depth: 3,
            seed,
            ..Plan::default()
        }
    }

    /// For a program of which a run had so many steps.
    pub fn with_length(mut self, steps: u64) -> Plan {
        self.length = steps;
        self
    }

    /// With these goals, as many as there is room for, for the first time.
    pub fn with_goals(mut self, goals: &[Goal]) -> Plan {
        let count = goals.len().min(GOALS_MAX);
        self.goals[..count].copy_from_slice(&goals[..count]);
        self.goal_count = count as u32;
        self.depth = 0;
        self
    }

    /// With goals that so many runs have pursued before: another way than theirs is to be gone.
    pub fn pursued_before(mut self, times: u32) -> Plan {
        self.depth = times;
        self
    }

    /// With all turns written down.
    pub fn keeping_turns(mut self) -> Plan {
        self.keeps_turns = 1;
        self
    }

    /// Which strategy. (What lies in shared memory may be anything.)
    pub fn kind(&self) -> Kind {
        let named = Kind::NAMES
            .iter()
            .find(|(kind, _)| *kind as u32 == self.kind);
        named.map_or(Kind::GoOn, |(kind, _)| *kind)
    }
}

/// Where a decision is asked for.
pub struct Choice<'a> {
    /// Who has the turn; none if that thread is gone.
    pub me: Option<usize>,
    /// Who goes on unless there is a reason.
    pub usual: usize,
    /// What the thread is about to do.
    pub point: Point,
    /// Who can go on, by seat, in order. Never empty.
    pub able: &'a [u16],
    /// All seats.
    pub seats: &'a [Seat; SEATS],
    /// Which step of the run it is, from 1 on.
    pub step: u64,
}

impl Choice<'_> {
    /// Those who can go on.
    pub fn able(&self) -> impl Iterator<Item = usize> + '_ {
        self.able.iter().map(|at| usize::from(*at))
    }
}

/// Decides who goes on.
pub trait Strategy {
    /// Somebody of `choice.able`. Anybody else stands for the usual one.
    fn choose(&mut self, plan: &Plan, choice: &Choice<'_>, random: &mut Random) -> usize;

    /// A thread has come, to this seat.
    fn arrives(&mut self, _seat: usize, _random: &mut Random) {}
}

/// SplitMix64.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Random(pub(super) u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// One below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

//! Runs in which one thread goes on at a time: what is decided beforehand, and what came of it.

pub use brownout_abi::schedule::{
    Decision, Goal, Kind as StrategyKind, Plan, decode as decode_decisions,
    encode as encode_decisions,
};

/// Who goes on in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The strategy, and what it needs.
    pub plan: Plan,
    /// With [`StrategyKind::Replay`]: what was decided in the run that is repeated.
    pub decisions: Vec<Decision>,
}

impl Schedule {
    /// By a strategy.
    pub fn new(kind: StrategyKind, seed: u64) -> Schedule {
        Schedule {
            plan: Plan::new(kind, seed),
            decisions: Vec::new(),
        }
    }

    /// As in the run with these decisions.
    pub fn repeat(decisions: Vec<Decision>) -> Schedule {
        Schedule {
            plan: Plan::new(StrategyKind::Replay, 0),
            decisions,
        }
    }
}

/// What was decided in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// Places at which somebody else could have gone on.
    pub steps: u64,
    /// Where somebody did who would not have by itself. None: more than can be kept, so the run cannot be repeated.
    pub decisions: Option<Vec<Decision>>,
    /// A number made of all places at which decisions were possible: runs that differ there have another one.
    pub check: u64,
    /// Decisions that were to be repeated and never came up.
    pub left: usize,
    /// All threads came to wait for each other: see [`EventKind::Stuck`](brownout_trace::event::EventKind::Stuck).
    pub is_deadlock: bool,
}

//! Runs in which one thread goes on at a time: what is decided beforehand, and what came of it.

use std::fmt;

pub use brownout_abi::schedule::{
    Decision, Goal, Kind as StrategyKind, Plan, Point as SchedulePoint,
    PointKind as SchedulePointKind, Pursuit, Turn, decode as decode_decisions,
    encode as encode_decisions,
};

/// Who goes on in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The strategy, and what it needs.
    pub plan: Plan,
    /// With [`StrategyKind::Replay`]: what was decided in the run that is repeated. With
    /// [`StrategyKind::Steer`]: what is to be decided.
    pub decisions: Vec<Decision>,
    /// With [`StrategyKind::Replay`]: [`Scheduled::check`] of the run that is repeated, if it is
    /// known; see [`Scheduled::misfit`].
    pub check: Option<u64>,
}

/// How a run differs from the one that it was to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// It ended before so many decisions came up.
    Short(usize),
    /// All decisions came up, and then it went another way.
    Otherwise,
    /// This decision, of so many, was to be made where it could not.
    Elsewhere(usize, usize),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the schedule belongs to another run: ")?;
        match self {
            Misfit::Short(1) => write!(f, "this one ended before the last decision")?,
            Misfit::Short(left) => write!(f, "this one ended before the last {left} decisions")?,
            Misfit::Otherwise => write!(f, "after its last decision this one does something else")?,
            Misfit::Elsewhere(at, of) => {
                write!(f, "at decision {at} of {of} this one does something else")?;
            }
        }
        write!(
            f,
            " (another program, other arguments, input or files, or a program that depends on real time; \
             to make a new one, give --schedule a strategy and a seed)"
        )
    }
}

impl Schedule {
    /// By a strategy.
    pub fn new(kind: StrategyKind, seed: u64) -> Schedule {
        Schedule {
            plan: Plan::new(kind, seed),
            decisions: Vec::new(),
            check: None,
        }
    }

    /// As in the run with these decisions.
    pub fn repeat(decisions: Vec<Decision>) -> Schedule {
        Schedule {
            plan: Plan::new(StrategyKind::Replay, 0),
            decisions,
            check: None,
        }
    }

    /// As in that run, which must be the same to its end.
    pub fn repeat_exactly(decisions: Vec<Decision>, check: u64) -> Schedule {
        Schedule {
            check: Some(check),
            ..Schedule::repeat(decisions)
        }
    }

    /// With these decisions, in the order of their steps, where they can be followed: at that step,
    /// that thread gets the turn if it can go on. Everywhere else, and after the last of them,
    /// whoever has the turn goes on. Their check numbers do not count. The run reports its own
    /// list, as every run does, and that is the one to be repeated.
    pub fn steer(decisions: Vec<Decision>) -> Schedule {
        Schedule {
            plan: Plan::new(StrategyKind::Steer, 0),
            decisions,
            check: None,
        }
    }

    /// With [`Scheduled::turns`].
    pub fn keeping_turns(self) -> Schedule {
        Schedule {
            plan: self.plan.keeping_turns(),
            ..self
        }
    }
}

/// What was decided in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// Places at which somebody else could have gone on.
    pub steps: u64,
    /// Where somebody did who would not have by itself.
    pub decisions: Vec<Decision>,
    /// A number made of all places at which decisions were possible: runs that differ there have
    /// another one.
    pub check: u64,
    /// Decisions that were to be repeated and never came up.
    pub left: usize,
    /// How often something was stored, written back or fenced while the store buffer of another
    /// thread's processor may still have held such a thing. If never, what reaches persistent
    /// memory does so in the recorded order, whatever is delayed.
    pub overlaps: u64,
    /// The first few thousand steps, if [`Schedule::keeping_turns`] asked for them.
    pub turns: Vec<Turn>,
    /// What became of the goals of a schedule that was directed at some.
    pub pursuit: Pursuit,
    /// The most threads that there were at a time. One: there was nothing to decide.
    pub threads: u32,
    /// All threads came to wait for each other: see
    /// [`EventKind::Stuck`](brownout_trace::event::EventKind::Stuck).
    pub is_deadlock: bool,
}

impl Scheduled {
    /// How this run differs from the one that `schedule` repeats, as far as the list tells. (A run
    /// in which a decision comes up at another place ends there, with an error.)
    pub fn misfit(&self, schedule: &Schedule) -> Option<Misfit> {
        if schedule.plan.kind() != StrategyKind::Replay {
            return None;
        }
        match schedule.check {
            _ if self.left > 0 => Some(Misfit::Short(self.left)),
            Some(check) if check != self.check => Some(Misfit::Otherwise),
            _ => None,
        }
    }
}

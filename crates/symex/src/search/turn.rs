//! Decisions that may be turned, the ways that they may go, and how these are told apart.

use std::cmp::Reverse;

use crate::path::{Decision, Kind, mix};

/// What was done so often was not done more often in a way that matters.
const TIMES_MAX: u8 = 6;
/// In how much detail ways are told apart.
pub(super) const DETAILS: usize = 8;

/// A decision to turn: the larger, the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) novelty: u8,
    /// The path that it is on does not take much longer than others.
    pub(super) is_cheap: bool,
    pub(super) few_tries: Reverse<u32>,
    /// How much is done to persistent memory behind it.
    pub(super) reach: u8,
    pub(super) early: Reverse<u32>,
    pub(super) order: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) rank: Rank,
    pub(super) test: u32,
    pub(super) at: u32,
    /// Of a position, which other one.
    pub(super) place: u32,
}

impl Turn {
    /// What tells it apart from others of its path.
    pub(super) fn key(&self) -> (u32, u32) {
        (self.at, self.place)
    }
}

impl Rank {
    /// As new as nothing, and in the order of its number.
    pub(super) fn numbered(order: u64) -> Rank {
        Rank {
            novelty: 0,
            is_cheap: true,
            few_tries: Reverse(0),
            reach: 0,
            early: Reverse(0),
            order,
        }
    }

    /// The same for those who do not mind which bytes it depends on.
    pub(super) fn anywhere(self) -> Rank {
        Rank {
            early: Reverse(0),
            ..self
        }
    }
}

/// Behind which decisions the one at `at` stands, in ever more detail: behind nothing; with that
/// shape; for the nth time since persistent memory was changed; behind these fences of persistent
/// memory; there for the nth time; and there behind the last one, three and eight decisions.
pub(super) fn setting(decisions: &[Decision], at: usize, time: u8) -> [u64; DETAILS] {
    let Decision { shape, pm, .. } = decisions[at];
    let there = mix(77, pm.which);
    let last = |count: usize| {
        let behind = &decisions[at.saturating_sub(count)..at];
        let names = behind.iter().map(Decision::name);
        names.fold(mix(there, count as u64), mix)
    };
    let time = u64::from(time.min(TIMES_MAX));
    [
        0,
        mix(80, shape),
        mix(79, time),
        there,
        mix(mix(there, 78), time),
        last(1),
        last(3),
        last(8),
    ]
}

/// A way that a decision may go, in such a setting.
pub(super) fn ways(name: u64, setting: &[u64; DETAILS]) -> [u64; DETAILS] {
    setting.map(|setting| mix(name, setting))
}

/// The way that a decision did not go. Of a jump, all others are one; of a position, `place` says
/// which.
pub(super) fn other_way(decision: &Decision, place: u32) -> u64 {
    let way = match decision.kind {
        Kind::Branch => 1 - (decision.way & 1),
        Kind::Position { .. } => place.into(),
        _ => return mix(decision.place(), 1),
    };
    Decision { way, ..*decision }.name()
}

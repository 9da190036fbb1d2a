//! Which decision is turned next: the order of what waits. What comes first, and why, says `search`.

use std::cmp::Reverse;

use super::Search;
use crate::options::Strategy;
use crate::path::{Decision, Kind, mix};

/// What was done so often was not done more often in a way that matters.
const TIMES_MAX: u64 = 6;
/// A way that could not be solved for so often is not tried first any more.
const VAIN_MAX: u32 = 1000;
/// In how much detail ways are told apart.
pub(super) const DETAILS: usize = 8;
/// Places are told apart from this detail on.
const PLACES: usize = 3;
/// How new what may lead to a way is that no run has gone: less than that way, more than all else.
const LEADS: u8 = 2 * DETAILS as u8 - 1;
/// How new what the program itself decides is, on a path that is new: less than what leads somewhere, and than what has another shape.
const OWN: u8 = 2 * DETAILS as u8 - 3;
/// Of 256 decisions to turn, so many are taken wherever they are in the input.
const ANY_OF_256: u8 = 64;

/// A decision to turn: the larger, the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) novelty: u8,
    pub(super) few_tries: Reverse<u32>,
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
    pub(super) fn key(&self) -> (u32, u32, u32) {
        (self.test, self.at, self.place)
    }
}

impl Rank {
    /// The same for those who do not mind which bytes it depends on.
    pub(super) fn anywhere(self) -> Rank {
        Rank {
            early: Reverse(0),
            ..self
        }
    }
}

impl Search<'_> {
    /// The next decision to turn: most of the time one that depends on early bytes, now and then any of those that are as new.
    pub(super) fn next(&mut self) -> Option<Turn> {
        loop {
            let any = self.random.u8(..) < ANY_OF_256;
            let queue = match any {
                true => &mut self.any,
                false => &mut self.queue,
            };
            let turn = queue.pop()?;
            if !self.open.contains(&turn.key()) {
                continue;
            }
            let rank = self.rank(turn.test, turn.at, turn.place, turn.rank.order);
            let rank = match any {
                true => rank.anywhere(),
                false => rank,
            };
            // What was new when it was put there may not be any more.
            if rank < turn.rank {
                let queue = match any {
                    true => &mut self.any,
                    false => &mut self.queue,
                };
                queue.push(Turn { rank, ..turn });
                continue;
            }
            self.open.remove(&turn.key());
            return Some(turn);
        }
    }

    pub(super) fn push(&mut self, turn: Turn) {
        if self.open.insert(turn.key()) {
            self.queue.push(turn);
            self.any.push(Turn {
                rank: turn.rank.anywhere(),
                ..turn
            });
        }
    }

    pub(super) fn rank(&self, number: u32, at: u32, place: u32, order: u64) -> Rank {
        let test = &self.tests[number as usize];
        let decision = &test.decisions[at as usize];
        let others = ways(other_way(decision, place), &test.settings[at as usize]);
        let tries = |way: &u64| self.tries.get(way).copied().unwrap_or(0);
        // What could not be solved a few times is no news.
        let is_new = |way: &u64| !self.covered.contains(way) && tries(way) < VAIN_MAX;
        let detail = match decision.kind {
            Kind::Branch => others.iter().position(is_new),
            // Somewhere else is by far not as new as the other way of a branch: there are as many places as bytes.
            Kind::Position { .. } => (PLACES..DETAILS).find(|n| is_new(&others[*n])),
            // Where else it may go is not known.
            _ => (1..DETAILS).find(|n| tries(&others[*n]) == 0),
        };
        let mut novelty = detail.map_or(0, |n| 2 * (DETAILS - n) as u8);
        // What nobody has gone is tried at once, with each shape, and in the program itself once more; then it waits for what may lead there.
        if detail == Some(0) {
            let at_once = match self.own.contains(decision.pc) {
                true => 2,
                false => 1,
            };
            if tries(&others[1]) >= at_once {
                novelty -= 2;
            }
        }
        // A place is about as far behind the first that was searched.
        let early = match decision.kind {
            Kind::Position { is_lowest: true } => decision.bytes.0.saturating_add(place),
            _ => decision.last_byte(),
        };
        // Next to what is quite new comes what may lead there, from where one has come closest.
        if let Some(index) = self.towards.get(&(number, at, place))
            && novelty < LEADS
        {
            return Rank {
                novelty: LEADS,
                few_tries: Reverse(0),
                early: Reverse(0),
                order: u64::from(number) << 32 | u64::from(u32::MAX - index),
            };
        }
        if self.owned.contains(&(number, at, place)) && novelty < OWN {
            return Rank {
                novelty: OWN,
                few_tries: Reverse(0),
                early: Reverse(early),
                order: number.into(),
            };
        }
        let tries = tries(&others[detail.unwrap_or(0)]);
        match self.options.strategy {
            Strategy::Pm | Strategy::Coverage => Rank {
                novelty,
                few_tries: Reverse(tries),
                early: Reverse(early),
                order,
            },
            Strategy::DepthFirst | Strategy::Random => Rank {
                novelty: 0,
                few_tries: Reverse(0),
                early: Reverse(0),
                order,
            },
        }
    }
}

/// Behind which decisions a decision stands, in ever more detail: behind nothing; with that shape; for the nth time since persistent memory was changed; behind these fences of persistent memory; there for the nth
/// time; and there behind the last one, three and eight decisions.
pub(super) fn setting(behind: &[u64], shape: u64, time: u64, pm: u64) -> [u64; DETAILS] {
    let there = mix(77, pm);
    let last = |count: usize| {
        let from = behind.len().saturating_sub(count);
        behind[from..]
            .iter()
            .fold(mix(there, count as u64), |all, name| mix(all, *name))
    };
    let time = time.min(TIMES_MAX);
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

/// The way that a decision did not go. Of a jump, all others are one; of a position, `place` says which.
pub(super) fn other_way(decision: &Decision, place: u32) -> u64 {
    let way = match decision.kind {
        Kind::Branch => 1 - (decision.way & 1),
        Kind::Position { .. } => place.into(),
        _ => return mix(decision.place(), 1),
    };
    Decision { way, ..*decision }.name()
}

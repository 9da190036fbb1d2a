//! Which decision is turned next: the order of what waits. What comes first, and why, says `search`.

use std::cmp::Reverse;

use super::Search;
use super::levels::LEADS;
use super::turn::{DETAILS, Rank, Turn, other_way, ways};
use crate::options::Strategy;
use crate::path::Kind;

/// A way that could not be solved for so often is not tried first any more.
const VAIN_MAX: u32 = 1000;
/// Places are told apart from this detail on.
const PLACES: usize = 3;
/// How new what the program itself decides is, on a path that is new: less than what leads somewhere, and than what has another shape.
const OWN: u8 = 2 * DETAILS as u8 - 3;
/// Of 256 decisions to turn, so many are taken wherever they are in the input.
const ANY_OF_256: u8 = 64;

impl Search<'_> {
    /// The next decision to turn: most of the time one that depends on early bytes, now and then any of those that are as new.
    pub(super) fn next(&mut self) -> Option<Turn> {
        loop {
            let any = self.random.u8(..) < ANY_OF_256;
            let queue = match any {
                true => &mut self.any,
                false => &mut self.queue,
            };
            let turn = queue.pop(&mut self.random)?;
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
            self.turned.insert(turn.key());
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

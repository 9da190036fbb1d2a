//! How new what a decision leads to is. What comes first, and why, says `search`.

use std::cmp::Reverse;

use super::super::levels::LEADS;
use super::super::strategy::Known;
use super::super::turn::{DETAILS, Rank, Turn, other_way, ways};
use crate::path::Kind;

/// A way that could not be solved for so often is not tried first any more.
const VAIN_MAX: u32 = 1000;
/// Places are told apart from this detail on.
const PLACES: usize = 3;
/// How new what the program itself decides is, on a path that is new: less than what leads
/// somewhere, and than what has another shape.
const OWN: u8 = 2 * DETAILS as u8 - 3;

/// See `Order::rank`.
pub(super) fn rank(known: &Known<'_>, turn: &Turn) -> Rank {
    let test = &known.tests[turn.test as usize];
    let decision = &test.decisions[turn.at as usize];
    let setting = test.setting(turn.at as usize);
    let other = other_way(decision, turn.place);
    let others = ways(other, &setting);
    let tries = |way: &u64| known.tries.get(way).copied().unwrap_or(0);
    // What could not be solved a few times is no news.
    let is_new = |way: &u64| !known.covered.contains(way) && tries(way) < VAIN_MAX;
    let detail = match decision.kind {
        Kind::Branch => others.iter().position(is_new),
        // A word that is equal up to here is as good as a branch.
        Kind::Position { .. } if test.narrow.contains(&(turn.at, turn.place)) => {
            (1..DETAILS).find(|n| is_new(&others[*n]))
        }
        // Somewhere else is by far not as new as the other way of a branch: there are as many
        // places as bytes.
        Kind::Position { .. } => (PLACES..DETAILS).find(|n| is_new(&others[*n])),
        // Where else it may go is not known.
        _ => (1..DETAILS).find(|n| tries(&others[*n]) == 0),
    };
    let mut novelty = detail.map_or(0, |n| 2 * (DETAILS - n) as u8);
    // What nobody has gone is tried at once, with each shape, and in the program itself once more;
    // then it waits for what may lead there.
    if detail == Some(0) {
        let at_once = match known.own.contains(decision.pc) {
            true => 2,
            false => 1,
        };
        if tries(&others[1]) >= at_once {
            novelty -= 2;
        }
    }
    // A place is about as far behind the first that was searched.
    let early = match decision.kind {
        Kind::Position { is_lowest: true } => decision.bytes.0.saturating_add(turn.place),
        _ => decision.last_byte(),
    };
    // Next to what is quite new comes what may lead there, from where one has come closest.
    if let Some(index) = test.towards.get(&(turn.at, turn.place))
        && novelty < LEADS
    {
        return Rank {
            novelty: LEADS,
            is_cheap: !test.is_dear,
            few_tries: Reverse(0),
            reach: 0,
            early: Reverse(0),
            order: u64::from(turn.test) << 32 | u64::from(u32::MAX - index),
        };
    }
    if test.owned.contains(&(turn.at, turn.place)) && novelty < OWN {
        return Rank {
            novelty: OWN,
            is_cheap: !test.is_dear,
            few_tries: Reverse(0),
            reach: 0,
            early: Reverse(early),
            order: turn.test.into(),
        };
    }
    Rank {
        novelty,
        is_cheap: !test.is_dear,
        few_tries: Reverse(tries(&others[detail.unwrap_or(0)])),
        reach: (known.reach).map_or(0, |reach| reach.of(decision.place(), other)),
        early: Reverse(early),
        order: turn.rank.order,
    }
}

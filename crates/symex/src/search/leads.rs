//! Decisions that are turned for the sake of another one.

use super::Search;
use super::turn::{Turn, other_way};
use crate::path::{Folded, Kind, mix};

/// So many decisions in front of a way that cannot be gone behind them are turned for its sake, and on so many paths for each
/// shape of what was decided about and each position that is in the way.
const TOWARDS: usize = 8;
const TOWARDS_MAX: u32 = 8;
/// A position is moved by as much as this.
const FURTHER: usize = 2;

/// A way that no run has gone, and that cannot be gone behind the first `at` decisions of a path.
struct Wanted {
    test: u32,
    at: u32,
    way: u64,
    shape: u64,
    /// The first and the last byte that it depends on.
    bytes: (u32, u32),
    /// It was the solver that said so, and it may know why.
    is_solved: bool,
}

impl Search<'_> {
    /// A decision cannot be turned. If nobody has gone the other way, decisions before it are turned that may make it possible.
    pub(super) fn lead_towards(&mut self, turn: Turn) {
        let test = &self.tests[turn.test as usize];
        let decision = test.decisions[turn.at as usize];
        let way = other_way(&decision, turn.place);
        if decision.kind != Kind::Branch || !self.is_wanted(decision.pc, way) {
            return;
        }
        self.lead(&Wanted {
            test: turn.test,
            at: turn.at,
            way,
            shape: decision.shape,
            bytes: decision.bytes,
            is_solved: true,
        });
    }

    /// The same for branches of a new path that did depend on the input, but could not go another way whatever it is: a number of one digit is never 4242.
    pub(super) fn lead_towards_folded(&mut self, test: u32, folded: &[Folded]) {
        for folded in folded {
            let way = folded.name(1 - folded.way);
            if !self.is_wanted(folded.pc, way) {
                continue;
            }
            let inputs = self.pool.inputs(folded.value);
            let bytes = (inputs.first().copied(), inputs.last().copied());
            let (Some(first), Some(last)) = bytes else {
                continue;
            };
            self.lead(&Wanted {
                test,
                at: folded.at,
                way,
                shape: self.pool.shape(folded.value),
                bytes: (first, last),
                is_solved: false,
            });
        }
    }

    /// Whether that is a way of the program's own code that no run has gone.
    fn is_wanted(&self, pc: u64, way: u64) -> bool {
        !self.covered.contains(&mix(way, 0)) && self.own.contains(pc)
    }

    /// Those decisions are turned next that rule a way out; and those that are about the same bytes, or about
    /// later ones, because they have made what was decided about: how many digits a number has, where a word ends.
    fn lead(&mut self, wanted: &Wanted) {
        let (first, last) = wanted.bytes;
        let test = &self.tests[wanted.test as usize];
        let before = test.decisions[..wanted.at as usize].iter();
        let before = before.enumerate().rev();
        let why = match wanted.is_solved {
            true => self.solver.why_at(),
            false => Vec::new(),
        };
        let against = before.clone().filter(|(at, _)| why.contains(at));
        // As far as words were equal, it is the same that is in the way.
        let places = against.clone().filter(|(_, d)| d.kind.is_position());
        let key = mix(wanted.way, wanted.shape);
        let key = places.fold(key, |key, (_, d)| mix(key, d.name()));
        let times = self.led.entry(key).or_default();
        if *times >= TOWARDS_MAX {
            return;
        }
        *times += 1;
        // What ends a number or a word is behind it, and may have been looked at long before the number was made.
        let behind = last + 1..=last + 2;
        let ends = before
            .clone()
            .filter(|(_, d)| behind.contains(&d.last_byte()));
        let near = before.filter(|(_, d)| d.last_byte() >= first);
        let near = ends
            .take(TOWARDS)
            .chain(against.take(TOWARDS))
            .chain(near.take(TOWARDS / 2));
        // Where something was found is moved a little further; everything else is turned first.
        let mut turns: Vec<(u32, u32)> = Vec::new();
        let mut moves: Vec<(u32, u32)> = Vec::new();
        for (at, d) in near {
            match d.kind {
                Kind::Position { .. } => {
                    let further = (d.way as u32 + 1..).take(FURTHER);
                    moves.extend(further.map(|place| (at as u32, place)));
                }
                _ => turns.push((at as u32, 0)),
            }
        }
        turns.extend(moves);
        for (index, (at, place)) in turns.into_iter().enumerate() {
            let key = (wanted.test, at, place);
            if self.open.contains(&key) && !self.towards.contains_key(&key) {
                self.towards.insert(key, index as u32);
                let rank = self.rank(wanted.test, at, place, self.tests.len() as u64);
                let turn = Turn {
                    rank,
                    test: wanted.test,
                    at,
                    place,
                };
                self.queue.push(turn);
                self.any.push(Turn {
                    rank: rank.anywhere(),
                    ..turn
                });
            }
        }
    }
}

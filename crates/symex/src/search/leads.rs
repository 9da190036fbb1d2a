//! Decisions that are turned for the sake of another one.

use std::time::Instant;

use brownout_solve::{Answer, Expr};

use super::Search;
use super::pieces::{changed, with_room};
use super::turn::{Turn, other_way};
use crate::path::{Folded, Kind, mix};

/// So many decisions in front of a way that cannot be gone behind them are turned for its sake, and
/// on so many paths for each shape of what was decided about and each position that is in the way.
const TOWARDS: usize = 8;
const TOWARDS_MAX: u32 = 8;
/// So many decisions in front of something new in persistent memory are turned for its sake.
const AROUND: u32 = 12;
/// A position is moved by as much as this.
const FURTHER: usize = 2;

/// Of each computation, a way is wanted so often with another layout of the input, or without what
/// rules it out.
const ASKED_MAX: u32 = 3;
/// What is longer does not grow.
const GROWN_MAX: usize = 8;
/// So often what rules a way out is left out, each time more of it.
const RELAXED_MAX: usize = 12;

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
    /// It is what ends most programs.
    is_fault: bool,
}

impl Search<'_> {
    /// A decision cannot be turned. If nobody has gone the other way, decisions before it are
    /// turned that may make it possible.
    pub(super) fn lead_towards(&mut self, turn: Turn) {
        let test = &self.tests[turn.test as usize];
        let decision = test.decisions[turn.at as usize];
        let way = other_way(&decision, turn.place);
        let may_be_wanted = matches!(decision.kind, Kind::Branch | Kind::Fault(_));
        if !may_be_wanted || !self.is_wanted(decision.pc, way) {
            return;
        }
        let wanted = Wanted {
            test: turn.test,
            at: turn.at,
            way,
            shape: decision.shape,
            bytes: decision.bytes,
            is_solved: true,
            is_fault: matches!(decision.kind, Kind::Fault(_)),
        };
        self.lead(&wanted);
        if self.is_worth_asking(&wanted) {
            self.grow(&wanted);
            self.relax(&wanted, decision.condition);
        }
    }

    /// Whether the same was not wanted often enough, of the same computation.
    fn is_worth_asking(&mut self, wanted: &Wanted) -> bool {
        let key = mix(mix(wanted.way, wanted.shape), u64::from(wanted.is_solved));
        let times = self.asked.entry(key).or_default();
        *times += 1;
        *times <= ASKED_MAX
    }

    /// Inputs in which what is decided about is longer: a number of one digit is never 4242, and
    /// which decisions have ended it may be hard to tell, or be somebody else's. So its last byte
    /// is there more often, whatever that makes of all behind it.
    fn grow(&mut self, wanted: &Wanted) {
        let (first, last) = wanted.bytes;
        let len = (last - first) as usize + 1;
        let input = self.tests[wanted.test as usize].input.clone();
        let Some(byte) = input.get(last as usize) else {
            return;
        };
        if len > GROWN_MAX || self.has_places() {
            return;
        }
        let mut longer = vec![1, len, 3 * len];
        longer.dedup();
        for more in longer {
            let grown = with_room(
                &input,
                &self.options.first,
                last as usize + 1,
                &vec![*byte; more],
            );
            self.make(grown, None, true);
        }
    }

    /// An input on which the way would be gone, if decisions before it that rule it out did not
    /// matter: much of what libraries decide (whether a digit is a large one) makes no difference
    /// to what they compute. Whether it is so is seen when it is run.
    fn relax(&mut self, wanted: &Wanted, condition: Expr) {
        let test = &self.tests[wanted.test as usize];
        let input = test.input.clone();
        let decisions = &test.decisions[..wanted.at as usize];
        let mut path: Vec<Expr> = decisions.iter().map(|d| d.condition).collect();
        let goal = self.pool.not(condition);
        for _ in 0..RELAXED_MAX {
            let against = self.solver.why_at();
            if against.is_empty() {
                return;
            }
            let mut at = 0;
            path.retain(|_| {
                at += 1;
                !against.contains(&(at - 1))
            });
            let begun = Instant::now();
            let answer = self.solver.solve(&mut self.pool, &path, goal, &input);
            self.numbers.solving_seconds += begun.elapsed().as_secs_f64();
            match answer {
                Answer::Sat(changes) => {
                    let made = changed(&input, &changes);
                    self.make(made, Some(false), true);
                    return;
                }
                Answer::Unsat => {}
                Answer::Unknown(_) => return,
            }
        }
    }

    /// The same for branches of a new path that did depend on the input, but could not go another
    /// way whatever it is: a number of one digit is never 4242.
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
            let wanted = Wanted {
                test,
                at: folded.at,
                way,
                shape: self.pool.shape(folded.value),
                bytes: (first, last),
                is_solved: false,
                is_fault: false,
            };
            self.lead(&wanted);
            if self.is_worth_asking(&wanted) {
                self.grow(&wanted);
            }
        }
    }

    /// Whether that is a way of the program's own code that no run has gone.
    fn is_wanted(&self, pc: u64, way: u64) -> bool {
        !self.covered.contains(&mix(way, 0)) && self.own.contains(pc)
    }

    /// Those decisions are turned next that rule a way out; and those that are about the same
    /// bytes, or about later ones, because they have made what was decided about: how many digits a
    /// number has, where a word ends.
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
        if self
            .led
            .get(&key)
            .is_some_and(|times| *times >= TOWARDS_MAX)
        {
            return;
        }
        // What ends a number or a word is behind it, and may have been looked at long before the
        // number was made.
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
                // What ends the program leads nowhere; and what may go many ways would be turned to
                // each of them before what may fault here is looked at elsewhere.
                Kind::Fault(_) => {}
                Kind::Taken | Kind::Jump if wanted.is_fault => {}
                _ => turns.push((at as u32, 0)),
            }
        }
        turns.extend(moves);
        if self.turn_soon(wanted.test, turns) {
            *self.led.entry(key).or_default() += 1;
        }
    }

    /// The newest path has done something new to persistent memory, or has gone a new way of the
    /// program's own code, behind so many decisions each time. The last decisions before it have
    /// made what was stored, or have led there.
    pub(super) fn look_around(&mut self, mut new: Vec<u32>) {
        let Some(test) = self.tests.len().checked_sub(1) else {
            return;
        };
        new.sort_unstable();
        new.dedup();
        let mut turns = Vec::new();
        for behind in new {
            let from = behind.saturating_sub(AROUND);
            for at in (from..behind).rev() {
                let decision = &self.tests[test].decisions[at as usize];
                let place = match decision.kind {
                    Kind::Position { .. } => decision.way as u32 + 1,
                    Kind::Branch => 0,
                    _ => continue,
                };
                turns.push((at, place));
            }
        }
        self.turn_soon(test as u32, turns);
    }

    /// These decisions of a path are turned next. Whether there are any among them that were not.
    fn turn_soon(&mut self, test: u32, turns: Vec<(u32, u32)>) -> bool {
        let mut any = false;
        for (index, (at, place)) in turns.into_iter().enumerate() {
            let key = (at, place);
            let path = &mut self.tests[test as usize];
            // That the same was, or will be, turned on another path does not matter: there it led
            // elsewhere.
            if path.turned.contains(&key) || path.towards.contains_key(&key) {
                continue;
            }
            any = true;
            path.towards.insert(key, index as u32);
            self.waiting += u64::from(path.open.insert(key));
            self.put(self.turn(test, at, place, self.tests.len() as u64));
        }
        any
    }
}

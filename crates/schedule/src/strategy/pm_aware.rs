//! Has a thread read what another one has stored and not yet persisted.
//!
//! Goals say which store and which load are to meet. A thread that is about to make such a load is
//! held back until another one has made the store; then it goes on at once, before the store can be
//! written back. Without goals every store to persistent memory is one: whoever stores is held back
//! at its next points for a while, so that others come to see what it has stored.
//!
//! The first run that pursues goals holds everybody who comes to one. Those after it would be the
//! same run, so they leave out some, and draw who goes on meanwhile: which of several threads comes
//! to read, and which of several stores it reads, may make the difference.
//!
//! A way out: nobody is held for more than [`HOLD_MAX`] points of others, and nobody if nobody else
//! can go on. Whoever is held behind a store may have a lock that the others need. Then it goes on
//! point by point, and is still held, until one of them can go on: so it does not come from there
//! to where it writes back what it has stored. The same if all others look at a word again and
//! again, as those do who wait for a spin lock.
//!
//! Who has read what is to be read early goes before others as long as it is early, because what it
//! makes of it counts only until then; but not in each run, because others may have a hand in that.
//!
//! What becomes of the stores that are goals is told ([`Pursuit`]): a thread that waits for whoever
//! has stored, and has read there before, is kept out by the program itself.
//!
//! Source: PMRace (ASPLOS 2022), section 4.2, which lets readers sleep until a store has happened,
//! and disables a waiting place that never succeeds. Here nobody sleeps, and what is decided can be
//! repeated.

use super::choice::{Choice, Goal, Plan, Random, Strategy};
use crate::seat::{PointKind, SEATS, SeatState};

/// Points of others for which a thread is held back.
const HOLD_MAX: u32 = 400;
/// Of those whom it is held for, and of those who spin, one point in so many counts.
const COUNTS_ONE_IN: u32 = 8;
/// A thread that has given way, and gives way again within so many of its points, spins.
const SPINS_WITHIN: u8 = 8;
/// In `PmAware::chases`: it is preferred no more.
const HAS_CHASED: u16 = 1 << 15;
/// Whoever has given way so often without doing anything waits for somebody.
const ROUNDS_MIN: u8 = 3;
/// Whoever has read early, and spins, gets one step in so many.
const LOOKS_ONE_IN: u64 = 8;
/// One store in so many is a reason to hold, where no goal says which.
const ONE_IN: u64 = 3;
/// Where goals were pursued before, one store in so many that is one, and one load, is no reason.
const LEFT_OUT_ONE_IN: u64 = 3;
/// Points of others for which a thread that has stored is held back, without goals.
const AFTER_STORE: u64 = 40;

/// What became of a run's goals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Pursuit {
    /// Stores that are goals, behind which a thread was held.
    pub stores: u32,
    /// Of those: nobody else could go on, and a thread that has made the load before was waiting.
    /// The program keeps the two apart.
    pub excluded: u32,
    /// Of those: others could go on, and did for as long as anybody is held; what they did is
    /// another matter.
    pub outlasted: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct PmAware {
    pursuit: Pursuit,
    /// By seat: it has come to a load that is a goal.
    reads: [u8; SEATS],
    /// By seat: it is held behind a store that is a goal, and what becomes of it is not known yet.
    pursues: [u8; SEATS],
    /// By seat: points for which it is still held.
    held: [u32; SEATS],
    /// By seat: it has been held at its load, and is not again.
    was_held: [u8; SEATS],
    /// The last point of each seat was a store that is a goal.
    stored: [u8; SEATS],
    /// By seat: it is held behind a store that is a goal, and where that has stored.
    wrote: [u8; SEATS],
    place: [u64; SEATS],
    /// By seat: the seat whose store it has read early, plus one, with [`HAS_CHASED`] once it has
    /// come to such a load again. It counts as long as that one is held.
    chases: [u16; SEATS],
    /// By seat: its points since it has given way, plus one; 0: it does not spin.
    spun: [u8; SEATS],
    /// By seat: how often it has given way since it did anything else but look at words.
    rounds: [u8; SEATS],
    /// Points of which one in [`COUNTS_ONE_IN`] counts.
    passed: u32,
    /// The last seat that went on though it is held, because all others spin.
    stepped: u32,
}

impl Default for PmAware {
    fn default() -> PmAware {
        PmAware {
            pursuit: Pursuit::default(),
            reads: [0; SEATS],
            pursues: [0; SEATS],
            held: [0; SEATS],
            was_held: [0; SEATS],
            stored: [0; SEATS],
            wrote: [0; SEATS],
            place: [0; SEATS],
            chases: [0; SEATS],
            spun: [0; SEATS],
            rounds: [0; SEATS],
            passed: 0,
            stepped: 0,
        }
    }
}

impl Strategy for PmAware {
    fn choose(&mut self, plan: &Plan, choice: &Choice<'_>, random: &mut Random) -> usize {
        let goals = &plan.goals[..(plan.goal_count as usize).min(plan.goals.len())];
        let varies = !goals.is_empty() && plan.depth > 0;
        self.pass(choice);
        if let Some(me) = choice.me {
            let has_stored = core::mem::take(&mut self.stored[me]) != 0;
            if has_stored {
                self.wrote[me] = 1;
                self.forget_chases(me);
                // What it stored is there, and it has not come to write it back.
                if let Some(reader) = self.reader(choice, me, goals) {
                    self.held[reader] = 0;
                    self.held[me] = HOLD_MAX;
                    self.reads_early(plan, choice, reader, random);
                    return reader;
                }
                if goals.is_empty() {
                    self.held[me] = 1 + random.below(AFTER_STORE) as u32;
                } else {
                    self.held[me] = HOLD_MAX;
                    self.pursues[me] = 1;
                    self.pursuit.stores += 1;
                }
            }
            let point = choice.point;
            match point.kind {
                PointKind::Store | PointKind::Rmw => {
                    let is_goal = match goals {
                        [] => random.below(ONE_IN) == 0,
                        goals => {
                            goals.iter().any(|goal| goal.store == point.pc)
                                && !(varies && random.below(LEFT_OUT_ONE_IN) == 0)
                        }
                    };
                    self.stored[me] = is_goal.into();
                    if is_goal {
                        self.place[me] = point.addr;
                    }
                }
                PointKind::Load if goals.iter().any(|goal| goal.load == point.pc) => {
                    self.reads[me] = 1;
                    let is_early = self.reads_early(plan, choice, me, random);
                    if !is_early
                        && core::mem::replace(&mut self.was_held[me], 1) == 0
                        && !(varies && random.below(LEFT_OUT_ONE_IN) == 0)
                    {
                        self.held[me] = HOLD_MAX;
                    }
                }
                _ => {}
            }
        }
        if let Some(held) = self.who_lets_spinners_go_on(choice) {
            self.stepped = held as u32;
            return held;
        }
        if let Some(chaser) = self.chaser(choice) {
            return chaser;
        }
        let is_free = |at: &usize| self.held[*at] == 0;
        if is_free(&choice.usual) {
            return choice.usual;
        }
        if varies {
            let count = choice.able().filter(is_free).count() as u64;
            let drawn = count.checked_sub(1).map(|_| random.below(count) as usize);
            if let Some(free) = drawn.and_then(|n| choice.able().filter(is_free).nth(n)) {
                return free;
            }
        }
        let after = choice.able().filter(is_free).find(|at| *at > choice.usual);
        let free = after.or(choice.able().find(is_free));
        if let Some(free) = free {
            return free;
        }
        // All are held: the one that was held first, unless it waits for another one.
        let waits = |at: usize| self.rounds[at] >= ROUNDS_MIN;
        let first = choice.able().min_by_key(|at| (waits(*at), self.held[*at]));
        let first = first.unwrap_or(choice.usual);
        if self.pursues[first] != 0 && self.has_waiting_reader(choice, first) {
            self.pursues[first] = 0;
            self.pursuit.excluded += 1;
        }
        first
    }

    fn arrives(&mut self, seat: usize, _: &mut Random) {
        self.held[seat] = 0;
        self.was_held[seat] = 0;
        self.stored[seat] = 0;
        self.wrote[seat] = 0;
        self.chases[seat] = 0;
        self.spun[seat] = 0;
        self.rounds[seat] = 0;
        self.reads[seat] = 0;
        self.pursues[seat] = 0;
    }
}

impl PmAware {
    /// What became of the goals so far.
    pub fn pursuit(&self) -> Pursuit {
        self.pursuit
    }

    /// Whoever has the turn has come to its next point: that counts for those who are held, unless
    /// it is one of them.
    fn pass(&mut self, choice: &Choice<'_>) {
        let me = choice.me;
        let mut is_slow = false;
        if let Some(me) = me {
            self.notes_spinning(me, choice.point.kind);
            is_slow = self.spins(me) || self.is_chasing(me);
        }
        if is_slow {
            self.passed = self.passed.wrapping_add(1);
            if !self.passed.is_multiple_of(COUNTS_ONE_IN) {
                return;
            }
        }
        for at in choice.able() {
            if Some(at) == me {
                continue;
            }
            self.held[at] = self.held[at].saturating_sub(1);
            if self.held[at] != 0 {
                continue;
            }
            self.wrote[at] = 0;
            if core::mem::take(&mut self.pursues[at]) != 0 {
                self.pursuit.outlasted += 1;
            }
        }
    }

    fn notes_spinning(&mut self, me: usize, kind: PointKind) {
        let (spun, rounds) = (&mut self.spun[me], &mut self.rounds[me]);
        *spun = match kind {
            PointKind::Yield | PointKind::Spin => {
                *rounds = rounds.saturating_add(1);
                1
            }
            PointKind::Load | PointKind::Rmw | PointKind::Locked if *spun != 0 => *spun + 1,
            // It does something.
            _ => 0,
        };
        if *spun == 0 || *spun > SPINS_WITHIN {
            (*spun, *rounds) = (0, 0);
        }
    }

    /// Whether it has given way a moment ago, and has only looked at words since.
    fn spins(&self, at: usize) -> bool {
        self.spun[at] != 0
    }

    /// Somebody who is held, if all who are not held spin and go on spinning: they may wait for it.
    /// Those who are held take turns.
    fn who_lets_spinners_go_on(&self, choice: &Choice<'_>) -> Option<usize> {
        let me = choice.me.filter(|_| choice.point.kind.gives_way())?;
        let is_held = |at: &usize| self.held[*at] != 0;
        let waits = |at: usize| is_held(&at) || self.rounds[at] >= ROUNDS_MIN;
        if is_held(&me) || !choice.able().all(waits) {
            return None;
        }
        let last = self.stepped as usize;
        let next = choice.able().filter(is_held).find(|at| *at > last);
        next.or_else(|| choice.able().find(is_held))
    }

    /// A thread is about to read: whether that is what somebody has stored who is held for it. From
    /// then on it is preferred, until it comes to such a load again: then it has done what it was
    /// to do, and others may make something of that. (Only in runs that pursue the same goals once
    /// more, and these draw it: others may have to go first.)
    fn reads_early(
        &mut self,
        plan: &Plan,
        choice: &Choice<'_>,
        reader: usize,
        random: &mut Random,
    ) -> bool {
        let load = choice.seats[reader].point;
        let end = load.addr.wrapping_add(u64::from(load.size.max(1)));
        let is_it = |at: &usize| {
            let place = self.place[*at];
            let meets = place < end && load.addr < place.wrapping_add(8);
            *at != reader && self.wrote[*at] != 0 && meets
        };
        let Some(writer) = (0..SEATS).find(is_it) else {
            return false;
        };
        let known = self.chases[reader];
        if known & !HAS_CHASED == writer as u16 + 1 {
            self.chases[reader] |= HAS_CHASED;
            return false;
        }
        let is_preferred = plan.depth > 0 && random.below(2) == 0;
        if is_preferred {
            self.chases[reader] = writer as u16 + 1;
        }
        is_preferred
    }

    /// Who has stored there has stored again: that is to be read, too.
    fn forget_chases(&mut self, writer: usize) {
        for chase in &mut self.chases {
            if *chase & !HAS_CHASED == writer as u16 + 1 {
                *chase = 0;
            }
        }
    }

    /// Whether it has read what another one has stored who is still held for it.
    fn is_chasing(&self, at: usize) -> bool {
        let chases = self.chases[at];
        let writer = usize::from(chases).checked_sub(1);
        chases & HAS_CHASED == 0 && writer.is_some_and(|writer| self.wrote[writer] != 0)
    }

    /// Somebody who has read early, if there is one who can go on. One that spins only looks again
    /// from time to time.
    fn chaser(&self, choice: &Choice<'_>) -> Option<usize> {
        let may_look = choice.step.is_multiple_of(LOOKS_ONE_IN);
        let is_one = |at: &usize| {
            self.is_chasing(*at) && self.held[*at] == 0 && (may_look || !self.spins(*at))
        };
        match is_one(&choice.usual) {
            true => Some(choice.usual),
            false => choice.able().find(is_one),
        }
    }

    /// Whether somebody waits in the program, and not for time, who has made a load that is a goal.
    fn has_waiting_reader(&self, choice: &Choice<'_>, me: usize) -> bool {
        let readers = choice.seats.iter().enumerate().filter(|(at, _)| {
            *at != me && self.reads[*at] != 0 && !choice.able.contains(&(*at as u16))
        });
        readers
            .into_iter()
            .any(|(_, seat)| matches!(seat.state, SeatState::Futex | SeatState::Retry))
    }

    /// Somebody who stands at a load that is a goal.
    fn reader(&self, choice: &Choice<'_>, me: usize, goals: &[Goal]) -> Option<usize> {
        choice.able().find(|at| {
            let point = choice.seats[*at].point;
            *at != me
                && point.kind == PointKind::Load
                && goals.iter().any(|goal| goal.load == point.pc)
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::seat::{Point, Seat};
    use crate::strategy::Kind;

    /// What a thread of a script does; `Spin` until whoever has the lock has given it back.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Does {
        Comes(PointKind, u64),
        Unlock,
        SpinLock,
    }
    use Does::{Comes, SpinLock, Unlock};

    const WORD: u64 = 0x40;
    const STORE: u64 = 1;
    const LOAD: u64 = 2;
    const EFFECT: u64 = 3;
    const FLUSH: u64 = 4;

    /// Runs threads of which the first has a spin lock, and says in which order they came to what
    /// has a number.
    fn order(seed: u64, scripts: &[Vec<Does>]) -> Vec<u64> {
        let goal = Goal {
            store: STORE,
            load: LOAD,
        };
        let plan = Plan::new(Kind::PmAware, seed).with_goals(&[goal]);
        let plan = plan.pursued_before(1);
        let mut strategy = PmAware::default();
        let mut random = Random(seed);
        let seats: Box<[Seat; SEATS]> = (0..SEATS)
            .map(|_| Seat::default())
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        let mut seats = seats;
        let (mut next, mut looks) = (vec![0; scripts.len()], vec![false; scripts.len()]);
        let (mut is_locked, mut order) = (true, Vec::new());
        let (mut me, mut point, mut step) = (None, Point::default(), 0);
        loop {
            let able: Vec<u16> = (0..scripts.len())
                .filter(|at| next[*at] < scripts[*at].len())
                .map(|at| at as u16)
                .collect();
            let Some(first) = able.first() else {
                return order;
            };
            let own = me.map_or(0, |me: usize| me as u16);
            let usual = match me.is_some() && able.contains(&own) && !point.kind.gives_way() {
                true => own,
                false => *able.iter().find(|at| **at > own).unwrap_or(first),
            };
            step += 1;
            assert!(step < 100_000, "it does not end");
            let choice = Choice {
                me,
                usual: usual.into(),
                point,
                able: &able,
                seats: &seats,
                step,
            };
            let at = strategy.choose(&plan, &choice, &mut random);
            // It does what it has come to, and comes to its next point.
            let done = seats[at].point;
            if done.pc != 0 {
                order.push(done.pc);
            }
            let does = scripts[at][next[at]];
            let (kind, pc) = match does {
                Comes(kind, pc) => (kind, pc),
                Unlock => {
                    is_locked = false;
                    (PointKind::Locked, 0)
                }
                SpinLock if looks[at] && is_locked => (PointKind::Yield, 0),
                SpinLock => (PointKind::Locked, 0),
            };
            let waits = does == SpinLock && is_locked;
            looks[at] = does == SpinLock && !looks[at];
            next[at] += usize::from(!waits);
            point = Point {
                kind,
                size: 8,
                pc,
                addr: WORD,
            };
            seats[at].point = point;
            me = Some(at);
        }
    }

    /// What happens at the end needs a point behind it.
    fn ends(mut script: Vec<Does>) -> Vec<Does> {
        script.extend([Comes(PointKind::Exit, 0); 2]);
        script
    }

    fn long(count: usize) -> Vec<Does> {
        vec![Comes(PointKind::Load, 0); count]
    }

    /// In how many of a hundred runs the effect comes before the write-back.
    fn early(scripts: &[Vec<Does>]) -> usize {
        let orders = (0..100).map(|seed| order(seed, scripts));
        orders.filter(|order| is_early(order)).count()
    }

    fn is_early(order: &[u64]) -> bool {
        let at = |pc| order.iter().position(|known| *known == pc);
        at(STORE) < at(LOAD) && at(LOAD) < at(EFFECT) && at(EFFECT) < at(FLUSH)
    }

    /// It writes back behind the lock, which it has for long after it has stored.
    #[test]
    fn who_spins_reads_early() {
        let writer = [
            vec![Comes(PointKind::Store, STORE)],
            long(2 * HOLD_MAX as usize),
            vec![Unlock, Comes(PointKind::Flush, FLUSH)],
        ];
        let reader = vec![
            SpinLock,
            Comes(PointKind::Load, LOAD),
            Comes(PointKind::Store, EFFECT),
        ];
        let early = early(&[ends(writer.concat()), ends(reader)]);
        assert!(early >= 12, "{early}");
    }

    /// Between what it reads and what it makes of it the reader has much to do, and so have others.
    #[test]
    fn who_has_read_early_gets_to_its_store() {
        let writer = vec![
            Comes(PointKind::Store, STORE),
            Comes(PointKind::Flush, FLUSH),
        ];
        let reader = [
            vec![Comes(PointKind::Load, LOAD)],
            long(2 * HOLD_MAX as usize),
            vec![Comes(PointKind::Yield, 0)],
            vec![Comes(PointKind::Fence, 0)],
            vec![Comes(PointKind::Store, EFFECT)],
        ];
        let other = long(4 * HOLD_MAX as usize);
        let early = early(&[ends(writer), ends(reader.concat()), ends(other)]);
        assert!(early >= 12, "{early}");
    }
}

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
//! A way out: nobody is held for more than [`HOLD_MAX`] points, and nobody if nobody else can go
//! on.
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
        }
    }
}

impl Strategy for PmAware {
    fn choose(&mut self, plan: &Plan, choice: &Choice<'_>, random: &mut Random) -> usize {
        let goals = &plan.goals[..(plan.goal_count as usize).min(plan.goals.len())];
        let varies = !goals.is_empty() && plan.depth > 0;
        for at in choice.able() {
            self.held[at] = self.held[at].saturating_sub(1);
            if self.held[at] == 0 && core::mem::take(&mut self.pursues[at]) != 0 {
                self.pursuit.outlasted += 1;
            }
        }
        if let Some(me) = choice.me {
            let has_stored = core::mem::take(&mut self.stored[me]) != 0;
            if has_stored {
                // What it stored is there, and it has not come to write it back.
                if let Some(reader) = self.reader(choice, me, goals) {
                    self.held[reader] = 0;
                    self.held[me] = HOLD_MAX;
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
                }
                PointKind::Load if goals.iter().any(|goal| goal.load == point.pc) => {
                    self.reads[me] = 1;
                    if core::mem::replace(&mut self.was_held[me], 1) == 0
                        && !(varies && random.below(LEFT_OUT_ONE_IN) == 0)
                    {
                        self.held[me] = HOLD_MAX;
                    }
                }
                _ => {}
            }
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
        // All are held: the one that was held first.
        let first = choice.able().min_by_key(|at| self.held[*at]);
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
        self.reads[seat] = 0;
        self.pursues[seat] = 0;
    }
}

impl PmAware {
    /// What became of the goals so far.
    pub fn pursuit(&self) -> Pursuit {
        self.pursuit
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

    /// Somebody who is held at a load that is a goal.
    fn reader(&self, choice: &Choice<'_>, me: usize, goals: &[Goal]) -> Option<usize> {
        choice.able().find(|at| {
            let point = choice.seats[*at].point;
            *at != me
                && self.held[*at] != 0
                && point.kind == PointKind::Load
                && goals.iter().any(|goal| goal.load == point.pc)
        })
    }
}

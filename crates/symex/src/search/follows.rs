//! Which runs are followed, to learn which instructions touch the input.
//!
//! To follow a run takes as long as dozens of others, and with large libraries much longer. So what
//! makes it worth it is bounded: a run with a branch that is new is followed at once, unless too
//! much of the time has gone into that; of those that are merely elsewhere, one of some dozens is.
//! What is not followed is remembered, and followed when nothing else is left.
//!
//! "Time" is reckoned from what was done, not measured: so a seed leads to the same search on any
//! machine, as far as nothing is ended by a clock (a run that does not end, a question that is too
//! hard for the solver, explorations).

use brownout_host::{CAPTURE_MAX, Outcome, Stopped};
use brownout_stage::Tells;

use std::time::Instant;

use super::{Search, has_new, merge};
use crate::options::Error;
use crate::run::{Learning, sorted};
use crate::stage::Most;

/// Of so many runs one is followed without a branch that is new: as many, so that the same seed
/// does the same on any machine.
const FOLLOWED_EVERY: u64 = 24;
/// So many of the others are kept, to be followed when nothing else is left.
const UNFOLLOWED_MAX: usize = 1000;
/// If that takes more than this share of the time, as with large libraries, there are fewer.
const LEARNING: f64 = 0.4;
/// But so many seconds always go into it: small programs need no more.
const LEARNING_LEAST: f64 = 3.0;

/// What was done. About how long that takes, a machine of 2026 has said.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Runs that were followed, and what all of them have executed.
    followed: u64,
    instructions: u64,
    /// Runs that were captured, and what was evaluated of them.
    captured: u64,
    evaluated: u64,
    queries: u64,
}

impl Done {
    /// Seconds in runs that were followed.
    fn learning(&self) -> f64 {
        const LAUNCH: f64 = 45e-3;
        const INSTRUCTION: f64 = 30e-9;
        LAUNCH * self.followed as f64 + INSTRUCTION * self.instructions as f64
    }

    /// Seconds in all of it.
    fn all(&self) -> f64 {
        const RUN: f64 = 3.5e-3;
        const INSTRUCTION: f64 = 1e-9;
        const EVALUATION: f64 = 1e-6;
        const QUERY: f64 = 0.3e-3;
        // How many a run executes is known of those that were followed.
        let instructions = self.instructions as f64 / self.followed.max(1) as f64;
        self.learning()
            + (RUN + INSTRUCTION * instructions) * self.captured as f64
            + EVALUATION * self.evaluated as f64
            + QUERY * self.queries as f64
    }

    /// Whether there is time to follow another.
    fn may_follow(&self) -> bool {
        self.learning() < LEARNING * self.all() + LEARNING_LEAST
    }
}

impl Search<'_> {
    fn may_follow(&self) -> bool {
        let done = Done {
            followed: self.numbers.learned,
            instructions: self.followed_instructions,
            captured: self.numbers.runs,
            evaluated: self.numbers.evaluated,
            queries: self.solver.statistics().queries,
        };
        done.may_follow()
    }

    /// Follows the run on an input if it has executed code that was not there before, or has done
    /// something with the input that was not captured (`is_suspect`): an instruction of a loop may
    /// touch the input from the second time on. Whether more instructions are captured now.
    pub(super) fn learns(
        &mut self,
        input: &[u8],
        outcome: &Outcome,
        is_suspect: bool,
        is_endless: bool,
    ) -> Result<bool, Error> {
        let Some(edges) = &outcome.edges else {
            return Ok(false);
        };
        if !has_new(&self.learned, edges) && !is_suspect {
            return Ok(false);
        }
        if !self.may_follow() {
            // The branch stays new: the next run that takes it may be followed.
            self.follow_later(input, is_endless);
            return Ok(false);
        }
        merge(&mut self.learned, edges);
        self.follow(input, is_endless)
    }

    /// The same for a run that has executed nothing new, but is elsewhere.
    pub(super) fn follows_now_and_then(
        &mut self,
        input: &[u8],
        is_endless: bool,
    ) -> Result<(), Error> {
        let is_due = self.numbers.paths >= self.followed_at + FOLLOWED_EVERY;
        if !is_due || !self.may_follow() {
            self.follow_later(input, is_endless);
            return Ok(());
        }
        self.followed_at = self.numbers.paths;
        self.follow_and_run(input.to_vec(), is_endless)
    }

    /// The same for one in which something is longer than it was: what was empty, and was looked at
    /// by instructions that had nothing to do with the input, has something to do with it now.
    pub(super) fn follows_longer(&mut self, input: Vec<u8>) -> Result<(), Error> {
        match self.may_follow() {
            true => self.follow_and_run(input, false),
            false => {
                self.follow_later(&input, false);
                Ok(())
            }
        }
    }

    fn follow_later(&mut self, input: &[u8], is_endless: bool) {
        let is_there = (self.unfollowed.back()).is_some_and(|(known, _)| known == input);
        match self.unfollowed.len() < UNFOLLOWED_MAX {
            _ if is_there => {}
            true => self.unfollowed.push_back((input.to_vec(), is_endless)),
            false => self.numbers.unlearned += 1,
        }
    }

    /// Follows one of those that were not. Whether there was any.
    pub(super) fn follows_what_is_left(&mut self) -> Result<bool, Error> {
        let Some((input, is_endless)) = self.unfollowed.pop_front() else {
            return Ok(false);
        };
        self.follow_and_run(input, is_endless)?;
        Ok(true)
    }

    /// Follows the run on an input, and runs it once more if it shows that something was not
    /// captured.
    fn follow_and_run(&mut self, input: Vec<u8>, is_endless: bool) -> Result<(), Error> {
        if self.follow(&input, is_endless)? {
            self.made[0].push_front((input, None));
        }
        Ok(())
    }

    /// Follows the run on an input. Whether more instructions are captured now.
    fn follow(&mut self, input: &[u8], is_endless: bool) -> Result<bool, Error> {
        let begun = Instant::now();
        let mut learning = Learning::new(&self.layout, input);
        let most = Most {
            time: match self.left() {
                Some(left) => left.min(self.patience.of_followed(is_endless)),
                None => self.patience.of_followed(is_endless),
            },
            // Loads are told, too.
            events: self.patience.events().saturating_mul(4),
        };
        let ran = (self.stage).run(input, &Tells::Executed, most, &mut learning)?;
        self.numbers.learning_seconds += begun.elapsed().as_secs_f64();
        self.numbers.learned += 1;
        match ran.outcome.stopped {
            None => self.patience.ended_followed(ran.outcome.wall),
            Some(Stopped::LeftBehind) => {}
            Some(_) => self.numbers.learned_in_part += 1,
        }
        let (executed, given_up) = learning.executed();
        self.numbers.instructions = self.numbers.instructions.max(executed);
        self.followed_instructions += executed;
        self.numbers.given_up += given_up;
        let before = self.touched.len();
        self.touched.extend(learning.touched());
        if self.touched.len() == before {
            return Ok(false);
        }
        let all = sorted(&self.touched);
        self.numbers.not_chosen = all.len().saturating_sub(CAPTURE_MAX) as u64;
        self.chosen = all.into_iter().take(CAPTURE_MAX).collect();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_followed_is_a_share_of_what_is_done() {
        let small = Done {
            followed: 50,
            instructions: 50 * 10_000,
            captured: 100,
            ..Done::default()
        };
        assert!(small.may_follow());
        let large = Done {
            instructions: 50 * 12_000_000,
            ..small
        };
        assert!(!large.may_follow());
        // More of the rest is done meanwhile.
        let mut later = large;
        while !later.may_follow() {
            later.captured += 100;
            assert!(later.captured < 100_000);
        }
        let share = later.learning() / later.all();
        assert!((LEARNING..0.5).contains(&share), "{share}");
    }
}

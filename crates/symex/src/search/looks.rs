//! A closer look at paths that have done something new to persistent memory: what recovery makes of
//! crashes in them.
//!
//! Only as much of the time goes into it as was asked for; what is left when the search ends was
//! not looked at, and the report says so.

use std::time::{Duration, Instant};

use brownout_findings::Limit;

use super::Search;
use crate::options::Error;

/// More inputs do not wait to be looked at.
const WAITING_MAX: usize = 10_000;

impl Search<'_> {
    /// An input that is worth a closer look.
    pub(super) fn look_later(&mut self, input: &[u8]) {
        if self.options.explore_share > 0.0 && self.to_explore.len() < WAITING_MAX {
            self.to_explore.push_back(input.to_vec());
        }
    }

    /// Looks at one, if the share of the time allows it.
    pub(super) fn looks(&mut self) -> Result<(), Error> {
        let elapsed = self.begun.elapsed().as_secs_f64();
        let share = self.options.explore_share / 100.0;
        if self.numbers.exploring_seconds > share * elapsed {
            return Ok(());
        }
        if let Some(input) = self.to_explore.pop_front() {
            let left = self
                .options
                .time
                .map(|time| time.saturating_sub(self.begun.elapsed()));
            self.explore(&input, left)?;
        }
        Ok(())
    }

    /// Has recovery run on what crashes leave of the run on an input.
    pub(crate) fn explore(&mut self, input: &[u8], time: Option<Duration>) -> Result<(), Error> {
        let begun = Instant::now();
        let exploration = self
            .stage
            .explore(self.options, input, time, &self.causes)?;
        self.numbers.exploring_seconds += begun.elapsed().as_secs_f64();
        let Some(exploration) = exploration else {
            self.notes
                .push("nothing was explored: a server that recovers does not end by itself; --recover says what recovers".to_owned());
            self.to_explore.clear();
            return Ok(());
        };
        self.numbers.explored += 1;
        self.numbers.explored_in_part += u64::from(exploration.coverage.has(Limit::Time));
        self.causes.add(&exploration.causes);
        if exploration.coverage.has(Limit::Unjudged) {
            let note = "explorations: recovery fails although nothing is lost, so that its failure proves nothing";
            self.notes.push(note.to_owned());
        }
        for (finding, _) in exploration.findings {
            self.judge.keep_explored(finding, input);
        }
        self.judge.was_explored(input);
        if self.judge.has_error() && self.numbers.first_error_seconds.is_none() {
            self.numbers.first_error_seconds = Some(self.begun.elapsed().as_secs_f64());
        }
        Ok(())
    }
}

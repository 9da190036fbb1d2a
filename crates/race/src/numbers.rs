//! What was done, in numbers.

use serde::{Deserialize, Serialize};

/// The statistics of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Schedules that were run.
    pub schedules: u64,
    /// Inputs that were tried.
    pub inputs: u64,
    /// Of those, the ones that were given, or have shown something new.
    pub inputs_kept: u64,
    /// Schedules whose run was made again with its data flow followed.
    pub followed: u64,
    /// Places at which somebody else could have gone on, in all runs.
    pub steps: u64,
    /// Most threads of a run.
    pub threads: u64,
    /// PM alias pairs: accesses of two threads to the same bytes, with what was persistent between
    /// them.
    pub pairs: u64,
    /// Pairs of instructions, a store and a load of another thread, that come to the same bytes.
    pub goals: u64,
    /// Of those, loads that came before the store was persistent.
    pub goals_met: u64,
    /// Of the others, those that schedules were directed at without success.
    pub goals_not_met: u64,
    /// Pairs that locks and order of one run do not keep apart, as `check --threads` tells.
    pub predictions: u64,
    /// Of those, shown by a schedule.
    pub predictions_proven: u64,
    /// Of those, kept apart by the program in every schedule that was directed at them.
    pub predictions_refuted: u64,
    /// Of those, neither.
    pub predictions_open: u64,
    /// Loads of what another thread had not made persistent, by code.
    pub inter_candidates: u64,
    /// Loads of what the same thread had not made persistent, by code.
    pub intra_candidates: u64,
    /// Candidates of which something durable, or output, was made.
    pub inconsistencies: u64,
    /// Of those, the ones of which a crash image was recovered.
    pub validated: u64,
    /// After which recovery, or what runs after it, fails.
    pub confirmed: u64,
    /// After which nothing fails, and the effect is still there.
    pub unrepaired: u64,
    /// Which recovery sets right.
    pub repaired: u64,
    /// Changes of words that may be locks, of which a crash image was recovered.
    pub locks_tried: u64,
    /// Schedules in which threads came to wait for each other for ever.
    pub deadlocks: u64,
    /// Schedules that were ended because they did not end.
    pub endless: u64,
    /// Instructions that were executed and whose data flow is not known.
    pub given_up: u64,
    /// Stores, and outputs, that depend on more early reads than are told apart.
    #[serde(default)]
    pub crowded: u64,
    /// Time it took, in seconds.
    pub seconds: f64,
    /// Of that, time spent on recoveries, over all jobs.
    pub validating_seconds: f64,
    /// Time until the first error, in seconds.
    pub first_error_seconds: Option<f64>,
}

impl Numbers {
    /// Of a search that has gone on: what was done before comes to it. What is told apart by its
    /// place in the program (pairs, goals, candidates, what became of them) is known only when it
    /// is seen again, and counts from there.
    pub fn after(self, earlier: &Numbers) -> Numbers {
        Numbers {
            schedules: self.schedules + earlier.schedules,
            inputs: self.inputs.max(earlier.inputs),
            followed: self.followed + earlier.followed,
            steps: self.steps + earlier.steps,
            threads: self.threads.max(earlier.threads),
            locks_tried: self.locks_tried + earlier.locks_tried,
            deadlocks: self.deadlocks + earlier.deadlocks,
            endless: self.endless + earlier.endless,
            given_up: self.given_up + earlier.given_up,
            crowded: self.crowded + earlier.crowded,
            seconds: self.seconds + earlier.seconds,
            validating_seconds: self.validating_seconds + earlier.validating_seconds,
            first_error_seconds: earlier.first_error_seconds.or(self
                .first_error_seconds
                .map(|seconds| seconds + earlier.seconds)),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_before_counts() {
        let earlier = Numbers {
            schedules: 10,
            pairs: 7,
            seconds: 3.0,
            ..Numbers::default()
        };
        let now = Numbers {
            schedules: 2,
            pairs: 5,
            seconds: 1.0,
            first_error_seconds: Some(0.5),
            ..Numbers::default()
        };
        let all = now.after(&earlier);
        assert_eq!((all.schedules, all.pairs, all.seconds), (12, 5, 4.0));
        assert_eq!(all.first_error_seconds, Some(3.5));
        // The first error stays the first.
        assert_eq!(now.after(&all).first_error_seconds, Some(3.5));
    }
}

//! What a search has done, in numbers.

use serde::Serialize;

/// See the module's header.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Numbers {
    /// Paths that were run: inputs, each of which was solved for, and the first.
    pub paths: u64,
    /// Runs of the program, but for those that were followed.
    pub runs: u64,
    /// Runs that were followed, to learn which instructions touch the input.
    pub learned: u64,
    /// Of these, runs that were ended before they ended by themselves: only a part is known of
    /// them.
    pub learned_in_part: u64,
    /// Inputs whose runs may show more such instructions, and that there was no room to remember.
    pub unlearned: u64,
    /// How often a program was launched, to be kept or followed, or because it cannot be kept.
    pub launches: u64,
    /// Runs on an input that was made of others.
    pub made: u64,
    /// Runs on an input that was solved for.
    pub turned: u64,
    /// Of these, runs that did not go where they should have gone.
    pub diverged: u64,
    /// Decisions that are waiting to be turned.
    pub waiting: u64,
    /// Decisions that were waiting, and were given up because there were too many.
    pub forgotten: u64,
    /// Decisions of which not all ways were tried, because there were too many.
    pub many_ways: u64,
    /// Most decisions of one path.
    pub decisions: u64,
    /// Paths of which not all decisions were kept.
    pub cut: u64,
    /// Questions to the solver.
    pub queries: u64,
    /// Those that nothing can satisfy.
    pub unsatisfiable: u64,
    /// Those that were given up.
    pub unknown: u64,
    /// Questions that another solver was asked because the built-in one had given them up.
    pub external_asked: u64,
    /// Those that it has answered.
    pub external_answered: u64,
    /// Answers that were known already.
    pub repeated: u64,
    /// Pairs of operations on persistent memory that follow each other.
    pub pm_paths: u64,
    /// Operations on persistent memory, in all paths.
    pub pm_events: u64,
    /// Branches of the program that were taken.
    pub edges: u64,
    /// Most bytes of the input that a run has read.
    pub read_most: u64,
    /// Most bytes of the input that the kernel has copied elsewhere in a run, so that the program
    /// itself has not seen them.
    pub copied_most: u64,
    /// Most instructions that a run which was followed has executed, from where it was forked.
    pub instructions: u64,
    /// Instructions, by their addresses, that touch the input.
    pub instructions_chosen: u64,
    /// Of these, those for which there was no room.
    pub not_chosen: u64,
    /// Executions of instructions that were evaluated.
    pub evaluated: u64,
    /// Executions of instructions that the data flow does not know.
    pub given_up: u64,
    /// Expressions.
    pub expressions: u64,
    /// Records that made no sense.
    pub senseless: u64,
    /// Values that something had overwritten that was not captured.
    pub stale: u64,
    /// Runs that did not end by themselves.
    pub endless: u64,
    /// Runs that a signal ended.
    pub killed: u64,
    /// Errors that were found.
    pub errors: u64,
    /// Other findings.
    pub others: u64,
    /// When the first error was found, in seconds.
    pub first_error_seconds: Option<f64>,
    /// From beginning to end.
    pub seconds: f64,
    /// Of these, in runs that were captured, evaluation included.
    pub running_seconds: f64,
    /// In runs that were followed.
    pub learning_seconds: f64,
    /// Of both, in getting programs ready: laying files down, and launching what is kept.
    pub opening_seconds: f64,
    /// Of runs that were captured: until the program has done something, forked or launched.
    pub forking_seconds: f64,
    /// Of these runs: in saying what instructions compute.
    pub lifting_seconds: f64,
    /// In the solver.
    pub solving_seconds: f64,
    /// Paths whose crashes were explored.
    pub explored: u64,
    /// Of these, those for which there was not enough time.
    pub explored_in_part: u64,
    /// Paths that wait to be explored.
    pub unexplored: u64,
    /// In explorations.
    pub exploring_seconds: f64,
}

impl Numbers {
    /// Those of several who search side by side. What all of them may have done is not added up:
    /// the most that one has done counts.
    pub fn of_all(all: &[Numbers]) -> Numbers {
        let mut sum = Numbers::default();
        for one in all {
            for (sum, one) in sum.sums().into_iter().zip(one.clone().sums()) {
                *sum += *one;
            }
            for (most, one) in sum.mosts().into_iter().zip(one.clone().mosts()) {
                *most = (*most).max(*one);
            }
            for (sum, one) in sum.times().into_iter().zip(one.clone().times()) {
                *sum += *one;
            }
            sum.seconds = sum.seconds.max(one.seconds);
            let first = [sum.first_error_seconds, one.first_error_seconds];
            sum.first_error_seconds = first.into_iter().flatten().reduce(f64::min);
        }
        sum
    }

    fn sums(&mut self) -> [&mut u64; 28] {
        [
            &mut self.paths,
            &mut self.runs,
            &mut self.learned,
            &mut self.learned_in_part,
            &mut self.unlearned,
            &mut self.launches,
            &mut self.made,
            &mut self.turned,
            &mut self.diverged,
            &mut self.waiting,
            &mut self.forgotten,
            &mut self.many_ways,
            &mut self.cut,
            &mut self.queries,
            &mut self.unsatisfiable,
            &mut self.unknown,
            &mut self.external_asked,
            &mut self.external_answered,
            &mut self.repeated,
            &mut self.pm_events,
            &mut self.evaluated,
            &mut self.given_up,
            &mut self.senseless,
            &mut self.stale,
            &mut self.endless,
            &mut self.killed,
            &mut self.explored,
            &mut self.explored_in_part,
        ]
    }

    fn mosts(&mut self) -> [&mut u64; 12] {
        [
            &mut self.decisions,
            &mut self.pm_paths,
            &mut self.edges,
            &mut self.read_most,
            &mut self.copied_most,
            &mut self.instructions,
            &mut self.instructions_chosen,
            &mut self.not_chosen,
            &mut self.expressions,
            &mut self.errors,
            &mut self.others,
            &mut self.unexplored,
        ]
    }

    fn times(&mut self) -> [&mut f64; 7] {
        [
            &mut self.running_seconds,
            &mut self.learning_seconds,
            &mut self.opening_seconds,
            &mut self.forking_seconds,
            &mut self.lifting_seconds,
            &mut self.solving_seconds,
            &mut self.exploring_seconds,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_one_of_those_that_are_added_or_compared() {
        let mut one = Numbers::default();
        for number in one.sums().into_iter().chain([]) {
            *number = 2;
        }
        for number in one.mosts() {
            *number = 3;
        }
        for number in one.times() {
            *number = 4.0;
        }
        one.seconds = 5.0;
        one.first_error_seconds = Some(6.0);
        let value = serde_json::to_value(Numbers::of_all(&[one, one])).expect("plain data");
        for (name, value) in value.as_object().expect("members") {
            let number = value.as_f64().expect("a number");
            assert!(
                [3.0, 4.0, 5.0, 6.0, 8.0].contains(&number),
                "{name} is {number}"
            );
        }
    }
}

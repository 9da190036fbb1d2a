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
    /// Runs on an input that was made of others.
    pub made: u64,
    /// Runs on an input that was solved for.
    pub turned: u64,
    /// Of these, runs that did not go where they should have gone.
    pub diverged: u64,
    /// Decisions that are waiting to be turned.
    pub waiting: u64,
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
    /// Most instructions that a run has executed.
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
    /// In the solver.
    pub solving_seconds: f64,
}

//! What to explore, what comes of it, and why nothing does.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brownout_findings::{Coverage, Finding, Frame, Outcome};
use brownout_host::LaunchError;
use brownout_model::Config;
use brownout_model::names::Promise;

use crate::execution::Command;
use crate::finding::CrashSpec;
use crate::outcome::Status;
use crate::statistics::Numbers;

/// What to explore, and how.
pub struct Options {
    /// Shell command that prepares what is not explored.
    pub setup: Option<String>,
    /// The program.
    pub program: Command,
    /// What runs after a crash; the program itself if not given.
    pub recover: Command,
    /// Files that are persistent memory.
    pub pm_globs: Vec<String>,
    /// The model.
    pub model: Config,
    /// What the file system promises about names and sizes of files.
    pub promise: Promise,
    /// Operations are atomic.
    pub operations: bool,
    /// The order in which recovery prints things belongs to the operations.
    pub ordered: bool,
    /// What was acknowledged by output must survive, if there is any.
    pub acknowledged_survives: bool,
    /// Delays in the store buffers of several threads must be covered, or there is no verdict.
    pub store_buffers: bool,
    /// Lines of code (see [`suspect`](crate::suspect)) whose stores are suspected: whether each matters is found out.
    pub suspects: Vec<String>,
    /// A command that judges.
    pub checker: Option<String>,
    /// How many crashes in a row; `None`: two, if that is cheap.
    pub depth: Option<u32>,
    /// Recoveries at a time.
    pub jobs: usize,
    /// No longer than this.
    pub time: Option<Duration>,
    /// No sampling.
    pub exhaustive: bool,
    /// How many looked-up outcomes to verify by running them.
    pub self_test: u64,
    /// Go on where an interrupted exploration in this folder ended.
    pub resume: bool,
    /// Where crash images go.
    pub folder: PathBuf,
    /// Write all outcomes here.
    pub outcomes: Option<PathBuf>,
    /// Ends the exploration when true.
    pub stop: Arc<AtomicBool>,
    /// A recovery that takes longer does not end.
    pub patience: Option<Duration>,
}

/// So many states of names and sizes are taken at one place of the run.
const NAMES_MAX: usize = 128;
/// If everything is to be tried.
const NAMES_EXHAUSTIVE: usize = 100_000;

impl Options {
    /// How many states of names and sizes are taken at one place of the run.
    pub(crate) fn names_max(&self) -> usize {
        match self.exhaustive {
            true => NAMES_EXHAUSTIVE,
            false => NAMES_MAX,
        }
    }
}

/// What came of it.
pub struct Exploration {
    /// What is wrong, with the crash that shows each.
    pub findings: Vec<(Finding, CrashSpec)>,
    /// Stores whose loss breaks recovery: their stacks, and which finding says so.
    pub blamed: Vec<(Vec<Frame>, usize)>,
    /// Numbers.
    pub statistics: Numbers,
    /// What was not explored.
    pub coverage: Coverage,
    /// Suspects (see [`Options::suspects`]) that may matter or not, although all was explored.
    pub unsettled: BTreeSet<String>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Files that may be meant.
    pub hints: Vec<PathBuf>,
    /// How the recorded run ended.
    pub ended: Status,
    /// A bug of ours ended the exploration: in one sentence.
    pub bug: Option<String>,
}

impl Exploration {
    /// In the shape that all analyses share, and the crash that shows each finding, in the same order.
    pub fn into_outcome(self) -> (Outcome<Numbers>, Vec<CrashSpec>) {
        let (findings, crashes) = self.findings.into_iter().unzip();
        let outcome = Outcome {
            findings,
            coverage: self.coverage,
            notes: self.notes,
            statistics: self.statistics,
            ended: Some(self.ended.to_string()),
            bug: self.bug,
        };
        (outcome, crashes)
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user must change something.
    #[error("{0}")]
    Usage(String),
    /// A program could not be run.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
}

/// For `map_err`.
pub fn io_error(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Io(what, error)
}

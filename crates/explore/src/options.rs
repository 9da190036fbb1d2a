//! What to explore, what comes of it, and why nothing does.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brownout_findings::{Coverage, Finding, Frame, Outcome};
use brownout_host::{Enclosures, LaunchError, Layer, Schedule};
use brownout_model::Config;
use brownout_model::names::Promise;
use brownout_symbols::Touches;

use serde::{Deserialize, Serialize};

use crate::content::FileContent;
use crate::execution::Command;
use crate::finding::CrashSpec;
use crate::outcome::Status;
use crate::statistics::Numbers;

/// Files to begin with, where the machine's own are not what the program is to find.
#[derive(Clone)]
pub struct Start {
    /// Makes the private views in which everything runs. Whoever has made it cleans up after it,
    /// also if the tool is killed ([`Ground`](crate::Ground) does).
    pub enclosures: Arc<Enclosures>,
    /// What lies on the machine's files, of views of the same maker: the first covers those behind
    /// it. Nothing may run in those views any more, nor change them.
    pub layers: Vec<Layer>,
}

/// What to explore, and how.
#[derive(Clone)]
pub struct Options {
    /// Files to begin with; the set-up, the program and recoveries find them. Default: the machine
    /// as it is.
    pub start: Option<Start>,
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
    /// One thread runs at a time, and this says which: in the recorded run. In recoveries, and
    /// where the program is run again for reference, whoever has the turn goes on then. Default:
    /// threads run as the machine has it.
    pub schedule: Option<Schedule>,
    /// Delays in the store buffers of several threads must be covered, or there is no verdict.
    pub store_buffers: bool,
    /// Lines of code (see [`suspect`](crate::suspect)) whose stores are suspected: whether each
    /// matters is found out.
    pub suspects: Vec<String>,
    /// A command that judges.
    pub checker: Option<String>,
    /// How many crashes in a row; `None`: two, if that is cheap.
    pub depth: Option<u32>,
    /// Recoveries at a time.
    pub jobs: usize,
    /// So many recoveries at most are run to search crash states; what finds out about operations,
    /// and what looks into a failure, comes on top. Failure points are then taken in an order in
    /// which the first few are spread over the run. Default: as many as it takes.
    pub recoveries_max: Option<u64>,
    /// So many times at most the program is run from its beginning to learn what recovery prints
    /// after whole operations; where there are more operations, states of the recorded run are the
    /// measure, and some are compared with runs. At least two. Default: 100.
    pub references_max: usize,
    /// So many failing crash states are looked into at most; what is beyond is counted.
    /// Default: 60.
    pub failures_max: usize,
    /// Failing crash states that seem to be of these causes ([`Exploration::causes`] of earlier
    /// explorations) are not looked into, which saves most of what a failure costs; the coverage
    /// says that there are some. Default: none.
    pub known_causes: BTreeSet<String>,
    /// No longer than this.
    pub time: Option<Duration>,
    /// No sampling.
    pub exhaustive: bool,
    /// How many looked-up outcomes to verify by running them.
    pub self_test: u64,
    /// Go on where an interrupted exploration in this folder ended.
    pub resume: bool,
    /// Keep a journal of what recoveries have shown in the folder, to resume by, until all is
    /// explored. Default: yes; a small exploration is cheaper without.
    pub journal: bool,
    /// So many recoveries that did something different are told at most, with the crashes that they
    /// followed. Default: none.
    pub distinct_max: usize,
    /// Where crash images go.
    pub folder: PathBuf,
    /// Write all outcomes here.
    pub outcomes: Option<PathBuf>,
    /// Ends the exploration when true.
    pub stop: Arc<AtomicBool>,
    /// A recovery that takes longer does not end.
    pub patience: Option<Duration>,
    /// Counts where the program and recoveries touch persistent memory, and where the power fails.
    /// Default: nobody does.
    pub touches: Option<Touches>,
}

/// So many states of names and sizes are taken at one place of the run.
const NAMES_MAX: usize = 128;
/// If everything is to be tried.
const NAMES_EXHAUSTIVE: usize = 100_000;

impl Options {
    /// An exploration of a program as it is unless somebody says otherwise; crash images go to a
    /// folder.
    pub fn new(program: Command, recover: Command, folder: PathBuf) -> Options {
        Options {
            start: None,
            setup: None,
            program,
            recover,
            pm_globs: Vec::new(),
            model: Config::default(),
            promise: Promise::Ordered,
            operations: false,
            ordered: false,
            acknowledged_survives: false,
            schedule: None,
            store_buffers: false,
            suspects: Vec::new(),
            checker: None,
            depth: None,
            jobs: 1,
            recoveries_max: None,
            references_max: 100,
            failures_max: 60,
            known_causes: BTreeSet::new(),
            time: None,
            exhaustive: false,
            self_test: 0,
            resume: false,
            journal: true,
            distinct_max: 0,
            folder,
            outcomes: None,
            stop: Arc::default(),
            patience: None,
            touches: None,
        }
    }

    /// How many states of names and sizes are taken at one place of the run.
    pub(crate) fn names_max(&self) -> usize {
        match self.exhaustive {
            true => NAMES_EXHAUSTIVE,
            false => NAMES_MAX,
        }
    }
}

/// Every name that is not as it was before the recorded run, and what it is now: as in a crash
/// image.
pub type Files = Vec<(PathBuf, FileContent)>;

/// A recovery that did what no other one did before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distinct {
    /// The crash, or crashes, that it followed.
    pub crash: CrashSpec,
    /// What that has left.
    pub files: Files,
    /// How it ended.
    pub status: Status,
    /// Recoveries that come to the same end have the same number.
    pub outcome: u32,
}

/// What came of it.
pub struct Exploration {
    /// What is wrong, with the crash that shows each.
    pub findings: Vec<(Finding, CrashSpec)>,
    /// What the failing crash states that were looked into, or were known, seem to be caused by: a
    /// rule and lines of code.
    pub causes: BTreeSet<String>,
    /// Stores whose loss breaks recovery: their stacks, and which finding says so.
    pub blamed: Vec<(Vec<Frame>, usize)>,
    /// Numbers.
    pub statistics: Numbers,
    /// What was not explored.
    pub coverage: Coverage,
    /// Suspects (see [`Options::suspects`]) that may matter or not, although all was explored.
    pub unsettled: BTreeSet<String>,
    /// Recoveries that did something different, if somebody asks for them
    /// ([`Options::distinct_max`]): of those that come to the same end, the first; then others, as
    /// long as there is room.
    pub distinct: Vec<Distinct>,
    /// What the crash of each finding has left, in the order of the findings, if somebody asks for
    /// distinct recoveries; `None` of more crashes than one.
    pub left: Vec<Option<Files>>,
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
    /// In the shape that all analyses share, and the crash that shows each finding, in the same
    /// order.
    pub fn into_outcome(self) -> (Outcome<Numbers>, Vec<CrashSpec>) {
        let (findings, crashes) = self.findings.into_iter().unzip();
        let outcome = Outcome {
            findings,
            coverage: self.coverage,
            notes: self.notes,
            statistics: self.statistics,
            ended: Some(self.ended.to_string()),
            touched: None,
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
    /// Somebody wanted it to end, and what was under way was cut short: it says nothing.
    #[error("stopped before there was a result")]
    Stopped,
}

/// For `map_err`.
pub fn io_error(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Io(what, error)
}

/// For `map_err`, of a file or folder that the user can do something about.
pub fn io_error_at(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| {
        let text = format!("{}: {error}", path.display());
        Error::Io(what, io::Error::new(error.kind(), text))
    }
}

//! What to search, and why nothing comes of it.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brownout_explore::Command;
use brownout_host::LaunchError;
use brownout_stage::Delivery;
use brownout_symbols::Touches;

use crate::input::Layout;

/// Which decision is turned next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Those that lead to code that was never executed, or was not behind the same changes of
    /// persistent memory; of these, those that lead to more changes of it.
    #[default]
    Pm,
    /// The same without a look at persistent memory.
    Coverage,
    /// The last decision of the newest path, and no input but those that are solved for.
    DepthFirst,
    /// Any, and no input but those that are solved for.
    Random,
}

impl Strategy {
    /// All of them, by name.
    pub const NAMES: [(&'static str, Strategy); 4] = [
        ("pm", Strategy::Pm),
        ("coverage", Strategy::Coverage),
        ("depth-first", Strategy::DepthFirst),
        ("random", Strategy::Random),
    ];
}

/// What to search, and how.
#[derive(Clone)]
pub struct Options {
    /// Shell command that prepares the files that the program begins with.
    pub setup: Option<String>,
    /// The program.
    pub program: Command,
    /// How its input reaches it.
    pub delivery: Delivery,
    /// Its first input. There are never more bytes, nor fewer. Of a part of a file, as many bytes
    /// as there are here count, and what the file holds takes their place.
    pub first: Vec<u8>,
    /// Which bytes of it may be changed, in order; none: all of them.
    pub free: Vec<Range<usize>>,
    /// What the program reads as its standard input, if that is not its input.
    pub stdin: Option<PathBuf>,
    /// Files that are persistent memory.
    pub pm_globs: Vec<String>,
    /// What is wrong with a run.
    pub check: brownout_check::Options,
    /// Libraries of custom rules, and their options: each can be loaded.
    pub plugins: Vec<(PathBuf, String)>,
    /// One of them looks at loads of persistent memory.
    pub loads: bool,
    /// Which decision is turned next.
    pub strategy: Strategy,
    /// Decides what is left to chance. One searcher does the same with the same seed, as far as
    /// nothing is ended by a clock.
    pub seed: u64,
    /// No longer than this.
    pub time: Option<Duration>,
    /// No more paths than this.
    pub paths: Option<u64>,
    /// End when something was found that is an error.
    pub until_found: bool,
    /// The folder of the campaign: an input for each path that did something new to persistent
    /// memory, and findings.
    pub out: Option<PathBuf>,
    /// How the tool was called, for those who look at the campaign: the words after `brownout`.
    pub command_line: Vec<String>,
    /// Go on with the campaign that is there.
    pub resume: bool,
    /// So many search side by side.
    pub jobs: usize,
    /// Shell command that recovers after a crash; the program itself, with no input, if not given.
    pub recover: Option<String>,
    /// How much of the time goes into exploring crashes, of 100.
    pub explore_share: f64,
    /// A run that takes longer does not end. Default: what others have taken decides.
    pub patience: Option<Duration>,
    /// The program sees the processor as it is. Otherwise it is told that there are no vectors
    /// wider than SSE's, and no other instructions of that time, so that libraries choose code that
    /// is described, and decides byte by byte where it can.
    pub native_cpu: bool,
    /// A solver beside the built-in one, for what is hard.
    pub external_solver: Option<PathBuf>,
    /// Ends the search when true.
    pub stop: Arc<AtomicBool>,
    /// Counts where persistent memory is touched, and where the power fails. Default: nobody does.
    pub touches: Option<Touches>,
}

impl Options {
    /// A search from this input.
    pub fn new(program: Command, first: Vec<u8>) -> Options {
        Options {
            setup: None,
            program,
            delivery: Delivery::Stdin,
            first,
            free: Vec::new(),
            stdin: None,
            pm_globs: Vec::new(),
            check: brownout_check::Options::default(),
            plugins: Vec::new(),
            loads: false,
            strategy: Strategy::default(),
            seed: 0,
            time: None,
            paths: None,
            until_found: false,
            out: None,
            command_line: Vec::new(),
            resume: false,
            jobs: 1,
            recover: None,
            explore_share: 0.0,
            patience: None,
            native_cpu: false,
            external_solver: None,
            stop: Arc::default(),
            touches: None,
        }
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
    /// A program could not be kept apart from the machine, or got ready.
    #[error("{0}")]
    Stage(brownout_stage::Error),
    /// What the set-up has left could not be kept.
    #[error("{0}")]
    Images(#[from] brownout_images::Error),
    /// The campaign's folder cannot be used.
    #[error("{0}")]
    Folder(#[from] brownout_campaign::folder::FolderError),
    /// The campaign's journal cannot be used.
    #[error("{0}")]
    Journal(#[from] brownout_campaign::journal::JournalError),
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
}

/// For `map_err`.
pub(crate) fn io_error(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Io(what, error)
}

impl Options {
    /// What the program's input is.
    pub(crate) fn layout(&self) -> Layout {
        let all = 0..self.first.len();
        Layout {
            delivery: self.delivery.clone(),
            args: self.program.args.clone(),
            free: match self.free.as_slice() {
                [] => Arc::from([all]),
                free => free.into(),
            },
        }
    }
}

impl Error {
    /// A program that was kept is gone. It can be launched again.
    pub(crate) fn is_not_kept(&self) -> bool {
        matches!(self, Error::Launch(LaunchError::NotKept(_)))
    }
}

impl From<brownout_stage::Error> for Error {
    fn from(error: brownout_stage::Error) -> Error {
        use brownout_stage::Error as Stage;
        match error {
            Stage::Launch(error) => Error::Launch(error),
            Stage::Images(error) => Error::Images(error),
            Stage::SetUp(why) => Error::Usage(format!("the set-up failed: {why}")),
            Stage::Stopped => Error::Usage("stopped in the set-up: nothing was searched".into()),
            error @ (Stage::Io(_) | Stage::NoView(_) | Stage::NoNetwork | Stage::Explore(_)) => {
                Error::Stage(error)
            }
        }
    }
}

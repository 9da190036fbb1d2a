//! What to search, and why nothing comes of it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brownout_explore::Command;
use brownout_host::{LaunchError, StrategyKind};
use brownout_model::Config;
use brownout_model::names::Promise;
use brownout_symbols::Touches;

use crate::inputs::Seeds;

/// What to search, and how.
#[derive(Clone)]
pub struct Options {
    /// Shell command that prepares the files that the program begins with.
    pub setup: Option<String>,
    /// The program.
    pub program: Command,
    /// What runs after a crash.
    pub recover: Command,
    /// What runs after that, if anything does: the first operations of a program that goes on.
    pub continues: Option<Command>,
    /// A command that judges what recovery has left.
    pub checker: Option<String>,
    /// Inputs to begin with, of which others are made; none: the program's standard input is what
    /// [`Options::program`] says.
    pub seeds: Option<Seeds>,
    /// Files that are persistent memory.
    pub pm_globs: Vec<String>,
    /// The model.
    pub model: Config,
    /// What the file system promises about names and sizes of files.
    pub promise: Promise,
    /// The one strategy to use; `None`: several in turn.
    pub strategy: Option<StrategyKind>,
    /// Decides what is left to chance.
    pub seed: u64,
    /// No longer than this.
    pub time: Option<Duration>,
    /// No more runs than this.
    pub runs: Option<u64>,
    /// End when something was found that is an error.
    pub until_found: bool,
    /// Runs at a time.
    pub jobs: usize,
    /// The campaign's folder: what was found, and what to go on with.
    pub out: Option<PathBuf>,
    /// Go on with the campaign in that folder.
    pub resume: bool,
    /// How the tool was called: the words after `brownout`, which the campaign's folder keeps.
    pub command_line: Vec<String>,
    /// Where crash images of findings go.
    pub folder: PathBuf,
    /// A run that takes longer does not end.
    pub patience: Option<Duration>,
    /// Ends the search when true.
    pub stop: Arc<AtomicBool>,
    /// Counts where persistent memory is touched, and where the power fails. Default: nobody does.
    pub touches: Option<Touches>,
}

impl Options {
    /// A search of a program as it is unless somebody says otherwise; crash images go to a folder.
    pub fn new(program: Command, recover: Command, folder: PathBuf) -> Options {
        Options {
            setup: None,
            program,
            recover,
            continues: None,
            checker: None,
            seeds: None,
            pm_globs: Vec::new(),
            model: Config::default(),
            promise: Promise::Ordered,
            strategy: None,
            seed: 0,
            time: None,
            runs: None,
            until_found: false,
            jobs: 1,
            out: None,
            resume: false,
            command_line: Vec::new(),
            folder,
            patience: None,
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
    /// A crash could not be tried.
    #[error(transparent)]
    Explore(#[from] brownout_explore::Error),
    /// A campaign's folder cannot be used.
    #[error(transparent)]
    Folder(#[from] brownout_campaign::folder::FolderError),
    /// A campaign's journal cannot be used.
    #[error(transparent)]
    Journal(#[from] brownout_campaign::journal::JournalError),
    /// Programs cannot be kept apart on this machine.
    #[error("programs cannot be given a private view of this machine, which race needs: {0}")]
    NoView(String),
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
}

impl Error {
    /// Whether there is no result only because somebody wanted the search to end.
    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, Error::Explore(brownout_explore::Error::Stopped))
    }

    /// Whether a run that was to be made again went another way, and was ended for that.
    pub(crate) fn is_other_run(&self) -> bool {
        matches!(self, Error::Launch(LaunchError::OtherRun(_)))
    }
}

/// For `map_err`.
pub(crate) fn io_error(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Io(what, error)
}

/// Two commands, the second only if the first ends well.
pub fn together(first: &Command, second: &Command) -> Command {
    let line = |command: &Command| {
        let input = match &command.stdin {
            Some(path) => format!(" < {}", brownout_explore::quote(&path.to_string_lossy())),
            None => " < /dev/null".to_owned(),
        };
        format!("{}{input}", command.display())
    };
    Command::shell(&format!("{} && {}", line(first), line(second)), None)
}

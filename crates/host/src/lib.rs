//! Launches programs under the engine and receives what they do.
//!
//! ```text
//!  preflight ─▶ fork ─▶ exec (stopped) ─▶ inject ─▶ detach ─▶ program runs
//!                                                             │ requests      │ records
//!                                                             ▼               ▼
//!                                                       service thread    drain loop ─▶ EventSink
//! ```
//! Guarantee: events reach the sink in the engine's total order, none is dropped; when the sink is
//! slow, the program waits. When the sink fails, the program runs on and the failure is reported at
//! the end. A run can be bounded ([`Limits`]); a stream that was cut short has no `End`.
//!
//! [`record`] and [`run`] may be called on several threads at once, each with its own program, and
//! leave no mapping, descriptor, thread or process behind (but one [`guard`] a tool, where programs
//! are to end with it). The calling thread's other children, if it has any, are taken for the
//! program's.
//!
//! [`Session`] keeps a program ready and forks it for one run after the other.
//!
//! ```no_run
//! use brownout_host::{LaunchConfig, run};
//! let outcome = run(&LaunchConfig::new("/bin/echo", ["hello"])).unwrap();
//! assert_eq!(outcome.status, brownout_host::ExitStatus::Code(0));
//! ```

mod beginnings;
mod client;
mod control;
mod decode;
mod drain;
mod enclosure;
mod error;
mod functions;
pub mod guard;
mod inject;
mod launch;
mod members;
mod passes;
mod preflight;
mod processes;
mod queues;
mod rare;
mod recent;
mod schedule;
mod service;
mod session;
mod sockets;
mod turns;

pub use beginnings::of_ourselves;
/// Most [known files](LaunchConfig::known_files) of a run.
pub use brownout_abi::KNOWN_MAX as KNOWN_FILES_MAX;
pub use client::{Activity, Address, Client, Wish};
pub use enclosure::{
    Changed, Denied, Enclosure, Enclosures, Layer, Privilege, end_orphans, remove_all,
};
pub use error::LaunchError;
pub use launch::{record, run};
pub use preflight::find_program;
pub use processes::activity_of;
pub use queues::await_queue_room;
pub use schedule::{
    Decision, Goal, Misfit, Plan, Pursuit, Schedule, SchedulePoint, SchedulePointKind, Scheduled,
    StrategyKind, Turn, decode_decisions, encode_decisions,
};
pub use session::{Session, StopAt};

use brownout_trace::EventSink;
use brownout_trace::event::FileId;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// What to run, and how.
pub struct LaunchConfig {
    /// The program: a path, or a name to look up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Files that are persistent memory, as patterns on their absolute path; a pattern begins with
    /// `/` or `**`. Default: none.
    pub pm_globs: Vec<String>,
    /// Record loads of tracked memory too. Default: no, they cost most and few analyses need them.
    pub loads: bool,
    /// Record how threads exclude each other and wait for each other, too: calls of the C library's
    /// functions for that, and locked instructions elsewhere. Default: no.
    pub threads: bool,
    /// Capture store values. Default: yes. Without them, requests that only keep books (`SET_CLEAN`
    /// and the like) come without calling context, too.
    pub values: bool,
    /// Remove randomness. Default: no.
    pub deterministic: bool,
    /// Which addresses a [deterministic](Self::deterministic) program gets for its stack, heap,
    /// libraries and mappings: the same number, the same addresses; another number, others, of
    /// which none is in use under the first (up to 7; then they repeat). Programs linked to a fixed
    /// address keep that. Default: 0.
    pub layout: u32,
    /// Execute `clwb` and its kin on tracked memory, not only record them. Default: no: on ordinary
    /// files nothing is gained by it, and they dominate store-heavy programs.
    pub execute_flushes: bool,
    /// Leave out what no built-in rule needs. Default: no.
    pub lean: bool,
    /// Tell what programs were started with ([`EventSink::beginning`]). Default: no, few want to
    /// know.
    pub beginnings: bool,
    /// Standard input. Default: inherited.
    pub stdin: Option<std::fs::File>,
    /// The file that is the program's input, if that is not its standard input: it finds it by its
    /// name, in the view in which it runs. Counts wherever standard input does. Default: none.
    pub input: Option<std::fs::File>,
    /// Somebody who connects to the program where it listens, and who is its input. Default:
    /// nobody.
    pub client: Option<Arc<dyn Client>>,
    /// Standard output. Default: inherited.
    pub stdout: Option<std::fs::File>,
    /// Standard error. Default: inherited.
    pub stderr: Option<std::fs::File>,
    /// If [`stdout`](Self::stdout) and [`stderr`](Self::stderr) are files, about so many bytes of
    /// each are kept. What is written behind them is thrown away while the program runs, so that
    /// one that prints for ever does not fill the file system, which may be memory. The files are
    /// as long as what was written. Default: all.
    pub output_max: Option<u64>,
    /// Record when the program reads its standard input and writes to the world, which tracked
    /// files it has created, where it looks for [redirected](Self::redirects) files, and where a
    /// signal ends it. Default: no, few analyses need it.
    pub boundaries: bool,
    /// Each read of standard input yields at most one line. Works where [`stdin`](Self::stdin) is a
    /// regular file; other input comes as it comes. Default: no.
    pub line_input: bool,
    /// Track every regular file as soon as the program changes it, ordinary ones too, and record
    /// what happens to names. The standard streams and pseudo file systems are left out. Default:
    /// no.
    pub names: bool,
    /// Note which branches are taken: [`Outcome::edges`]. Default: no.
    pub edges: bool,
    /// Note what is compared: [`Outcome::comparisons`]. That makes the program several times as
    /// slow. Default: no.
    pub comparisons: bool,
    /// One thread runs at a time, and this says which. The program is made
    /// [deterministic](Self::deterministic) then, too: with the same decisions it does the same
    /// again, event for event. Only recordings can be scheduled. Default: threads run as the
    /// machine has it.
    pub schedule: Option<Schedule>,
    /// Tell what threads execute, by [`EventSink::executed`]: for whoever follows data through the
    /// run. That makes it several times as slow. Only for runs that are scheduled. Default: no.
    pub follow: bool,
    /// Tell the state in front of these instructions, given by their addresses, by
    /// [`EventSink::executed`]; and system calls. At most [`CAPTURE_MAX`] of them, sorted. Only
    /// recordings can be captured. Default: no.
    pub capture: Option<Arc<[u64]>>,
    /// Show the program a processor without vectors wider than SSE's, and without other
    /// instructions of that time: its libraries then choose their simplest code. What it executes
    /// without asking is executed. Default: no.
    pub plain_cpu: bool,
    /// Record which regular files the program opens, with [`boundaries`](Self::boundaries).
    /// Default: no.
    pub opens: bool,
    /// Files that are tracked from the beginning, not from their first mapping on, under numbers of
    /// the caller's choice. They must exist. They get no `File` event and no
    /// [`EventSink::new_file`]. Files that are found on the way get other numbers. Default: none.
    pub known_files: Vec<(PathBuf, FileId)>,
    /// Files that are found on the way get numbers above this one, too. Default: 0.
    pub last_file: FileId,
    /// Files that the program finds elsewhere: where it names the first path, the kernel gets the
    /// second. Absolute paths, the first one without symbolic links in its folder. Default: none.
    pub redirects: Vec<(PathBuf, PathBuf)>,
    /// The view of the machine in which the program runs. [`known_files`](Self::known_files) are
    /// still named as the tool finds them; the program, and what is [redirected](Self::redirects),
    /// as the program does. Default: the tool's own.
    pub enclosure: Option<Arc<Enclosure>>,
    /// All processes of the run end if the tool does, whatever ends it (see [`guard`]). Default:
    /// no.
    pub dies_with_tool: bool,
    /// When the program is stopped. Default: never.
    pub limits: Limits,
    /// The program is stopped when this becomes true. Default: none.
    pub stop: Option<Arc<AtomicBool>>,
    /// Likewise: for who also measures the time of several runs, and must tell that from a wish of
    /// the user's. Default: none.
    pub expired: Option<Arc<AtomicBool>>,
    /// A signal that was sent to this process and is the program's, 0 until there is one. All
    /// processes of the run get it; in a recording, those that have not ended some seconds later
    /// are killed, so that what was seen until then can be reported. Default: none.
    pub pass_on: Option<Arc<AtomicI32>>,
}

/// So many instructions can be [captured](LaunchConfig::capture).
pub const CAPTURE_MAX: usize = brownout_abi::CHOSEN_MAX;

/// Bounds of a run. When one is hit, the program and all that it has started are killed; the run
/// counts as finished, with [`Outcome::stopped`] set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// So many events have reached the sink; not one more does.
    pub events: Option<u64>,
    /// No process of the run has used the processor for so long: they wait for ever. Those that the
    /// program has left behind when it ended are not waited for as long, see
    /// [`Stopped::LeftBehind`].
    pub idle: Option<Duration>,
    /// So much time has passed since the launch.
    pub wall: Option<Duration>,
    /// Of a scheduled run: it has come to so many points at which another thread could go on. It is
    /// looked at from time to time, so that there may be some more. Unlike time, it says the same
    /// on a busy machine.
    pub steps: Option<u64>,
    /// Bytes of memory of their own that the processes of the run have together; what they share
    /// (files, persistent memory) does not count. They are looked at some dozens of times a second,
    /// so that they may have had more for a moment.
    pub memory: Option<u64>,
}

/// Why a run was ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stopped {
    /// [`Limits::events`].
    Events,
    /// [`Limits::idle`].
    Idle,
    /// [`Limits::wall`].
    Wall,
    /// [`Limits::steps`].
    Steps,
    /// [`Limits::memory`].
    Memory,
    /// [`LaunchConfig::stop`] or [`LaunchConfig::expired`].
    Asked,
    /// The program itself has ended, by itself; what it has started and left behind does nothing
    /// but wait. [`Outcome::status`] is the program's own.
    LeftBehind,
}

impl LaunchConfig {
    /// Defaults for everything but the command.
    pub fn new<A: Into<OsString>>(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        LaunchConfig {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            pm_globs: Vec::new(),
            loads: false,
            threads: false,
            values: true,
            deterministic: false,
            layout: 0,
            execute_flushes: false,
            lean: false,
            beginnings: false,
            stdin: None,
            input: None,
            client: None,
            stdout: None,
            stderr: None,
            output_max: None,
            boundaries: false,
            line_input: false,
            names: false,
            edges: false,
            comparisons: false,
            schedule: None,
            follow: false,
            capture: None,
            plain_cpu: false,
            opens: false,
            known_files: Vec::new(),
            last_file: FileId(0),
            redirects: Vec::new(),
            enclosure: None,
            dies_with_tool: false,
            limits: Limits::default(),
            stop: None,
            expired: None,
            pass_on: None,
        }
    }

    /// Whether the program is to be stopped now.
    fn is_stopped(&self) -> bool {
        let mut flags = self.stop.iter().chain(&self.expired);
        flags.any(|flag| flag.load(Ordering::Relaxed))
    }
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Exit code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the first process ended.
    pub status: ExitStatus,
    /// Files that were mapped writable and shared, and not tracked.
    pub hints: Vec<PathBuf>,
    /// Sentences for the user, in order.
    pub notes: Vec<String>,
    /// Those of them that say which rights programs of the run did not get because they were
    /// followed.
    pub lost_rights: Vec<String>,
    /// From start to end.
    pub wall: Duration,
    /// Number of events that reached the sink.
    pub events: u64,
    /// Why the run was ended before its time, if it was. Then the status is that of a killed
    /// program.
    pub stopped: Option<Stopped>,
    /// How long threads of the program have waited for the sink, in total.
    pub waited: Duration,
    /// Which ways were taken at conditional and indirect branches, if [`LaunchConfig::edges`] was
    /// asked for: 1 for each pair of source and target, at the same place in every run of the
    /// program under the same [layout](LaunchConfig::layout). Few pairs share a place with others.
    pub edges: Option<Box<[u8]>>,
    /// What was compared, if [`LaunchConfig::comparisons`] was asked for; of a kept program, since
    /// its stop.
    pub comparisons: Vec<Comparison>,
    /// What was decided, if [`LaunchConfig::schedule`] was asked for.
    pub scheduled: Option<Scheduled>,
}

/// Two things that the program has compared with each other, or has handed to a function that may
/// do so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The instruction: its distance from the beginning of its module's code.
    pub name: u64,
    /// One side, in the order of memory. A comparison of numbers has 1, 2, 4 or 8 bytes.
    pub left: Vec<u8>,
    /// The other, of the same length.
    pub right: Vec<u8>,
}

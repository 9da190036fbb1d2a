//! Model-checks what recovery does in every distinct crash state of a recorded run.
//!
//! ```text
//!  program ─▶ recording ─▶ failure points ─▶ search ─▶ outcomes ─▶ oracle ─▶ failures ─▶ minimise ─▶ findings
//!             timeline of     (view)          │  ▲
//!             crash states                    ▼  │ what was read, and how it ended
//!                                    trie ◀─ pool of worlds, each runs recoveries
//! ```
//! Guarantee: an [`explore`]d run was tried in every distinct crash state of the model, with as
//! many crashes in a row as the statistics say, or the coverage says what was left out; every
//! finding was shown by an execution, and is an error only if it was shown natively, too. What the
//! model leaves out (permissions, times, other inputs) is in `docs/explore.md`. Sources: Jaaru
//! (failure points, constraint refinement), and for names "All file systems are not created equal"
//! (see `brownout_model::names`). The deviations are in the headers of the modules that have them.
//!
//! Beside whole explorations there is what other analyses go on from: [`crashes`] gives crash
//! images of a [`Run`] as plain data, a [`RunRecorder`] records a run that somebody else launches
//! or forks, [`Options::start`] has everything begin with files that are on no disk, and
//! [`Exploration::distinct`] tells which crashes recovery can tell apart.
//!
//! What crashes of one transfer between two accounts leave, and what is wrong with it:
//!
//! ```no_run
//! use brownout_explore::{Command, Options, explore};
//!
//! let program = Command::shell("./bank transfer bank.img", None);
//! let recover = Command::shell("./bank check bank.img", None);
//! let mut options = Options::new(program, recover, "crashes".into());
//! options.pm_globs = vec!["*.img".into()];
//! let exploration = explore(&options, &mut ())?;
//! for (finding, crash) in &exploration.findings {
//!     println!("{}: {:?}", finding.message, crash.crashes);
//! }
//! if !exploration.coverage.open().is_empty() {
//!     println!("not all was explored: {:?}", exploration.coverage);
//! }
//! # Ok::<(), brownout_explore::Error>(())
//! ```
mod before;
mod blame;
mod checksum;
mod compare;
mod confirm;
mod content;
pub mod crashes;
mod execution;
mod executor;
mod explore;
#[cfg(test)]
mod fake;
mod files;
mod filing;
mod finding;
mod ground;
mod input;
mod interleaving;
mod journal;
mod line;
mod minimise;
mod native;
mod nested;
mod operations;
mod options;
mod oracle;
mod outcome;
mod pm_only;
mod pool;
mod ready;
mod recording;
mod replay;
mod run;
mod search;
mod site;
mod stacks;
mod statistics;
mod trial;
mod trie;
mod unit;
mod view;
mod waits;
mod world;

pub use confirm::{settle, suspect};
pub use execution::{Command, quote};
pub use explore::{explore, explore_run};
pub use finding::{CrashSpec, OneCrash};
pub use ground::Ground;
pub use options::{Distinct, Error, Exploration, Files, Options, Start};
pub use oracle::signal_name;
pub use outcome::{Hang, Outcome, Status, is_fatal};
pub use pm_only::PmOnly;
pub use replay::{Located, Replayed, locate, replay};
pub use run::{Besides, Run, RunRecorder, record_beside, record_run};
pub use search::{Progress, Statistics};
pub use statistics::{Explored, Numbers};
pub use trial::{Crash, Happened, Stored, Trial, Tried, Wish};

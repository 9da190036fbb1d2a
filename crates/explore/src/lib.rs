//! Model-checks what recovery does in every distinct crash state of a recorded run.
//!
//! ```text
//!  program ─▶ recording ─▶ failure points ─▶ search ─▶ outcomes ─▶ oracle ─▶ failures ─▶ minimise ─▶ findings
//!             timeline of     (view)          │  ▲
//!             crash states                    ▼  │ what was read, and how it ended
//!                                    trie ◀─ pool of worlds, each runs recoveries
//! ```
mod blame;
mod checksum;
mod compare;
mod confirm;
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
mod trie;
mod unit;
mod view;
mod world;

pub use confirm::{settle, suspect};
pub use execution::Command;
pub use explore::{explore, explore_run};
pub use finding::{CrashSpec, OneCrash};
pub use options::{Error, Exploration, Options};
pub use outcome::{Hang, Outcome, Status};
pub use replay::{Replayed, replay};
pub use run::{Run, record_run};
pub use search::{Progress, Statistics};
pub use statistics::{Explored, Numbers};

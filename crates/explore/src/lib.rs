//! Model-checks what recovery does in every distinct crash state of a recorded run.
//!
//! ```text
//!  program ─▶ recording ─▶ failure points ─▶ search ─▶ outcomes ─▶ oracle ─▶ failures ─▶ minimise ─▶ findings
//!             timeline of     (view)          │  ▲
//!             crash states                    ▼  │ what was read, and how it ended
//!                                    trie ◀─ pool of worlds, each runs recoveries
//! ```
mod execution;
mod explore;
mod files;
mod finding;
mod journal;
mod minimise;
mod native;
mod oracle;
mod outcome;
mod place;
mod pool;
mod recording;
mod search;
mod stacks;
mod trie;
mod view;
mod world;

pub use execution::Command;
pub use explore::{Error, Exploration, Options, Replayed, explore, replay};
pub use finding::{CrashSpec, OneCrash};
pub use outcome::{Hang, Outcome, Status};
pub use search::{Progress, Statistics};

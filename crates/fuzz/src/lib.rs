//! Generates inputs, and normal and crash images, that reach persistent-memory code, and judges
//! what happens.
//!
//! ```text
//!  seeds ─▶ corpus ─▶ scheduler ─▶ changed inputs ─▶ runner: a warm server for each image ─▶ sight ─▶ novelty ─▶ corpus
//!             ▲                                         │                                      └▶ judge ─▶ findings
//!             └── images: what runs leave, what crashes leave ◀┘
//! ```
//! **Source.** PMFuzz (ASPLOS'21): test cases are inputs and images, images come from the program
//! or from crashes, PM paths steer.
//!
//! **Deviations.** Crash images follow the persistency model instead of killing the program; what
//! was pending at fences, and what recovery does, steer the search as PM paths do; every execution
//! is judged. The loop, corpora and mutators of bytes are LibAFL's.
mod campaign;
mod case;
mod chain;
mod deep;
mod detect;
mod error;
mod export;
mod feedback;
mod judge;
mod kept;
mod least;
mod live;
mod mutate;
mod options;
mod partners;
mod pool;
mod progress;
mod record;
mod runner;
mod sanitizer;
mod scheduler;
mod traces;
mod worker;

pub use brownout_campaign::budget::{Limits, Over};
pub use brownout_campaign::{course, folder, status};
pub use brownout_inputs::{TemplateError, Templates, Tokens};
pub use brownout_stage::{Delivery, Endpoint, Served, Server, Target, Workshop};
pub use campaign::{Campaign, fuzz};
pub use case::Case;
pub use error::Error;
pub use judge::{Ended, Ending, Found, Judge};
pub use kept::{ImageInTree, Kept, Least, Named, Way};
pub use least::{Cover, Shown};
pub use options::{Images, Options};
pub use progress::Progress;
pub use record::{KeptCase, Key, Settings};
pub use runner::{Runner, Times};
pub use worker::Figures;

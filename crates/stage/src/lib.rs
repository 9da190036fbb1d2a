//! A program on an image of its files, ready for one input after the other, however that reaches
//! it.
//!
//! ```text
//!  Target ─▶ Workshop ─▶ root: the image that the set-up leaves
//!                     └▶ Server on an image ─▶ run(input) ─▶ events for sinks, Outcome, Watch
//! ```
//! Whoever tries many inputs stands on it: fuzzing, and the search for inputs that are solved for.
//!
//! **Guarantee.** What a run does depends on the image and the input alone, and is what a freshly
//! launched program would do; nothing outside of its private view of the machine is changed.
//!
//! **Source.** PMFuzz (ASPLOS'21) for images as a part of test cases. **Deviation.** A program is
//! forked where it first looks at its input, not where it begins.
mod client;
mod closer;
mod delivery;
mod error;
mod fault;
mod root;
mod server;
mod target;
mod watch;

pub use client::{Feeder, Served, connections};
pub use closer::{Causes, Closer, Recorded};
pub use delivery::{
    ARGUMENT, Delivery, Endpoint, FEEDER, FEEDER_TEXT, FILE, InputFile, Place, filled, quoted,
};
pub use error::Error;
pub use fault::{is_fault, signal_name};
pub use root::{Origins, root};
pub use server::{Ran, Server, Tells, Workshop, layout_after};
pub use target::Target;
pub use watch::{Counters, MAP, PAGE, Watch};

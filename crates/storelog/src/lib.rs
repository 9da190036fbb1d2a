//! pmemcheck's store log, in and out.
//!
//! Purpose: people who come from pmemcheck have logs, and have `pmreorder`. [`Importer`] reads a
//! log as if it were a recording, so that every analysis takes it; [`Exporter`] writes a recording
//! as a log that `pmreorder` takes.
//!
//! The format is one line of elements, separated by `|`, numbers in hexadecimal:
//!
//! ```text
//! START|REGISTER_FILE;path;base;size;offset|STORE;addr;value;size[;frame…]|FLUSH;addr;size|FENCE|marker|STOP
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`import`] | log to events |
//! | [`export`] | events to log |
//! | [`frames`] | the call stacks that a log holds as text |
//!
//! Guarantees: reading takes memory for one element and for the distinct call stacks, whatever the
//! length of the log; no input makes it panic; what it cannot understand is an error with the place
//! in the log. Stores keep their order and their bytes in both directions, flushes and fences keep
//! their place among them.
//!
//! Source: what pmemcheck (`pmc_main.c` of pmem/valgrind) writes, and what `pmreorder` (PMDK 1.12)
//! accepts. Where the two disagree, each direction follows its counterpart. What the format cannot
//! express stands in the headers of [`import`] and [`export`], and for users in
//! `docs/pmemcheck.md`.
//!
//! ```
//! use brownout_storelog::{Exporter, Importer};
//!
//! let log = "START|REGISTER_FILE;/pm/a;0x1000;0x1000;0x0|STORE;0x1000;0x2a;0x8|FLUSH;0x1000;0x40|FENCE|STOP\n";
//! let mut again = Vec::new();
//! let mut importer = Importer::new(log.as_bytes());
//! let mut exporter = Exporter::new(&mut again);
//! while let Some(event) = importer.next()? {
//!     exporter.event(&event)?;
//! }
//! exporter.finish()?;
//! assert_eq!(again, log.as_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod elements;
mod error;
pub mod export;
pub mod frames;
pub mod import;
mod layout;
mod markers;
mod ranges;

pub use error::Error;
pub use export::{Exported, Exporter};
pub use frames::Frames;
pub use import::Importer;

/// Bytes that one write-back instruction writes back.
const LINE: u64 = 64;

//! What is fuzzed.

use std::ffi::OsString;

use crate::delivery::Delivery;

/// A program, and which of its files are persistent memory.
#[derive(Clone, Debug)]
pub struct Target {
    /// A path, or a name to look up in `PATH`.
    pub program: OsString,
    /// Its arguments, with what stands for the input.
    pub args: Vec<OsString>,
    /// Patterns of files that are persistent memory.
    pub pm_globs: Vec<String>,
    /// How its input reaches it.
    pub delivery: Delivery,
}

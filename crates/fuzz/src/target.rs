//! What is fuzzed.

use std::ffi::OsString;

/// A program, and which of its files are persistent memory.
#[derive(Clone, Debug)]
pub struct Target {
    /// A path, or a name to look up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Patterns of files that are persistent memory.
    pub pm_globs: Vec<String>,
}

//! Why a rule cannot be used.

use std::fmt;

use crate::abi::VERSION;

/// Why a library cannot be used.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such file, or it cannot be read.
    Unreadable {
        /// As given.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// The dynamic linker refuses it.
    NotLoadable {
        /// As given.
        path: String,
        /// What the linker says.
        reason: String,
    },
    /// A library, but not a rule.
    NotARule {
        /// As given.
        path: String,
    },
    /// Built for another version of the interface.
    WrongVersion {
        /// As given.
        path: String,
        /// Its version.
        theirs: u32,
    },
    /// Its table is damaged: too short, without an entry point, or with an id that is none.
    Malformed {
        /// As given.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The rule itself does not want to start.
    Refused {
        /// As given.
        path: String,
        /// What it says.
        reason: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unreadable { path, reason } => {
                write!(f, "cannot read the rule {path}: {reason}")
            }
            LoadError::NotLoadable { path, reason } => write!(
                f,
                "cannot load the rule {path}, which must be a shared library for x86-64 Linux: {reason}"
            ),
            LoadError::NotARule { path } => write!(
                f,
                "{path} is a shared library but not a rule: build it as a `cdylib` that calls `brownout_rule::export_rule!`"
            ),
            LoadError::WrongVersion { path, theirs } => write!(
                f,
                "the rule {path} was built for version {theirs} of the rule interface, and this brownout has version \
                 {VERSION}: rebuild it with the brownout-rule that belongs to this brownout"
            ),
            LoadError::Malformed { path, reason } => {
                write!(
                    f,
                    "the rule {path} is damaged: {reason}; rebuild it from clean sources"
                )
            }
            LoadError::Refused { path, reason } => {
                write!(f, "the rule {path} does not start: {reason}")
            }
        }
    }
}

impl std::error::Error for LoadError {}

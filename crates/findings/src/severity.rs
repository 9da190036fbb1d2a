//! How bad a finding is.

use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Data can be lost or damaged by a crash.
    Correctness,
    /// It may be meant so: only who knows the program can tell whether it is a bug.
    Warning,
    /// Work that gains nothing.
    Performance,
}

impl Severity {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Correctness => "correctness",
            Severity::Warning => "warning",
            Severity::Performance => "performance",
        }
    }
}

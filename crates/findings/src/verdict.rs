//! What a report comes to.

use serde::{Deserialize, Serialize};

/// What the report says in one word. [`Coverage::verdict`](crate::Coverage::verdict) makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All was looked at and nothing is wrong.
    Clean,
    /// Something is wrong.
    Findings,
    /// There was nothing to look at: no persistent memory was touched. Not a clean bill.
    NothingChecked,
    /// Not everything was looked at; what was found is shown, the rest is unknown.
    Incomplete,
}

//! Lines of source code with what they have done to persistent memory, as plain data.
//! [`touched`](crate::touched) says what is guaranteed of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What was done to persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Touch {
    /// A store by the program.
    Stores,
    /// A write-back of a cache line by the program.
    Flushes,
    /// A fence of the program.
    Fences,
    /// The program has begun a transaction, or added a range to one.
    Transactions,
    /// What runs after a crash has read persistent memory, has stored to it, has written back a
    /// cache line or has fenced.
    Recovery,
    /// The power failed in front of it: crash states that were tried.
    Crashes,
}

impl Touch {
    /// All of them, in their order.
    pub const ALL: [Touch; 6] = [
        Touch::Stores,
        Touch::Flushes,
        Touch::Fences,
        Touch::Transactions,
        Touch::Recovery,
        Touch::Crashes,
    ];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Touch::Stores => "stores",
            Touch::Flushes => "flushes",
            Touch::Fences => "fences",
            Touch::Transactions => "transactions",
            Touch::Recovery => "recovery",
            Touch::Crashes => "crashes",
        }
    }
}

/// A line of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TouchedLine {
    /// Its number.
    pub line: u32,
    /// The function that its code belongs to; a line of a header or a template may stand here for
    /// each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// How often each thing was done.
    pub times: BTreeMap<Touch, u64>,
}

/// A file with lines that touched persistent memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TouchedFile {
    /// As frames name it.
    pub file: String,
    /// By number and function.
    pub lines: Vec<TouchedLine>,
}

/// What a report says of it: see [`touched`](crate::touched).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    /// By name.
    pub files: Vec<TouchedFile>,
    /// So many places of the code, each with its callers, have no source line.
    #[serde(default)]
    pub unknown: u64,
    /// Lines that could make something persistent, or store to persistent memory by libpmem's
    /// functions, and were not seen to do so: how often is 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<TouchedFile>,
}

impl Touched {
    /// How many lines there are, each once.
    pub fn lines(&self) -> usize {
        lines(&self.files)
    }

    /// How many lines there are that were not seen to do what they could, each once.
    pub fn missed_lines(&self) -> usize {
        lines(&self.missed)
    }
}

fn lines(files: &[TouchedFile]) -> usize {
    let numbers = |file: &TouchedFile| {
        let lines = file.lines.iter().map(|line| line.line);
        lines.collect::<BTreeSet<_>>().len()
    };
    files.iter().map(numbers).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_report() {
        for touch in Touch::ALL {
            let json = serde_json::to_value(touch).expect("text");
            assert_eq!(json, touch.name());
        }
    }
}

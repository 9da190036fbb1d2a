//! Which source lines touched persistent memory, and how often.
//!
//! **Guarantee.** A line is there if an instruction of it, or of a library that it called for that purpose, was executed and
//! did such a thing; its number is how often, over all runs that were counted. What was executed at no line that is known counts as
//! [`unknown`](Touched::unknown).
//!
//! **Deviation.** Only what was executed is there: which instructions *could* touch persistent memory is known of none that has not.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Frame, blame};

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
    /// What runs after a crash has read persistent memory, or has stored to it.
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
    /// The function that its code belongs to; a line of a header or a template may stand here for each.
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

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    /// By name.
    pub files: Vec<TouchedFile>,
    /// So many places of the code, each with its callers, have no source line.
    #[serde(default)]
    pub unknown: u64,
}

/// Adds lines up; see [`Touched`].
#[derive(Clone, Debug, Default)]
pub struct Adding {
    lines: BTreeMap<(String, u32, Option<String>), BTreeMap<Touch, u64>>,
    unknown: u64,
}

impl Adding {
    /// Something was done so many times at the line that stands for a call stack.
    pub fn at(&mut self, stack: &[Frame], times: impl IntoIterator<Item = (Touch, u64)>) {
        let place = blame::frame(stack).and_then(|frame| {
            let (file, line) = (frame.file.clone()?, frame.line?);
            Some((file, line, frame.function.clone()))
        });
        match place {
            Some(place) => self.add(place, times),
            None => self.unknown += 1,
        }
    }

    fn add(
        &mut self,
        place: (String, u32, Option<String>),
        times: impl IntoIterator<Item = (Touch, u64)>,
    ) {
        let known = self.lines.entry(place).or_default();
        for (touch, times) in times {
            let count = known.entry(touch).or_default();
            *count = count.saturating_add(times);
        }
    }

    /// What somebody else has counted.
    pub fn all_of(&mut self, touched: Touched) {
        for file in touched.files {
            for line in file.lines {
                self.add((file.file.clone(), line.line, line.function), line.times);
            }
        }
        self.unknown = self.unknown.saturating_add(touched.unknown);
    }

    /// The sum.
    pub fn total(self) -> Touched {
        let mut files: Vec<TouchedFile> = Vec::new();
        for ((file, line, function), times) in self.lines {
            if files.last().is_none_or(|last| last.file != file) {
                files.push(TouchedFile {
                    file,
                    lines: Vec::new(),
                });
            }
            if let Some(last) = files.last_mut() {
                last.lines.push(TouchedLine {
                    line,
                    function,
                    times,
                });
            }
        }
        Touched {
            files,
            unknown: self.unknown,
        }
    }
}

impl Touched {
    /// How many lines there are, each once.
    pub fn lines(&self) -> usize {
        let numbers = |file: &TouchedFile| {
            let lines = file.lines.iter().map(|line| line.line);
            lines.collect::<BTreeSet<_>>().len()
        };
        self.files.iter().map(numbers).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(line: u32, function: &str) -> Frame {
        Frame {
            file: Some("/s/a.c".into()),
            line: Some(line),
            function: Some(function.into()),
            ..Frame::default()
        }
    }

    #[test]
    fn what_is_added_is_sorted_and_summed_up() {
        let mut adding = Adding::default();
        adding.at(&[frame(9, "put")], [(Touch::Stores, 2)]);
        adding.at(
            &[frame(7, "put")],
            [(Touch::Flushes, 1), (Touch::Stores, 1)],
        );
        adding.at(&[frame(9, "put")], [(Touch::Stores, 3)]);
        adding.at(&[frame(9, "get")], [(Touch::Recovery, u64::MAX)]);
        adding.at(&[], [(Touch::Stores, 1)]);
        let first = adding.total();
        assert_eq!((first.lines(), first.unknown), (2, 1));
        let lines = &first.files[0].lines;
        let told: Vec<_> = lines
            .iter()
            .map(|line| (line.line, line.function.as_deref(), line.times.len()))
            .collect();
        assert_eq!(
            told,
            [
                (7, Some("put"), 2),
                (9, Some("get"), 1),
                (9, Some("put"), 1)
            ]
        );
        assert_eq!(lines[2].times[&Touch::Stores], 5);
        let mut both = Adding::default();
        both.all_of(first.clone());
        both.all_of(first);
        let both = both.total();
        assert_eq!((both.lines(), both.unknown), (2, 2));
        assert_eq!(both.files[0].lines[1].times[&Touch::Recovery], u64::MAX);
        assert_eq!(both.files[0].lines[2].times[&Touch::Stores], 10);
    }

    #[test]
    fn names_are_those_of_the_report() {
        for touch in Touch::ALL {
            let json = serde_json::to_value(touch).expect("text");
            assert_eq!(json, touch.name());
        }
    }
}

//! Which source lines touched persistent memory, and how often.
//!
//! **Guarantee.** A line is there if an instruction of it, or of a library that it called for that
//! purpose, was executed and did such a thing; its number is how often, over all runs that were
//! counted. What was executed at no line that is known counts as [`unknown`](Touched::unknown).
//!
//! **Deviation.** Only what was executed is there: which instructions *could* touch persistent
//! memory is known of none that has not.

use std::collections::BTreeMap;

pub use crate::touches::{Touch, Touched, TouchedFile, TouchedLine};
use crate::{Frame, blame};

/// Adds lines up.
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
}

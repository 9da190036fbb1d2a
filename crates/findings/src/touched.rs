//! Which source lines touched persistent memory, and how often.
//!
//! **Guarantee.** A line is there if an instruction of it, or of a library that it called for that
//! purpose, was executed and did such a thing; its number is how often, over all runs that were
//! counted. What was executed at no line that is known counts as [`unknown`](Touched::unknown).
//!
//! A line is [missed](Touched::missed) if code of it could persist something, and it was not seen
//! to do so in any run that was counted.
//!
//! **Deviations.** Which instructions *could* store to persistent memory, or read it, is known of
//! none that has not. So of what was not executed, only write-backs, fences and calls of libpmem's
//! functions are there. Whether those would concern persistent memory is not known either. What
//! recovery does is one sort, whatever it is: a line at which recovery has done anything is not
//! missed, although some of what the line could do may have been left out.

use std::collections::{BTreeMap, BTreeSet};

pub use crate::touches::{Touch, Touched, TouchedFile, TouchedLine};
use crate::{Frame, blame};

/// File, line, function.
type Place = (String, u32, Option<String>);

/// Adds lines up.
#[derive(Clone, Debug, Default)]
pub struct Adding {
    lines: BTreeMap<Place, BTreeMap<Touch, u64>>,
    /// What could be done where.
    possible: BTreeSet<(Place, Touch)>,
    unknown: u64,
}

/// The line that stands for a call stack.
fn place_of(stack: &[Frame]) -> Option<Place> {
    let frame = blame::frame(stack)?;
    let (file, line) = (frame.file.clone()?, frame.line?);
    Some((file, line, frame.function.clone()))
}

impl Adding {
    /// Something was done so many times at the line that stands for a call stack.
    pub fn at(&mut self, stack: &[Frame], times: impl IntoIterator<Item = (Touch, u64)>) {
        match place_of(stack) {
            Some(place) => self.add(place, times),
            None => self.unknown += 1,
        }
    }

    /// Something could be done at the line that stands for a call stack. What a language's library
    /// has in itself is nobody's to reach.
    pub fn could(&mut self, stack: &[Frame], touch: Touch) {
        if !stack.iter().all(Frame::is_standard_library)
            && let Some(place) = place_of(stack)
        {
            self.possible.insert((place, touch));
        }
    }

    fn add(&mut self, place: Place, times: impl IntoIterator<Item = (Touch, u64)>) {
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
        for file in touched.missed {
            for line in file.lines {
                let place = (file.file.clone(), line.line, line.function);
                let sorts = line.times.into_keys();
                self.possible
                    .extend(sorts.map(|touch| (place.clone(), touch)));
            }
        }
        self.unknown = self.unknown.saturating_add(touched.unknown);
    }

    /// The sum.
    pub fn total(self) -> Touched {
        // Of a header or a template, the line is one, whichever function it is a part of.
        let seen: BTreeSet<(&str, u32, Touch)> = (self.lines.iter())
            .flat_map(|((file, line, _), times)| {
                times
                    .keys()
                    .map(move |touch| (file.as_str(), *line, *touch))
            })
            .collect();
        let mut missed: BTreeMap<Place, BTreeMap<Touch, u64>> = BTreeMap::new();
        for (place, touch) in &self.possible {
            let is_seen = |touch| seen.contains(&(place.0.as_str(), place.1, touch));
            if !is_seen(*touch) && !is_seen(Touch::Recovery) {
                missed.entry(place.clone()).or_default().insert(*touch, 0);
            }
        }
        Touched {
            missed: by_file(missed),
            files: by_file(self.lines),
            unknown: self.unknown,
        }
    }
}

fn by_file(lines: BTreeMap<Place, BTreeMap<Touch, u64>>) -> Vec<TouchedFile> {
    let mut files: Vec<TouchedFile> = Vec::new();
    for ((file, line, function), times) in lines {
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
    files
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
    fn what_one_run_has_missed_another_may_have_done() {
        let mut one = Adding::default();
        one.at(&[frame(7, "put")], [(Touch::Flushes, 2)]);
        one.could(&[frame(7, "other")], Touch::Flushes);
        one.could(&[frame(7, "put")], Touch::Fences);
        one.could(&[frame(9, "put")], Touch::Flushes);
        // Whoever recovers has been there.
        one.could(&[frame(11, "recover")], Touch::Stores);
        one.could(&[frame(11, "recover")], Touch::Fences);
        one.at(&[frame(11, "recover")], [(Touch::Recovery, 1)]);
        one.could(&[], Touch::Flushes);
        let one = one.total();
        assert_eq!((one.lines(), one.missed_lines()), (2, 2));
        let mut two = Adding::default();
        two.at(&[frame(9, "put")], [(Touch::Flushes, 1)]);
        two.all_of(one);
        let both = two.total();
        let missed: Vec<_> = (both.missed.iter().flat_map(|file| &file.lines))
            .map(|line| (line.line, line.times.clone()))
            .collect();
        assert_eq!(missed, [(7, BTreeMap::from([(Touch::Fences, 0)]))]);
    }
}

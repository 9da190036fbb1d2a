//! Which lines of the program touched persistent memory, in the form that `lcov` and `genhtml`
//! read.
//!
//! **Purpose.** `--coverage FILE`: existing viewers (genhtml, editors, code hosts) show where a run
//! stored to persistent memory, wrote back, fenced and began transactions, and so what no test has
//! reached yet.
//!
//! **Guarantee.** A line is there if an instruction of it, or of a library that it called for that
//! purpose, did such a thing; its number is how often. Each sort of event is a test of its own
//! (`TN`), so that viewers can tell them apart.
//!
//! **Deviation.** Only what was executed is there: which instructions *could* touch persistent
//! memory is known of none that has not. So the share of lines hit is 100 % by construction, and
//! the view of the source tells more than the number.
//!
//! **Source.** The description of the format in geninfo's manual page.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

/// A sort of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sort {
    /// Stores to persistent memory.
    Stores,
    /// Write-backs of cache lines.
    Flushes,
    /// Fences, and what makes files durable.
    Fences,
    /// Transactions that began, and ranges that were added to one.
    Transactions,
}

impl Sort {
    /// The name of the test that stands for it: letters only, as the format wants it.
    fn name(self) -> &'static str {
        match self {
            Sort::Stores => "pm_stores",
            Sort::Flushes => "pm_flushes",
            Sort::Fences => "pm_fences",
            Sort::Transactions => "pm_transactions",
        }
    }
}

/// Functions and lines of one file, and how often each was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    lines: BTreeMap<u32, u64>,
    /// By name: the first of its lines that was there, and how often.
    functions: BTreeMap<String, (u32, u64)>,
}

/// What touched persistent memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    files: BTreeMap<(Sort, String), File>,
}

impl Lines {
    /// An event happened so many times at this line of a file, in this function.
    pub fn add(&mut self, sort: Sort, file: &str, line: u32, function: Option<&str>, times: u64) {
        let file = self.files.entry((sort, file.to_owned())).or_default();
        *file.lines.entry(line).or_default() += times;
        if let Some(function) = function {
            let known = file.functions.entry(function.to_owned());
            let (first, count) = known.or_insert((line, 0));
            *first = line.min(*first);
            *count += times;
        }
    }

    /// How many lines there are, each once.
    pub fn len(&self) -> usize {
        let lines = self.files.iter().flat_map(|((_, file), of)| {
            let lines = of.lines.keys();
            lines.map(move |line| (file.as_str(), *line))
        });
        lines.collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Nothing touched persistent memory, or it is not known from where.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Writes it. Names that would break a line are left out.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        let is_fine = |text: &str| !text.contains(|c: char| c.is_control());
        for ((sort, name), file) in &self.files {
            if !is_fine(name) {
                continue;
            }
            writeln!(out, "TN:{}\nSF:{name}", sort.name())?;
            // A comma would end the name.
            let functions = file.functions.iter();
            let functions: Vec<_> = functions
                .filter(|(function, _)| is_fine(function))
                .map(|(function, told)| (function.replace(',', ";"), told))
                .collect();
            for (function, (line, _)) in &functions {
                writeln!(out, "FN:{line},{function}")?;
            }
            for (function, (_, count)) in &functions {
                writeln!(out, "FNDA:{count},{function}")?;
            }
            let count = functions.len();
            writeln!(out, "FNF:{count}\nFNH:{count}")?;
            for (line, times) in &file.lines {
                writeln!(out, "DA:{line},{times}")?;
            }
            let count = file.lines.len();
            writeln!(out, "LF:{count}\nLH:{count}\nend_of_record")?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort_has_a_section_for_each_file() {
        let mut lines = Lines::default();
        assert!(lines.is_empty());
        lines.add(Sort::Flushes, "/s/a.c", 9, Some("put"), 1);
        lines.add(Sort::Stores, "/s/a.c", 9, Some("put"), 2);
        lines.add(Sort::Stores, "/s/a.c", 7, Some("put"), 3);
        lines.add(Sort::Stores, "/s/a.c", 9, Some("put"), 1);
        lines.add(Sort::Stores, "/s/new\nline.c", 1, None, 1);
        assert_eq!(lines.len(), 3);
        let mut text = Vec::new();
        lines.write(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "TN:pm_stores\nSF:/s/a.c\nFN:7,put\nFNDA:6,put\nFNF:1\nFNH:1\nDA:7,3\nDA:9,3\nLF:2\nLH:2\nend_of_record\n\
             TN:pm_flushes\nSF:/s/a.c\nFN:9,put\nFNDA:1,put\nFNF:1\nFNH:1\nDA:9,1\nLF:1\nLH:1\nend_of_record\n"
        );
    }
}

//! Which lines of the program touched persistent memory, in the form that `lcov` and `genhtml`
//! read.
//!
//! **Purpose.** `--coverage FILE`: existing viewers (genhtml, editors, code hosts) show where runs
//! stored to persistent memory, wrote back, fenced and began transactions, where recovery looked and
//! where the power failed; and so what no test has reached yet.
//!
//! **Guarantee.** It has what a report [says](brownout_findings::touched), and nothing else. Each
//! sort of event is a test of its own (`TN`), so that viewers can tell them apart.
//!
//! **Deviation.** Only what was executed is there: which instructions *could* touch persistent
//! memory is known of none that has not. So the share of lines hit is 100 % by construction, and
//! the view of the source tells more than the number. Names that would break a line are left out.
//!
//! **Source.** The description of the format in geninfo's manual page.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use brownout_findings::touched::{Touch, Touched, TouchedFile};

/// Functions and lines of one file, and how often each was there.
#[derive(Default)]
struct Section<'a> {
    lines: BTreeMap<u32, u64>,
    /// By name: the first of its lines that was there, and how often.
    functions: BTreeMap<&'a str, (u32, u64)>,
}

impl<'a> Section<'a> {
    fn of(touch: Touch, file: &'a TouchedFile) -> Section<'a> {
        let mut section = Section::default();
        for line in &file.lines {
            let Some(times) = line.times.get(&touch).copied() else {
                continue;
            };
            let count = section.lines.entry(line.line).or_default();
            *count = count.saturating_add(times);
            if let Some(function) = line.function.as_deref().filter(|name| is_fine(name)) {
                let (first, count) = section.functions.entry(function).or_insert((line.line, 0));
                *first = line.line.min(*first);
                *count = count.saturating_add(times);
            }
        }
        section
    }
}

fn is_fine(text: &str) -> bool {
    !text.contains(|c: char| c.is_control())
}

/// Writes it.
pub fn write(touched: &Touched, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for touch in Touch::ALL {
        for file in touched.files.iter().filter(|file| is_fine(&file.file)) {
            let section = Section::of(touch, file);
            if section.lines.is_empty() {
                continue;
            }
            // The name of a test has letters, digits and underscores only.
            writeln!(out, "TN:pm_{}\nSF:{}", touch.name(), file.file)?;
            // A comma would end the name.
            let name = |function: &str| function.replace(',', ";");
            for (function, (line, _)) in &section.functions {
                writeln!(out, "FN:{line},{}", name(function))?;
            }
            for (function, (_, count)) in &section.functions {
                writeln!(out, "FNDA:{count},{}", name(function))?;
            }
            let count = section.functions.len();
            writeln!(out, "FNF:{count}\nFNH:{count}")?;
            for (line, times) in &section.lines {
                writeln!(out, "DA:{line},{times}")?;
            }
            let count = section.lines.len();
            writeln!(out, "LF:{count}\nLH:{count}\nend_of_record")?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use brownout_findings::Frame;
    use brownout_findings::touched::Adding;

    use super::*;

    #[test]
    fn each_sort_has_a_section_for_each_file() {
        let mut adding = Adding::default();
        let mut add = |touch, file: &str, line, function: &str, times| {
            let frame = Frame {
                file: Some(file.into()),
                line: Some(line),
                function: Some(function.into()),
                ..Frame::default()
            };
            adding.at(&[frame], [(touch, times)]);
        };
        add(Touch::Flushes, "/s/a.c", 9, "put", 1);
        add(Touch::Stores, "/s/a.c", 9, "put", 2);
        add(Touch::Stores, "/s/a.c", 7, "put", 3);
        add(Touch::Stores, "/s/a.c", 9, "put<a, b>", 1);
        add(Touch::Stores, "/s/new\nline.c", 1, "put", 1);
        let mut text = Vec::new();
        write(&adding.total(), &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "TN:pm_stores\nSF:/s/a.c\nFN:7,put\nFN:9,put<a; b>\nFNDA:5,put\nFNDA:1,put<a; b>\nFNF:2\nFNH:2\nDA:7,3\nDA:9,3\nLF:2\nLH:2\nend_of_record\n\
             TN:pm_flushes\nSF:/s/a.c\nFN:9,put\nFNDA:1,put\nFNF:1\nFNH:1\nDA:9,1\nLF:1\nLH:1\nend_of_record\n"
        );
    }
}

//! Which lines of the program touched persistent memory, in the form that `lcov` and `genhtml`
//! read.
//!
//! **Purpose.** `--coverage FILE`: existing viewers (genhtml, editors, code hosts) show where runs
//! stored to persistent memory, wrote back, fenced and began transactions, where recovery looked
//! and where the power failed; and so what no test has reached yet.
//!
//! **Guarantee.** It has what a report [says](brownout_findings::touched), and nothing else. Each
//! sort of event is a test of its own (`TN`), so that viewers can tell them apart. Lines that could
//! have written back, fenced or stored by libpmem's functions, and were not seen to do so, have the
//! count 0. What recovery has done is such a sort, too; so a line that only recovery executes is in
//! that test alone.
//!
//! **Deviation.** Of what was not executed, only write-backs, fences and calls of libpmem are
//! there: which instructions *could* store to persistent memory is known of none that has not. So
//! the share of lines hit says little, and the view of the source tells more than the number. Names
//! that would break a line are left out.
//!
//! **Source.** The description of the format in geninfo's manual page.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Lines of one file: those that were reached, and those that were not.
    fn of(touch: Touch, parts: [Option<&'a TouchedFile>; 2]) -> Section<'a> {
        let mut section = Section::default();
        for line in parts.into_iter().flatten().flat_map(|file| &file.lines) {
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
        let parts = [&touched.files, &touched.missed];
        let names: BTreeSet<&str> = (parts.into_iter().flatten())
            .map(|file| file.file.as_str())
            .filter(|name| is_fine(name))
            .collect();
        for name in names {
            let part = |files: &'_ Vec<TouchedFile>| files.iter().position(|f| f.file == name);
            let section = Section::of(touch, parts.map(|files| Some(&files[part(files)?])));
            if section.lines.is_empty() {
                continue;
            }
            // The name of a test has letters, digits and underscores only.
            writeln!(out, "TN:pm_{}\nSF:{name}", touch.name())?;
            // A comma would end the name.
            let name = |function: &str| function.replace(',', ";");
            for (function, (line, _)) in &section.functions {
                writeln!(out, "FN:{line},{}", name(function))?;
            }
            for (function, (_, count)) in &section.functions {
                writeln!(out, "FNDA:{count},{}", name(function))?;
            }
            let hit = section.functions.values().filter(|one| one.1 > 0).count();
            writeln!(out, "FNF:{}\nFNH:{hit}", section.functions.len())?;
            for (line, times) in &section.lines {
                writeln!(out, "DA:{line},{times}")?;
            }
            let hit = section.lines.values().filter(|times| **times > 0).count();
            writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", section.lines.len())?;
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
        let missed = |file: &str, line, function: &str| Frame {
            file: Some(file.into()),
            line: Some(line),
            function: Some(function.into()),
            ..Frame::default()
        };
        adding.could(&[missed("/s/a.c", 9, "put")], Touch::Flushes);
        adding.could(&[missed("/s/a.c", 20, "never")], Touch::Flushes);
        adding.could(&[missed("/s/b.c", 2, "never")], Touch::Fences);
        let mut text = Vec::new();
        write(&adding.total(), &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "TN:pm_stores\nSF:/s/a.c\nFN:7,put\nFN:9,put<a; b>\nFNDA:5,put\nFNDA:1,put<a; b>\nFNF:2\nFNH:2\nDA:7,3\nDA:9,3\nLF:2\nLH:2\nend_of_record\n\
             TN:pm_flushes\nSF:/s/a.c\nFN:20,never\nFN:9,put\nFNDA:0,never\nFNDA:1,put\nFNF:2\nFNH:1\nDA:9,1\nDA:20,0\nLF:2\nLH:1\nend_of_record\n\
             TN:pm_fences\nSF:/s/b.c\nFN:2,never\nFNDA:0,never\nFNF:1\nFNH:0\nDA:2,0\nLF:1\nLH:0\nend_of_record\n"
        );
    }
}

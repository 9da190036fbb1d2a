//! Source lines that travel with a report.
//!
//! **Purpose.** A page, or a saved report, is read elsewhere: on a machine that has no sources, or
//! after they have changed. So the lines around what findings name are put into the report while
//! they can still be read.
//!
//! **Guarantee.** Only ordinary files are read, each once. Only lines near a frame that the report
//! names are taken, and what is taken is bounded: [`AROUND`] lines on either side,
//! [`LINE_CHARS_MAX`] characters of a line, [`TEXT_BYTES_MAX`] bytes in all. The findings at the
//! front of the report come first, so that it is the least important ones that go without; lines
//! that touched persistent memory, where those were counted, come last, and behind them those that
//! could have made something persistent.
//!
//! **Deviations.** A line that is cut ends with `…`. Bytes that are not UTF-8 are replaced, as
//! everywhere in reports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use brownout_findings::{Excerpt, Frame, Report, SourceText};

use crate::site;
use crate::source::Sources;

/// So many lines are taken before and after the one in question.
pub const AROUND: u32 = 4;
/// Longer lines are cut.
pub const LINE_CHARS_MAX: usize = 240;
/// So much text is taken from all files together.
pub const TEXT_BYTES_MAX: usize = 2 << 20;

/// What is taken of a file.
#[derive(Default)]
struct Taken {
    lines: BTreeMap<u32, String>,
    newer: bool,
}

/// Puts the lines into the report. Paths that are relative start in the folder. A report that has
/// lines already keeps those alone: they are older, and so nearer to what was analysed.
pub fn attach(report: &mut Report, folder: Option<&Path>) {
    attach_if(report, folder, |_| true);
}

/// Endings of names of files that hold sources.
const SOURCES: &[&str] = &[
    "c", "cc", "cpp", "cxx", "c++", "h", "hh", "hpp", "hxx", "inc", "inl", "ipp", "tcc", "rs", "s",
    "S", "go", "d", "zig", "f90", "adb", "pas",
];

/// As [`attach`], for a report whose frames may be somebody else's: only files below the folder
/// that are named as sources are read.
pub fn attach_below(report: &mut Report, folder: &Path) {
    let Ok(below) = folder.canonicalize() else {
        return;
    };
    attach_if(report, Some(folder), |path| {
        let real = folder.join(path).canonicalize();
        real.is_ok_and(|real| {
            let ending = real.extension().and_then(|ending| ending.to_str());
            real.starts_with(&below) && ending.is_some_and(|ending| SOURCES.contains(&ending))
        })
    });
}

fn attach_if(report: &mut Report, folder: Option<&Path>, may_read: impl Fn(&str) -> bool) {
    if !report.sources.is_empty() {
        return;
    }
    let mut sources = Sources::new(folder);
    let mut taken: BTreeMap<&str, Taken> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut room = TEXT_BYTES_MAX;
    let wanted = report.findings.iter().flat_map(|finding| {
        let frames = finding.all_events().flat_map(|event| named(&event.stack));
        let told = frames
            .filter_map(|frame| Some((frame.file.as_ref()?, frame.line?, frame.module.as_deref())));
        // The module of the store is that of the sketch.
        let store = finding.events.first().and_then(|event| event.stack.first());
        let module = store.and_then(|frame| frame.module.as_deref());
        let sketch = finding.sketch.as_ref();
        told.chain(sketch.map(|sketch| (&sketch.file, sketch.line, module)))
    });
    let wanted = wanted.map(|(path, line, module)| (path, line, module, AROUND));
    // Of lines that were touched, the line alone, and only where findings leave room.
    let touched = report.touched.iter();
    let touched = touched.flat_map(|touched| touched.files.iter().chain(&touched.missed));
    let touched = touched.flat_map(|file| {
        let lines = file.lines.iter();
        lines.map(|line| (&file.file, line.line, None, 0))
    });
    for (path, line, module, around) in wanted.chain(touched) {
        if !seen.insert((path, line)) {
            continue;
        }
        if !may_read(path) {
            continue;
        }
        let Some(file) = sources.file(path) else {
            continue;
        };
        if file.line(line).is_none() {
            continue;
        }
        let newer = sources.is_newer(&file, module);
        let of_file = taken.entry(path).or_default();
        of_file.newer |= newer;
        for number in line.saturating_sub(around)..=line.saturating_add(around) {
            if of_file.lines.contains_key(&number) {
                continue;
            }
            let Some(text) = file.line(number) else {
                continue;
            };
            let text = cut(text);
            let Some(left) = room.checked_sub(text.len()) else {
                continue;
            };
            room = left;
            of_file.lines.insert(number, text);
        }
    }
    report.sources = taken
        .into_iter()
        .filter(|(_, taken)| !taken.lines.is_empty())
        .map(|(file, taken)| SourceText {
            file: file.to_owned(),
            newer: taken.newer,
            excerpts: runs(taken.lines),
        })
        .collect();
}

/// The frames that a report shows the source of: the one that stands for the event, and whoever
/// includes its header.
fn named(stack: &[Frame]) -> impl Iterator<Item = &Frame> {
    let site = site::site(stack).map(|at| &stack[at]);
    site.into_iter().chain(site::including(stack))
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Lines that follow each other belong together.
fn runs(lines: BTreeMap<u32, String>) -> Vec<Excerpt> {
    let mut runs: Vec<Excerpt> = Vec::new();
    for (number, text) in lines {
        match runs.last_mut() {
            Some(run) if u64::from(run.line) + run.text.len() as u64 == u64::from(number) => {
                run.text.push(text);
            }
            _ => runs.push(Excerpt {
                line: number,
                text: vec![text],
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::touched::{Adding, Touch};
    use brownout_findings::{Analysed, BuiltIn, Event, Finding, Outcome, Role, Severity};

    fn report(frames: &[(&str, u32)]) -> Report {
        let mut finding = Finding::new(BuiltIn::MissingFlush, Severity::Correctness, "lost");
        for (file, line) in frames {
            let mut event = Event::new(Role::Store, "stored");
            event.stack.push(Frame {
                file: Some((*file).to_owned()),
                line: Some(*line),
                ..Frame::default()
            });
            finding.events.push(event);
        }
        let outcome = Outcome {
            findings: vec![finding],
            ..Outcome::<serde_json::Map<_, _>>::default()
        };
        outcome.report(Analysed::by("check"))
    }

    #[test]
    fn lines_around_each_event_are_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (1..=40).map(|n| format!("line {n}\n")).collect();
        std::fs::write(folder.path().join("a.c"), text).unwrap();
        let mut made = report(&[("a.c", 10), ("a.c", 12), ("a.c", 40), ("gone.c", 1)]);
        attach(&mut made, Some(folder.path()));
        assert_eq!(made.sources.len(), 1);
        let spans: Vec<(u32, usize)> = made.sources[0]
            .excerpts
            .iter()
            .map(|e| (e.line, e.text.len()))
            .collect();
        assert_eq!(spans, [(6, 11), (36, 5)]);
        assert_eq!(made.sources[0].excerpts[1].text[4], "line 40");
        // Again, after the file has changed: what was taken first stays.
        let before = made.sources.clone();
        std::fs::write(folder.path().join("a.c"), "other\n".repeat(50)).unwrap();
        attach(&mut made, Some(folder.path()));
        assert_eq!(made.sources, before);
    }

    #[test]
    fn lines_that_were_not_reached_come_along() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (1..=9).map(|n| format!("line {n}\n")).collect();
        std::fs::write(folder.path().join("a.c"), text).unwrap();
        let frame = |line| Frame {
            file: Some("a.c".into()),
            line: Some(line),
            ..Frame::default()
        };
        let mut adding = Adding::default();
        adding.at(&[frame(2)], [(Touch::Stores, 1)]);
        adding.could(&[frame(7)], Touch::Flushes);
        let mut made = report(&[]);
        made.touched = Some(adding.total());
        attach(&mut made, Some(folder.path()));
        let lines: Vec<(u32, &str)> = (made.sources[0].excerpts.iter())
            .map(|excerpt| (excerpt.line, excerpt.text[0].as_str()))
            .collect();
        assert_eq!(lines, [(2, "line 2"), (7, "line 7")]);
    }

    #[test]
    fn what_is_taken_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let long = format!("{}\n", "ä".repeat(300)).repeat(20_000);
        std::fs::write(folder.path().join("a.c"), long).unwrap();
        let frames: Vec<(&str, u32)> = (1..2000).map(|n| ("a.c", n * 10)).collect();
        let mut made = report(&frames);
        attach(&mut made, Some(folder.path()));
        let lines: Vec<&String> = made.sources[0]
            .excerpts
            .iter()
            .flat_map(|excerpt| &excerpt.text)
            .collect();
        let bytes: usize = lines.iter().map(|line| line.len()).sum();
        assert!(bytes <= TEXT_BYTES_MAX && bytes > TEXT_BYTES_MAX / 2);
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() == LINE_CHARS_MAX + 1)
        );
        let mut none = report(&[("/dev/zero", 1), ("a.c", 0), ("a.c", u32::MAX)]);
        attach(&mut none, Some(folder.path()));
        assert!(none.sources.is_empty());
    }
}

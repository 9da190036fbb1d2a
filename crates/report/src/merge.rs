//! Many reports made one: of the tests of a suite, of the jobs of a night.
//!
//! **Guarantee.** Findings are the same if their [fingerprints](crate::fingerprint) are, unless the
//! reports show that they are at different places of one function (`same.rs` has the details); each
//! is told once, as the first report has it, with how often all have seen it and which programs and
//! tests show it. Nothing of any report is lost that a verdict depends on: the whole is as
//! incomplete as its parts are, and says which. That some runs touched no persistent memory is a
//! note; only if none did, nothing was checked.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brownout_findings::numbers::counted;
use brownout_findings::touched::Adding;
use brownout_findings::{
    Analysed, Excerpt, Finding, Limit, Limitation, Origin, Outcome, Report, SourceText, Verdict,
};
use serde_json::{Map, Value};

use crate::same::{self, Side};

/// The reports as one, in their order. The verdict is made of what is in them; suppressions and the
/// like come behind.
pub fn merge(reports: Vec<Report>) -> Report {
    let count = reports.len();
    let mut analysed = shared(&reports);
    let untouched = reports
        .iter()
        .filter(|report| report.verdict == Verdict::NothingChecked)
        .count();
    let mut outcome = Outcome::<Map<String, Value>>::default();
    let mut findings = Joined::default();
    let mut sources = Sources::default();
    let mut touched: Option<Adding> = None;
    let (mut suppressed, mut known) = (0u64, 0u64);
    let mut milliseconds = 0u64;
    for (number, report) in reports.into_iter().enumerate() {
        let side = Side::of(&report);
        let name = name(&report.analysed);
        for limitation in report.coverage.limitations {
            if limitation.kind == Limit::Untouched && untouched < count {
                continue;
            }
            let text = match name.is_empty() || count == 1 {
                true => limitation.text,
                false => format!("{} ({name})", limitation.text),
            };
            outcome.coverage.add(Limitation { text, ..limitation });
        }
        for note in report.notes {
            if !outcome.notes.contains(&note) {
                outcome.notes.push(note);
            }
        }
        let told = report.findings.into_iter().map(Cow::Owned);
        findings.add(number, told, &side, &report.analysed.program);
        sources.add(report.sources);
        if let Some(more) = report.touched {
            touched.get_or_insert_with(Adding::default).all_of(more);
        }
        suppressed = suppressed.saturating_add(report.suppressed);
        known = known.saturating_add(report.known);
        milliseconds = milliseconds.saturating_add(report.analysed.milliseconds.unwrap_or(0));
    }
    if untouched > 0 && untouched < count {
        outcome.notes.push(format!(
            "{untouched} of {} touched no persistent memory",
            counted(count as u64, "run")
        ));
    }
    outcome.findings = (findings.all.into_iter())
        .map(|told| told.finding.into_owned())
        .collect();
    outcome.touched = touched.map(Adding::total);
    outcome
        .statistics
        .insert("reports".into(), Value::from(count));
    analysed.milliseconds = (milliseconds > 0).then_some(milliseconds);
    outcome.ended = analysed.ended.take();
    let mut report = outcome.report(analysed);
    report.sources = sources.all();
    (report.suppressed, report.known) = (suppressed, known);
    report
}

/// What all of them have in common.
fn shared(reports: &[Report]) -> Analysed {
    fn common<'a, T: PartialEq + Clone + 'a>(mut of: impl Iterator<Item = &'a T>) -> Option<T> {
        let first = of.next()?;
        of.all(|other| other == first).then(|| first.clone())
    }
    let all = || reports.iter().map(|report| &report.analysed);
    Analysed {
        analysis: common(all().map(|a| &a.analysis)).unwrap_or_else(|| "merge".into()),
        program: common(all().map(|a| &a.program)).unwrap_or_default(),
        trace: common(all().map(|a| &a.trace)).flatten(),
        ended: common(all().map(|a| &a.ended)).flatten(),
        command: common(all().map(|a| &a.command)).unwrap_or_default(),
        domain: common(all().map(|a| &a.domain)).flatten(),
        milliseconds: None,
    }
}

/// A run in a few words.
fn name(analysed: &Analysed) -> String {
    match &analysed.trace {
        Some(trace) => trace.clone(),
        None => analysed.program.join(" "),
    }
}

/// A finding of several reports.
pub(crate) struct Told<'a> {
    /// As the first report has it, with what the others add.
    pub finding: Cow<'a, Finding>,
    /// The numbers of the reports that have it.
    pub reports: Vec<usize>,
}

/// The findings of several reports, each once.
#[derive(Default)]
pub(crate) struct Joined<'a> {
    /// In the order of the reports.
    pub all: Vec<Told<'a>>,
    side: Side,
}

impl<'a> Joined<'a> {
    /// Of all reports. One alone stays as it is.
    pub fn of(reports: &'a [Report]) -> Joined<'a> {
        let mut joined = Joined::default();
        for (number, report) in reports.iter().enumerate() {
            let findings = report.findings.iter().map(Cow::Borrowed);
            let program = match reports.len() {
                1 => &[],
                _ => report.analysed.program.as_slice(),
            };
            joined.add(number, findings, &Side::of(report), program);
        }
        joined
    }

    /// Adds those of a report, which are also in `side`.
    fn add(
        &mut self,
        report: usize,
        findings: impl Iterator<Item = Cow<'a, Finding>>,
        side: &Side,
        program: &[String],
    ) {
        let partners = same::pairs(&self.side, side);
        let mut others = Vec::new();
        for (at, (mut finding, partner)) in findings.zip(partners).enumerate() {
            // What was not worth saying in a report about one program is so in one about several.
            if finding.origins.is_empty() && !program.is_empty() {
                finding.to_mut().origins.push(Origin {
                    command: program.to_vec(),
                    ..Origin::default()
                });
            }
            let Some(partner) = partner else {
                others.push(at);
                self.all.push(Told {
                    finding,
                    reports: vec![report],
                });
                continue;
            };
            let told = &mut self.all[partner];
            told.reports.push(report);
            let known = told.finding.to_mut();
            known.count = known.count.saturating_add(finding.count);
            known.seen_in(finding.into_owned().origins);
        }
        self.side.take(side, others.into_iter());
    }
}

/// Source lines of all reports, by file and number. Where two have another text for a line, the
/// first counts.
#[derive(Default)]
struct Sources {
    files: BTreeMap<String, (bool, BTreeMap<u32, String>)>,
}

impl Sources {
    fn add(&mut self, sources: Vec<SourceText>) {
        for source in sources {
            let (newer, lines) = self.files.entry(source.file).or_default();
            *newer |= source.newer;
            for excerpt in source.excerpts {
                for (number, text) in (excerpt.line..).zip(excerpt.text) {
                    lines.entry(number).or_insert(text);
                }
            }
        }
    }

    fn all(self) -> Vec<SourceText> {
        let files = self.files.into_iter();
        files
            .map(|(file, (newer, lines))| {
                let mut excerpts: Vec<Excerpt> = Vec::new();
                for (line, text) in lines {
                    match excerpts.last_mut() {
                        Some(last)
                            if u64::from(last.line) + last.text.len() as u64 == u64::from(line) =>
                        {
                            last.text.push(text);
                        }
                        _ => excerpts.push(Excerpt {
                            line,
                            text: vec![text],
                        }),
                    }
                }
                SourceText {
                    file,
                    newer,
                    excerpts,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::{Event, Frame, Role, Severity};

    fn report(program: &str, fingerprints: &[&str], limits: &[Limit]) -> Report {
        let mut outcome = Outcome::<Map<String, Value>>::default();
        for fingerprint in fingerprints {
            let mut finding = Finding::new("missing-flush", Severity::Correctness, "m");
            finding.fingerprint = (*fingerprint).into();
            outcome.findings.push(finding);
        }
        for limit in limits {
            outcome.coverage.limit(*limit, "why");
        }
        outcome.report(Analysed {
            program: vec![program.into()],
            milliseconds: Some(1500),
            ..Analysed::by("check")
        })
    }

    #[test]
    fn the_same_finding_is_told_once_with_all_programs_that_show_it() {
        let whole = merge(vec![
            report("a", &["1", "2"], &[]),
            report("b", &["2", "3"], &[]),
        ]);
        let told: Vec<(&str, u64, usize)> = whole
            .findings
            .iter()
            .map(|f| (f.fingerprint.as_str(), f.count, f.origins.len()))
            .collect();
        assert_eq!(told, [("1", 1, 1), ("2", 2, 2), ("3", 1, 1)]);
        assert_eq!(whole.verdict, Verdict::Findings);
        assert_eq!(whole.analysed.analysis, "check");
        assert_eq!(whole.analysed.milliseconds, Some(3000));
    }

    /// The first of a function's bugs has the same fingerprint in each report, whichever it is.
    #[test]
    fn what_is_at_another_line_is_another_finding() {
        let at = |line: u32| {
            let mut report = report("a", &["1"], &[]);
            report.findings[0].events.push(Event {
                stack: vec![Frame {
                    file: Some("a.c".into()),
                    line: Some(line),
                    ..Frame::default()
                }],
                ..Event::new(Role::Store, "stored")
            });
            let text = ["a = 1;", "", "", "", "", "b = 1;"];
            report.sources = vec![SourceText {
                file: "a.c".into(),
                newer: false,
                excerpts: vec![Excerpt {
                    line: 1,
                    text: text.map(String::from).to_vec(),
                }],
            }];
            report
        };
        assert_eq!(merge(vec![at(1), at(6)]).findings.len(), 2);
        assert_eq!(merge(vec![at(1), at(1), at(6)]).findings.len(), 2);
    }

    #[test]
    fn the_whole_is_as_incomplete_as_its_parts() {
        let clean = || report("a", &[], &[]);
        assert_eq!(merge(vec![clean(), clean()]).verdict, Verdict::Clean);
        let cut = merge(vec![clean(), report("b", &[], &[Limit::Time])]);
        assert_eq!(cut.verdict, Verdict::Incomplete);
        assert_eq!(cut.coverage.limitations[0].text, "why (b)");
        let untouched = || report("b", &[], &[Limit::Untouched]);
        let some = merge(vec![clean(), untouched()]);
        assert_eq!(some.verdict, Verdict::Clean);
        assert_eq!(some.notes, ["1 of 2 runs touched no persistent memory"]);
        let none = merge(vec![untouched(), untouched()]);
        assert_eq!(none.verdict, Verdict::NothingChecked);
    }

    #[test]
    fn what_one_run_accepts_another_may_not() {
        let mut accepted = report("a", &[], &[Limit::Sampled]);
        accepted.coverage.accept(&[Limit::Sampled]);
        let alone = merge(vec![accepted.clone()]);
        assert_eq!(alone.verdict, Verdict::Clean);
        let open = report("b", &[], &[Limit::Sampled]);
        for both in [vec![accepted.clone(), open.clone()], vec![open, accepted]] {
            assert_eq!(merge(both).verdict, Verdict::Incomplete);
        }
    }

    #[test]
    fn source_lines_are_joined() {
        let source = |line: u32, text: &[&str]| {
            vec![SourceText {
                file: "a.c".into(),
                newer: false,
                excerpts: vec![Excerpt {
                    line,
                    text: text.iter().map(|t| (*t).into()).collect(),
                }],
            }]
        };
        let mut sources = Sources::default();
        sources.add(source(5, &["e", "f"]));
        sources.add(source(4, &["d", "other"]));
        sources.add(source(9, &["i"]));
        let all = sources.all();
        let lines: Vec<(u32, usize)> = all[0]
            .excerpts
            .iter()
            .map(|e| (e.line, e.text.len()))
            .collect();
        assert_eq!(lines, [(4, 3), (9, 1)]);
        assert_eq!(all[0].excerpts[0].text, ["d", "e", "f"]);
    }
}

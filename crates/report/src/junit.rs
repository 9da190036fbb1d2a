//! JUnit XML, for CI.
//!
//! **Purpose.** One test suite, named after the program; one test case for each rule that was
//! looked at. A rule with findings that count ([`FailOn`](crate::FailOn)) has failed, the others
//! have passed; what was found and does not count stands in the case's output.
//!
//! **Guarantee.** The suite has failures or errors exactly if the analysis itself ends with another
//! status than success. Passed means looked at to the end: if nothing was checked the cases are
//! skipped, and if the verdict is `incomplete` the suite has an error besides. Characters that XML
//! cannot hold are escaped as on the terminal.
//!
//! **Deviations.** All findings of a rule are in one `failure`, because most readers of the format
//! show only one for each case. The suite has the time of the whole run, its cases none: rules are
//! not run one after another.

use std::io::{self, Write};

use brownout_findings::numbers::counted;
use brownout_findings::{Finding, Report, Verdict, rules};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event as Xml};

use crate::options::Options;
use crate::order;
use crate::terminal::{last_line, one_line, plain_finding};
use crate::text::{base_name, visible};

enum Outcome {
    Passed,
    /// There is something to read, which does not count.
    PassedWith(String),
    Skipped(&'static str),
    Error(&'static str),
    Failed {
        kind: &'static str,
        message: String,
        text: String,
    },
}

struct Case {
    name: String,
    outcome: Outcome,
}

/// Writes the report.
pub fn render(report: &Report, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let cases = cases(report, options);
    let count = |wanted: fn(&Outcome) -> bool| {
        cases
            .iter()
            .filter(|case| wanted(&case.outcome))
            .count()
            .to_string()
    };
    let class = format!("{}.{}", report.tool.name, report.analysed.analysis);
    let class = visible(&class);
    let name = suite(report, options);
    let name = visible(&name);
    let time = report.analysed.milliseconds;
    let time = time.map(|ms| format!("{}.{:03}", ms / 1000, ms % 1000));
    let counts = [
        ("tests", cases.len().to_string()),
        (
            "failures",
            count(|outcome| matches!(outcome, Outcome::Failed { .. })),
        ),
        (
            "errors",
            count(|outcome| matches!(outcome, Outcome::Error(_))),
        ),
        (
            "skipped",
            count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        ),
    ];
    let attributes = || {
        let counts = counts.iter().map(|(key, value)| (*key, value.as_str()));
        let time = time.as_deref().map(|time| ("time", time));
        std::iter::once(("name", &*name)).chain(counts).chain(time)
    };

    let mut xml = Writer::new_with_indent(&mut *out, b' ', 2);
    xml.write_event(Xml::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    xml.create_element("testsuites")
        .with_attributes(attributes())
        .write_inner_content(|xml| {
            xml.create_element("testsuite")
                .with_attributes(attributes())
                .write_inner_content(|xml| {
                    for case in &cases {
                        write_case(xml, &class, case)?;
                    }
                    let summary = summary(report);
                    xml.create_element("system-out")
                        .write_text_content(BytesText::new(&summary))?;
                    Ok(())
                })?;
            Ok(())
        })?;
    writeln!(out)
}

/// What the suite is called: as the user says, or after what was looked at.
fn suite(report: &Report, options: &Options) -> String {
    let analysed = &report.analysed;
    let named = options.suite.clone();
    let subject = analysed.program.first().or(analysed.trace.as_ref());
    let subject = subject.map(|path| base_name(path).to_owned());
    named
        .or(subject)
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| report.tool.name.clone())
}

fn write_case<W: Write>(xml: &mut Writer<W>, class: &str, case: &Case) -> io::Result<()> {
    let element = xml
        .create_element("testcase")
        .with_attributes([("classname", class), ("name", case.name.as_str())]);
    match &case.outcome {
        Outcome::Passed => element.write_empty()?,
        outcome => element.write_inner_content(|xml| {
            match outcome {
                Outcome::Passed => {}
                Outcome::PassedWith(text) => {
                    xml.create_element("system-out")
                        .write_text_content(BytesText::new(text))?;
                }
                Outcome::Skipped(why) => {
                    let element = xml.create_element("skipped");
                    element.with_attribute(("message", *why)).write_empty()?;
                }
                Outcome::Error(why) => {
                    let element = xml.create_element("error");
                    element.with_attribute(("message", *why)).write_empty()?;
                }
                Outcome::Failed {
                    kind,
                    message,
                    text,
                } => {
                    xml.create_element("failure")
                        .with_attributes([("message", message.as_str()), ("type", kind)])
                        .write_text_content(BytesText::new(text))?;
                }
            }
            Ok(())
        })?,
    };
    Ok(())
}

fn summary(report: &Report) -> String {
    let limits = report.coverage.told().map(|limitation| {
        let text = visible(&limitation.text);
        format!("limit[{}]: {text}\n", limitation.kind.name())
    });
    let notes = report
        .notes
        .iter()
        .map(|note| format!("note: {}\n", visible(note)));
    limits.chain(notes).chain([last_line(report)]).collect()
}

fn cases(report: &Report, options: &Options) -> Vec<Case> {
    let findings = order::sorted(&report.findings);
    let built_in = rules::RULES.iter();
    let built_in = built_in.filter(|rule| options.rules.has(rule.is));
    let mut names: Vec<&str> = built_in.map(|rule| rule.id).collect();
    for finding in &findings {
        if !names.contains(&finding.rule.as_str()) {
            names.push(finding.rule.as_str());
        }
    }
    let mut cases: Vec<Case> = names
        .into_iter()
        .map(|name| {
            let of_rule: Vec<&Finding> = findings
                .iter()
                .copied()
                .filter(|finding| finding.rule == name)
                .collect();
            let outcome = match (of_rule.first(), report.verdict) {
                (Some(_), _) => found(&of_rule, options),
                (None, Verdict::NothingChecked) => {
                    Outcome::Skipped("no persistent memory was touched")
                }
                (None, Verdict::Incomplete) => {
                    Outcome::Skipped("not everything was looked at; the rest is unknown")
                }
                (None, Verdict::Clean | Verdict::Findings) => Outcome::Passed,
            };
            Case {
                name: visible(name).into_owned(),
                outcome,
            }
        })
        .collect();
    if options.fail_on.falls_short(report) {
        let (name, why) = match report.verdict {
            Verdict::NothingChecked => ("checked", "no persistent memory was touched"),
            _ => (
                "complete",
                "not everything was looked at; the rest is unknown",
            ),
        };
        cases.push(Case {
            name: name.into(),
            outcome: Outcome::Error(why),
        });
    }
    cases
}

/// What the findings of one rule come to: a failure, if one of them counts.
fn found(all: &[&Finding], options: &Options) -> Outcome {
    let counting = all.iter().find(|f| options.fail_on.counts(f));
    let Some(first) = counting.or(all.first()) else {
        return Outcome::Passed;
    };
    let message = match all.len() {
        1 => visible(&first.message).into_owned(),
        n => format!(
            "{}, first: {}",
            counted(n as u64, "finding"),
            visible(&first.message)
        ),
    };
    let shown = all.len().min(options.limit.unwrap_or(usize::MAX));
    let mut text = String::from("\n");
    for finding in &all[..shown] {
        text += &plain_finding(finding, options);
        text += "\n\n";
    }
    if shown < all.len() {
        text += &format!(
            "{} ({} shows them in full):\n",
            counted((all.len() - shown) as u64, "more finding"),
            visible(&options.show_all)
        );
        for finding in &all[shown..] {
            text += &one_line(finding, options);
            text.push('\n');
        }
    }
    match counting {
        Some(_) => Outcome::Failed {
            kind: first.severity.name(),
            message,
            text,
        },
        None => Outcome::PassedWith(text),
    }
}

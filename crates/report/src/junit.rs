//! JUnit XML, for CI.
//!
//! **Purpose.** One test suite, one test case for each rule that was looked at. A rule with findings has failed, the others
//! have passed.
//!
//! **Guarantee.** Passed means looked at to the end: if nothing was checked the cases are skipped, and if the verdict is
//! `incomplete` the suite has an error besides. Characters that XML cannot hold are escaped as on the terminal.
//!
//! **Deviations.** All findings of a rule are in one `failure`, because most readers of the format show only one for each
//! case. There are no times: rules are not run one after another.

use std::io::{self, Write};

use brownout_findings::numbers::counted;
use brownout_findings::{Finding, Report, Verdict, rules};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event as Xml};

use crate::options::Options;
use crate::order;
use crate::terminal::{last_line, one_line, plain_finding};
use crate::text::visible;

enum Outcome {
    Passed,
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
    let name = format!("{}.{}", report.tool.name, report.analysed.analysis);
    let name = visible(&name);
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
        std::iter::once(("name", &*name)).chain(counts)
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
                        write_case(xml, &name, case)?;
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

fn write_case<W: Write>(xml: &mut Writer<W>, suite: &str, case: &Case) -> io::Result<()> {
    let element = xml
        .create_element("testcase")
        .with_attributes([("classname", suite), ("name", case.name.as_str())]);
    match &case.outcome {
        Outcome::Passed => element.write_empty()?,
        outcome => element.write_inner_content(|xml| {
            match outcome {
                Outcome::Passed => {}
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
                (Some(first), _) => failure(first, &of_rule, options),
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
    if report.verdict == Verdict::Incomplete {
        cases.push(Case {
            name: "complete".into(),
            outcome: Outcome::Error("not everything was looked at; the rest is unknown"),
        });
    }
    cases
}

fn failure(first: &Finding, all: &[&Finding], options: &Options) -> Outcome {
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
    Outcome::Failed {
        kind: first.severity.name(),
        message,
        text,
    }
}

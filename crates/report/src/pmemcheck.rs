//! A summary like pmemcheck's, for scripts that grep it.
//!
//! **Purpose.** Lets CI that was written for pmemcheck go on with Brownout: the same lines, and the
//! last one is `ERROR SUMMARY: N errors`.
//!
//! **Guarantee.** N is the number of distinct correctness findings; 0 means none. `Number of stores
//! not made persistent: N` is always there. As with every form, a run in which nothing was checked,
//! or not all, says so; the line before the last does.
//!
//! **Deviations.** pmemcheck counts superfluous flushes as errors when it is asked to look for
//! them; here performance findings are listed and never counted. Rules that it does not have get
//! lines of the same kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use brownout_findings::{BuiltIn, Event, Finding, Frame, Report, Severity, Verdict};

use crate::options::Options;
use crate::order;
use crate::site;
use crate::text::{base_name, visible};

/// A part of the summary.
struct Section {
    rules: &'static [BuiltIn],
    count: &'static str,
    /// Stands above the list.
    title: Option<&'static str>,
    /// Says the state of each store.
    has_state: bool,
}

impl Section {
    fn has(&self, finding: &Finding) -> bool {
        let rule = finding.rule.built_in();
        rule.is_some_and(|rule| self.rules.contains(&rule))
    }
}

/// pmemcheck's own sections, in its order. The first is there even if it counts nothing.
const SECTIONS: [Section; 6] = [
    Section {
        rules: &[
            BuiltIn::MissingFlush,
            BuiltIn::MissingFence,
            BuiltIn::TxNotPersisted,
        ],
        count: "Number of stores not made persistent",
        title: Some("Stores not made persistent properly:"),
        has_state: true,
    },
    Section {
        rules: &[BuiltIn::DoubleFlush],
        count: "Number of redundantly flushed stores",
        title: Some("Stores flushed multiple times:"),
        has_state: true,
    },
    Section {
        rules: &[BuiltIn::CleanFlush, BuiltIn::OversizedFlush],
        count: "Number of unnecessary flushes",
        title: None,
        has_state: false,
    },
    Section {
        rules: &[BuiltIn::OverwrittenUnpersisted],
        count: "Number of overwritten stores",
        title: Some("Overwritten stores before they were made persistent:"),
        has_state: true,
    },
    Section {
        rules: &[BuiltIn::TxUnloggedStore, BuiltIn::StoreOutsideTx],
        count: "Number of stores made without adding to transaction",
        title: Some("Stores made without adding to transactions:"),
        has_state: false,
    },
    Section {
        rules: &[BuiltIn::CrossTxOverlap],
        count: "Number of overlapping regions registered in different transactions",
        title: Some("Overlapping regions:"),
        has_state: false,
    },
];

/// Writes the report.
pub fn render(report: &Report, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let findings = order::sorted(&report.findings);
    let mut lines = Lines {
        text: String::new(),
        process: options.process,
    };
    for (at, section) in SECTIONS.iter().enumerate() {
        let of_section: Vec<&Finding> = findings
            .iter()
            .copied()
            .filter(|finding| section.has(finding))
            .collect();
        if at > 0 && of_section.is_empty() {
            continue;
        }
        if at > 0 {
            lines.push("");
        }
        lines.push(&format!("{}: {}", section.count, of_section.len()));
        if let Some(title) = section.title.filter(|_| !of_section.is_empty()) {
            lines.push(title);
        }
        lines.list(&of_section, section.has_state);
        if at == 0 && !of_section.is_empty() {
            let bytes = of_section
                .iter()
                .filter_map(|f| Some(event(f)?.place.as_ref()?.size));
            let total = bytes.fold(0, u64::saturating_add);
            lines.push(&format!("Total memory not made persistent: {total}"));
        }
    }
    let mut others: BTreeMap<(Severity, &str), Vec<&Finding>> = BTreeMap::new();
    for finding in &findings {
        let listed = |section: &Section| section.has(finding);
        if !SECTIONS.iter().any(listed) {
            let key = (finding.severity, finding.rule.as_str());
            others.entry(key).or_default().push(finding);
        }
    }
    for ((_, rule), of_rule) in others {
        lines.push("");
        lines.push(&format!(
            "Number of {} findings: {}",
            visible(rule),
            of_rule.len()
        ));
        lines.list(&of_rule, false);
    }
    for limitation in report.coverage.told() {
        let (kind, text) = (limitation.kind.name(), visible(&limitation.text));
        lines.push(&format!("Limit ({kind}): {text}"));
    }
    for note in &report.notes {
        lines.push(&format!("Note: {}", visible(note)));
    }
    match report.verdict {
        Verdict::NothingChecked => {
            lines.push("Warning: no persistent memory was touched; see --pm")
        }
        Verdict::Incomplete => {
            lines.push("Warning: not everything was looked at; the rest is unknown")
        }
        Verdict::Clean | Verdict::Findings => {}
    }
    let is_error = |finding: &&&Finding| finding.severity == Severity::Correctness;
    let errors = findings.iter().filter(is_error).count();
    lines.push(&format!("ERROR SUMMARY: {errors} errors"));
    out.write_all(lines.text.as_bytes())
}

/// The event to list: the store, if there is one.
fn event(finding: &Finding) -> Option<&Event> {
    site::causing_event(finding)
}

struct Lines {
    text: String,
    process: u32,
}

impl Lines {
    fn push(&mut self, line: &str) {
        // A String takes everything.
        let _ = writeln!(self.text, "=={}== {line}", self.process);
    }

    fn list(&mut self, findings: &[&Finding], has_state: bool) {
        for (at, finding) in findings.iter().enumerate() {
            let Some(event) = event(finding) else {
                self.push(&format!("[{at}] {}", visible(&finding.message)));
                continue;
            };
            let mut start = format!("[{at}]    at");
            for frame in &event.stack {
                self.push(&format!("{start} {}", shown_frame(frame)));
                start = "   by".into();
            }
            if event.stack.is_empty() {
                self.push(&format!("[{at}]    {}", visible(&event.text)));
            }
            if let Some(place) = &event.place {
                let state = match finding.rule.built_in() {
                    _ if !has_state => "",
                    Some(BuiltIn::MissingFence | BuiltIn::DoubleFlush) => "\tstate: FLUSHED",
                    _ => "\tstate: DIRTY",
                };
                let (address, size) = (place.address, place.size);
                self.push(&format!("\tAddress: {address:#x}\tsize: {size}{state}"));
            }
        }
    }
}

/// As Valgrind writes a frame.
pub(crate) fn shown_frame(frame: &Frame) -> String {
    let function = visible(frame.function.as_deref().unwrap_or("???"));
    let place = match (&frame.file, frame.line, &frame.module) {
        (Some(file), Some(line), _) => format!(" ({}:{line})", visible(base_name(file))),
        (_, _, Some(module)) => format!(" (in {})", visible(module)),
        _ => String::new(),
    };
    format!("{:#X}: {function}{place}", frame.offset)
}

//! Findings as Valgrind writes errors, for whoever reads its logs.
//!
//! **Purpose.** `ctest -T memcheck`, and scripts made for Valgrind, read a log whose lines begin
//! with `==PID==`. They get one: an error with its call stack for each finding, and at the end
//! `ERROR SUMMARY: N errors from N contexts (suppressed: N from N)`.
//!
//! **Guarantee.** N is the number of distinct correctness findings. ctest counts a defect for each
//! of them, and for nothing else: it knows errors by the words of memcheck, of which `Invalid write
//! of size N` comes nearest to data that a crash loses. The rule stands behind them.
//!
//! **Deviation.** Valgrind writes while the program runs; here all comes at its end.

use std::fmt::Write as _;
use std::io::{self, Write};

use brownout_findings::numbers::grouped;
use brownout_findings::{Finding, Report, Severity, Verdict};

use crate::options::Options;
use crate::pmemcheck::shown_frame;
use crate::text::visible;
use crate::{order, site, suppress};

/// Writes the report.
pub fn render(report: &Report, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let findings = order::sorted(&report.findings);
    let mut log = Log {
        text: String::new(),
        options,
    };
    if !options.quiet {
        let program = report.analysed.program.join(" ");
        let version = &report.tool.version;
        log.line(&format!(
            "Brownout {version}, what a crash does to persistent memory"
        ));
        log.line(&format!("Command: {}", visible(&program)));
        log.line("");
    }
    for finding in &findings {
        log.finding(finding);
        // One at a time, so that memory does not grow with the report.
        out.write_all(std::mem::take(&mut log.text).as_bytes())?;
    }
    let is_error = |finding: &&&Finding| finding.severity == Severity::Correctness;
    let errors = grouped(findings.iter().filter(is_error).count() as u64);
    let warning = match report.verdict {
        Verdict::NothingChecked => Some("no persistent memory was touched; see --pm"),
        Verdict::Incomplete => Some("not everything was looked at; the rest is unknown"),
        Verdict::Clean | Verdict::Findings => None,
    };
    let is_incomplete = report.verdict == Verdict::Incomplete;
    if let Some(warning) = warning.filter(|_| is_incomplete || !options.quiet) {
        log.line(&format!("Warning: {warning}"));
    }
    if !options.quiet {
        let limits = report.coverage.told().map(|limit| &limit.text);
        for text in limits.chain(&report.notes) {
            log.line(&format!("Note: {}", visible(text)));
        }
        let hidden = grouped(report.suppressed);
        log.line(&format!(
            "ERROR SUMMARY: {errors} errors from {errors} contexts (suppressed: {hidden} from {hidden})"
        ));
    }
    if options.show_suppressions && !findings.is_empty() {
        log.text += &suppress::generate(&report.findings);
    }
    out.write_all(log.text.as_bytes())
}

struct Log<'a> {
    text: String,
    options: &'a Options,
}

impl Log<'_> {
    fn line(&mut self, line: &str) {
        // A String takes everything.
        let _ = match line {
            "" => writeln!(self.text, "=={}== ", self.options.process),
            line => writeln!(self.text, "=={}== {line}", self.options.process),
        };
    }

    fn finding(&mut self, finding: &Finding) {
        let event = site::causing_event(finding);
        let place = event.and_then(|event| event.place.as_ref());
        let size = place.map_or(0, |place| place.size);
        let (rule, message) = (visible(finding.rule.as_str()), visible(&finding.message));
        self.line(&match finding.severity {
            Severity::Correctness => {
                format!("Invalid write of size {size}: not safe from a crash: {rule}: {message}")
            }
            Severity::Warning | Severity::Performance => format!("Warning: {rule}: {message}"),
        });
        let stack = event.map_or(&[][..], |event| site::inside_main(&event.stack));
        let shown = stack.len().min(self.options.frames_max);
        for (at, frame) in stack[..shown].iter().enumerate() {
            let word = if at == 0 { "at" } else { "by" };
            self.line(&format!("   {word} {}", shown_frame(frame)));
        }
        if let Some(place) = place {
            let file = visible(&place.file);
            let (address, offset) = (place.address, place.offset);
            self.line(&format!(" Address {address:#x} is {offset:#x} in {file}"));
        }
        for origin in &finding.origins {
            if let Some(test) = &origin.test {
                self.line(&format!(" In the test {}", visible(test)));
            }
        }
        for help in &finding.help {
            self.line(&format!(" {}", visible(help)));
        }
        self.line("");
    }
}

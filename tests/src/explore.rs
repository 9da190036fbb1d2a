//! `brownout explore` as the suites use it: run it, read its report, ask what was covered and where
//! a finding is.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Event, Finding, Limit, Report, Reproduction, Verdict};

use crate::check::show;
use crate::exec::{Invocation, Outcome};
use crate::{layout, tool};

/// `brownout explore OPTIONS -- …`, otherwise the same invocation.
pub fn command(native: &Invocation, options: &[&str]) -> Invocation {
    let mut argv: Vec<OsString> = vec![layout::brownout().into(), "explore".into()];
    argv.extend(options.iter().map(OsString::from));
    argv.push("--".into());
    argv.extend(native.argv.iter().cloned());
    Invocation {
        argv,
        ..native.clone()
    }
}

/// What an exploration said and how it ended.
#[derive(Debug)]
pub struct Explored {
    /// Its report.
    pub report: Report,
    /// Its exit status and output.
    pub outcome: Outcome,
}

/// Explores the program and reads the report, which stays in the program's folder.
pub fn run(native: &Invocation, options: &[&str]) -> Result<Explored> {
    tool::expect_built()?;
    let path = native.folder.join("report.json");
    if path.exists() {
        fs::remove_file(&path)?;
    }
    let shown = path.to_string_lossy();
    let mut all = vec!["--format", "json", "-o", &*shown];
    all.extend(options);
    let invocation = command(native, &all);
    let outcome = invocation.run()?;
    match read(&path) {
        Ok(report) => Ok(Explored { report, outcome }),
        Err(error) => bail!(
            "{error:#}, exit status {}: {}\n{}",
            outcome.status,
            invocation.line(),
            outcome.describe()
        ),
    }
}

/// Reads a report.
pub fn read(path: &Path) -> Result<Report> {
    let text = fs::read(path).context("no report")?;
    serde_json::from_slice(&text).context("the report is no report")
}

impl Explored {
    /// A number of the statistics.
    pub fn number(&self, name: &str) -> Result<u64> {
        number(&self.report, name)
    }

    /// Fails unless every crash state was dealt with, but for what was accepted.
    pub fn expect_complete(&self) -> Result<()> {
        let coverage = &self.report.coverage;
        let complete = coverage.is_exhaustive().into();
        ensure!(
            coverage.open().is_empty() && self.report.statistics.get("complete") == Some(&complete),
            "not complete: {:?}, {:?}, {:?}",
            self.report.coverage,
            self.report.notes,
            self.report.statistics
        );
        Ok(())
    }

    /// Fails unless everything was explored and nothing was found.
    pub fn expect_clean(&self) -> Result<()> {
        ensure!(
            self.report.verdict == Verdict::Clean && self.report.findings.is_empty(),
            "{:?}, {:?}\n{}",
            self.report.coverage,
            self.report.notes,
            show(&self.report)
        );
        self.expect_complete()?;
        self.expect_status(0)
    }

    /// Fails unless the exploration came to its end, something was found, and each finding was seen
    /// natively as well. Where many crash states fail, not all need be tried.
    pub fn expect_findings(&self) -> Result<()> {
        ensure!(
            self.report.verdict == Verdict::Findings && !self.report.findings.is_empty(),
            "{:?}, {:?}\n{}",
            self.report.coverage,
            self.report.notes,
            show(&self.report)
        );
        let limits = self.report.coverage.open();
        ensure!(
            limits.iter().all(|limit| *limit == Limit::Abandoned),
            "{:?}",
            self.report.coverage
        );
        for finding in &self.report.findings {
            ensure!(
                reproduction(finding)?.confirmed,
                "not seen natively: {} {:?}",
                finding.message,
                finding.notes
            );
        }
        self.expect_status(1)
    }

    /// Fails if anything counts as an error.
    pub fn expect_no_error(&self) -> Result<()> {
        let is_error = |f: &&Finding| f.severity == brownout_findings::Severity::Correctness;
        ensure!(
            self.outcome.status != 1 && !self.report.findings.iter().any(|f| is_error(&f)),
            "{}\n{}",
            self.outcome.describe(),
            show(&self.report)
        );
        Ok(())
    }

    /// Fails unless the exit status is this.
    pub fn expect_status(&self, status: i32) -> Result<()> {
        ensure!(
            self.outcome.status == status,
            "exit status {} instead of {status}\n{}\n{}",
            self.outcome.status,
            self.outcome.describe(),
            show(&self.report)
        );
        Ok(())
    }

    /// Fails unless a note has these words, or a limitation.
    pub fn expect_note(&self, words: &str) -> Result<()> {
        let limits = self.report.coverage.limitations.iter();
        let mut said = limits.map(|limit| &limit.text).chain(&self.report.notes);
        ensure!(
            said.any(|text| text.contains(words)),
            "nothing says {words:?}: {:?}, {:?}",
            self.report.coverage,
            self.report.notes
        );
        Ok(())
    }

    /// Fails unless exactly this was not looked at.
    pub fn expect_limits(&self, limits: &[Limit]) -> Result<()> {
        ensure!(
            self.report.coverage.open() == limits,
            "not {limits:?}: {:?}",
            self.report.coverage
        );
        Ok(())
    }

    /// Fails unless there are findings, all of this rule.
    pub fn expect_rule(&self, rule: &str) -> Result<()> {
        let findings = &self.report.findings;
        ensure!(
            !findings.is_empty() && findings.iter().all(|finding| finding.rule == rule),
            "not {rule}: {:?}\n{}",
            self.report.notes,
            show(&self.report)
        );
        Ok(())
    }
}

/// A number of a report's statistics.
pub fn number(report: &Report, name: &str) -> Result<u64> {
    let value = report.statistics.get(name);
    value
        .and_then(serde_json::Value::as_u64)
        .with_context(|| format!("{name} is {value:?}"))
}

/// How to see a finding natively.
pub fn reproduction(finding: &Finding) -> Result<&Reproduction> {
    finding
        .reproduction
        .as_ref()
        .with_context(|| format!("no reproduction of {}", finding.message))
}

/// Where to look first: the first lost store or, if no store need be lost, the one that
/// survives and should not, or the crash.
pub fn blamed(finding: &Finding) -> Result<&Event> {
    let event = finding.events.first().context("no events")?;
    ensure!(
        ["store", "survivor", "crash"].contains(&event.role.name()),
        "{} begins with a {}",
        finding.message,
        event.role
    );
    Ok(event)
}

//! `brownout check` as the suites use it: run it, read its report, ask where a finding is.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Event, Finding, Report, Severity};

use crate::exec::{Invocation, Outcome};
use crate::{layout, tool};

/// `brownout check OPTIONS -- …`, otherwise the same invocation.
pub fn command(native: &Invocation, options: &[&str]) -> Invocation {
    let mut argv = words(options);
    argv.push("--".into());
    argv.extend(native.argv.iter().cloned());
    Invocation {
        argv,
        ..native.clone()
    }
}

/// `brownout check OPTIONS`, of a recording.
pub fn command_without_program(options: &[&str], folder: &Path) -> Invocation {
    Invocation::new(words(options), folder)
}

/// `brownout replay --yes TOKEN`.
pub fn replay(token: &str, folder: &Path) -> Invocation {
    let argv: Vec<OsString> = vec![
        layout::brownout().into(),
        "replay".into(),
        "--yes".into(),
        token.into(),
    ];
    Invocation::new(argv, folder)
}

fn words(options: &[&str]) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec![layout::brownout().into(), "check".into()];
    argv.extend(options.iter().map(OsString::from));
    argv
}

/// What a check said and how it ended.
#[derive(Debug)]
pub struct Checked {
    /// Its report.
    pub report: Report,
    /// Its exit status and output; the program's output is in it.
    pub outcome: Outcome,
}

/// Runs the program under `check` and reads the report.
pub fn run(native: &Invocation, options: &[&str]) -> Result<Checked> {
    with_report(&native.folder, options, |options| command(native, options))
}

/// Checks a recording and reads the report.
pub fn run_recorded(options: &[&str], folder: &Path) -> Result<Checked> {
    with_report(folder, options, |options| {
        command_without_program(options, folder)
    })
}

fn with_report(
    folder: &Path,
    options: &[&str],
    make: impl FnOnce(&[&str]) -> Invocation,
) -> Result<Checked> {
    tool::expect_built()?;
    let path = folder.join("report.json");
    if path.exists() {
        fs::remove_file(&path)?;
    }
    let shown = path.to_string_lossy();
    let mut all = vec!["--format", "json", "-o", &*shown];
    all.extend(options);
    let invocation = make(&all);
    let outcome = invocation.run()?;
    let Ok(text) = fs::read(&path) else {
        bail!(
            "no report, exit status {}: {}\n{}",
            outcome.status,
            invocation.line(),
            outcome.describe()
        );
    };
    let report = serde_json::from_slice(&text).context("the report is no report")?;
    Ok(Checked { report, outcome })
}

impl Checked {
    /// Findings of a rule.
    pub fn of(&self, rule: &str) -> Vec<&Finding> {
        let findings = self.report.findings.iter();
        findings.filter(|finding| finding.rule == rule).collect()
    }

    /// Fails if something is reported that can lose data.
    pub fn expect_correct(&self) -> Result<()> {
        let severities = self.report.findings.iter().map(|finding| finding.severity);
        let wrong = severities.filter(|severity| *severity == Severity::Correctness);
        match wrong.count() {
            0 => Ok(()),
            count => bail!("{count} correctness findings\n{}", show(&self.report)),
        }
    }

    /// Rule and function (of the first event's innermost frame) of each finding, sorted.
    pub fn places(&self) -> Vec<(&str, &str)> {
        let mut places: Vec<(&str, &str)> = self
            .report
            .findings
            .iter()
            .map(|finding| (finding.rule.as_str(), function(finding)))
            .collect();
        places.sort_unstable();
        places
    }

    /// Fails unless there are exactly these findings: rule and function of the first event, sorted.
    pub fn expect_places(&self, expected: &[(&str, &str)]) -> Result<()> {
        ensure!(
            self.places() == expected,
            "not exactly {expected:?}\n{}",
            show(&self.report)
        );
        Ok(())
    }

    /// Fingerprint and count of each finding, sorted: what makes two reports say the same.
    pub fn fingerprints(&self) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = self
            .report
            .findings
            .iter()
            .map(|finding| (finding.fingerprint.clone(), finding.count))
            .collect();
        all.sort();
        all
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
}

/// Function of the innermost frame of a finding's first event.
pub fn function(finding: &Finding) -> &str {
    let frame = finding.events.first().and_then(|event| event.stack.first());
    frame
        .and_then(|frame| frame.function.as_deref())
        .unwrap_or("?")
}

/// True if the line of a source file (by its name, without folder) is on the stack.
pub fn is_at_line(event: &Event, file: &str, line: u32) -> bool {
    event.stack.iter().any(|frame| {
        let path = frame.file.as_deref().map(Path::new);
        path.and_then(Path::file_name)
            .is_some_and(|name| name == file)
            && frame.line == Some(line)
    })
}

/// True if the function is on the stack.
pub fn is_inside(event: &Event, function: &str) -> bool {
    let mut functions = event
        .stack
        .iter()
        .filter_map(|frame| frame.function.as_deref());
    functions.any(|name| name == function)
}

/// The findings in a few lines each, for messages.
pub fn show(report: &Report) -> String {
    let mut text = format!("{:?}, {} findings", report.verdict, report.findings.len());
    for finding in report.findings.iter().take(50) {
        text += &format!(
            "\n{} {} ({} times): {}",
            finding.rule, finding.fingerprint, finding.count, finding.message
        );
        for event in &finding.events {
            let frames = event.stack.iter().map(|frame| {
                let function = frame.function.as_deref().unwrap_or("?");
                match frame.line {
                    Some(line) => format!("{function}:{line}"),
                    None => format!("{function}+{:#x}", frame.offset),
                }
            });
            let frames: Vec<String> = frames.collect();
            text += &format!(
                "\n  {}: {} [{}]",
                event.role,
                event.text,
                frames.join(" < ")
            );
        }
    }
    text
}

/// Compiles a C source, with this project's headers at hand.
pub fn compile(source: &Path, binary: PathBuf, flags: &[&str]) -> Result<PathBuf> {
    let output = Command::new("gcc")
        .args(["-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .arg("-I")
        .arg(layout::workspace().join("include"))
        .arg("-I")
        .arg(layout::program_sources())
        .args(flags)
        .arg(source)
        .arg("-o")
        .arg(&binary)
        .output()
        .context("cannot run gcc")?;
    ensure!(
        output.status.success(),
        "gcc does not like {}:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(binary)
}

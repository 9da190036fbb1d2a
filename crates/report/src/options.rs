//! What a front end can choose.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use brownout_findings::rules::RuleSet;
use brownout_findings::{Finding, Report, Severity, Verdict};

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Terminal,
    /// The report itself.
    Json,
    /// A page for browsers, in one file.
    Html,
    /// SARIF 2.1.0.
    Sarif,
    /// JUnit XML.
    Junit,
    /// Like pmemcheck's summary.
    Pmemcheck,
    /// Like Valgrind's log.
    Valgrind,
}

impl Format {
    /// Every form.
    pub const ALL: [Format; 7] = [
        Format::Terminal,
        Format::Json,
        Format::Html,
        Format::Sarif,
        Format::Junit,
        Format::Pmemcheck,
        Format::Valgrind,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Terminal => "terminal",
            Format::Json => "json",
            Format::Html => "html",
            Format::Sarif => "sarif",
            Format::Junit => "junit",
            Format::Pmemcheck => "pmemcheck",
            Format::Valgrind => "valgrind",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Format, String> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| {
                let names = Format::ALL.map(Format::name).join(", ");
                format!("there is no form {name:?}; take one of {names}")
            })
    }
}

/// What makes a run a failure. Every form that has a word for it, and the exit status, go by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailOn {
    /// Findings of correctness.
    pub correctness: bool,
    /// All other findings: of performance, and warnings.
    pub others: bool,
    /// That no persistent memory was touched, so that nothing was checked.
    pub nothing_checked: bool,
}

impl Default for FailOn {
    /// Findings of correctness only.
    fn default() -> FailOn {
        FailOn {
            correctness: true,
            others: false,
            nothing_checked: false,
        }
    }
}

impl FailOn {
    /// Whether a finding counts.
    pub fn counts(self, finding: &Finding) -> bool {
        match finding.severity {
            Severity::Correctness => self.correctness,
            Severity::Warning | Severity::Performance => self.others,
        }
    }

    /// Whether what was asked for was not done, so that success would be a lie.
    pub fn falls_short(self, report: &Report) -> bool {
        report.coverage.falls_short(!report.findings.is_empty())
            || report.verdict == Verdict::Incomplete
            || self.nothing_checked && report.verdict == Verdict::NothingChecked
    }
}

/// How to render. Every renderer ignores what does not concern it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Escape codes for colours. Off by default; a front end knows whether it writes to a terminal.
    pub colour: bool,
    /// How many findings are shown in full; of the rest the table at the end tells. 100 by default:
    /// more is not read anyway.
    pub limit: Option<usize>,
    /// How many findings that are alike (one rule, one function) are shown in full, the rest one
    /// line each. 1 by default.
    pub limit_per_kind: Option<usize>,
    /// How many of those lines there are, and how many lines the table at the end has. 12 by
    /// default.
    pub rows_max: usize,
    /// What the user types to see all findings in full, for the sentence that says so. `--all` by
    /// default.
    pub show_all: String,
    /// How many frames of a stack are shown under each event. 12 by default; JSON and SARIF have
    /// them all.
    pub frames_max: usize,
    /// The current folder. Paths below it are shown relative to it, and relative paths start there.
    /// None by default: paths are shown as they are.
    pub folder: Option<PathBuf>,
    /// The rules that were looked at: JUnit's test cases. By default those that are on by default.
    pub rules: RuleSet,
    /// Process number in front of pmemcheck's lines. 0 by default.
    pub process: u32,
    /// Leave out what is said even if nothing is wrong. No by default; only the forms for people
    /// can.
    pub quiet: bool,
    /// Suppressions for what was found stand behind it. No by default; only Valgrind's form has
    /// them.
    pub show_suppressions: bool,
    /// What makes a run a failure. Findings of correctness by default.
    pub fail_on: FailOn,
    /// The name of JUnit's test suite. By default that of the program.
    pub suite: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            colour: false,
            limit: Some(100),
            limit_per_kind: Some(1),
            rows_max: 12,
            show_all: "--all".into(),
            frames_max: 12,
            folder: None,
            rules: RuleSet::default(),
            process: 0,
            quiet: false,
            show_suppressions: false,
            fail_on: FailOn::default(),
            suite: None,
        }
    }
}

impl Options {
    /// The same with every finding and every frame in full.
    pub fn all(self) -> Options {
        Options {
            limit: None,
            limit_per_kind: None,
            rows_max: usize::MAX,
            frames_max: usize::MAX,
            ..self
        }
    }
}

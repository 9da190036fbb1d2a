//! What every analysis does with its findings: suppressions, baseline, the report, the exit status.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use brownout_explore::CrashSpec;
use brownout_findings::numbers::counted;
use brownout_findings::rules::RuleSet;
use brownout_findings::touched::Touched;
use brownout_findings::{Analysed, Finding, Limit, Outcome, Replay, Report, Verdict};
use brownout_report::baseline::Baseline;
use brownout_report::suppress::{self, Suppressions};
use brownout_report::{excerpts, lcov, saved};
use serde::Serialize;

use crate::destination;
use crate::exit::{self, Failure};
use crate::resolve::{ColorChoice, Compat, ReportFormat, Reporting, plain};
use crate::terminal::{message, quote};
use crate::token::Token;

pub use crate::token::Again;

/// What is known about findings beforehand.
#[derive(Default)]
pub struct Known {
    suppressions: Option<Suppressions>,
    baseline: Option<Baseline>,
    accept: Vec<Limit>,
}

impl Known {
    pub fn read(reporting: &Reporting) -> Result<Known, Failure> {
        let mut suppressions: Option<Suppressions> = None;
        for path in &reporting.suppressions {
            let file = Suppressions::load(path).map_err(|e| Failure::usage(e.to_string()))?;
            match &mut suppressions {
                Some(all) => all.extend(file),
                None => suppressions = Some(file),
            }
        }
        let baseline = match &reporting.baseline {
            Some(path) => Some(Baseline::load(path).map_err(|e| Failure::usage(e.to_string()))?),
            None => None,
        };
        let to_stdout = reporting.output.is_none();
        if reporting.format == ReportFormat::Html && to_stdout && io::stdout().is_terminal() {
            return Err(no_terminal());
        }
        // Whatever can be wrong with the files of the report is said before the run.
        let paths = [
            &reporting.output,
            &reporting.gen_suppressions,
            &reporting.coverage,
        ];
        for path in paths.into_iter().flatten() {
            destination::try_it(path)?;
        }
        Ok(Known {
            suppressions,
            baseline,
            accept: reporting.accept.clone(),
        })
    }

    /// Names the findings, takes out what is known, and makes the verdict.
    fn apply(&self, report: &mut Report) {
        report.coverage.accept(&self.accept);
        report.verdict = report.coverage.verdict(!report.findings.is_empty());
        // A baseline knows its findings by their lines, too. What is left brings its own later.
        let has_lines = !report.sources.is_empty();
        let folder = env::current_dir().ok();
        if self.baseline.is_some() && !has_lines {
            excerpts::attach(report, folder.as_deref());
        }
        brownout_report::finish(
            report,
            self.suppressions.as_ref(),
            self.baseline.as_ref(),
            suppress::today(),
        );
        if !has_lines {
            report.sources.clear();
        }
    }
}

/// A page on the terminal is of no use to anybody.
pub fn no_terminal() -> Failure {
    Failure::usage("a page is for a browser, not for the terminal: say -o FILE.html")
}

/// A slip of the hand must not cost a report.
pub fn spare_inputs(files: &[PathBuf], output: &Path) -> Result<(), Failure> {
    let Ok(real) = fs::canonicalize(output) else {
        return Ok(());
    };
    match files
        .iter()
        .any(|file| fs::canonicalize(file).is_ok_and(|file| file == real))
    {
        true => Err(Failure::usage(format!(
            "{} is one of the reports, which would be replaced; choose another name for -o",
            quote(output)
        ))),
        false => Ok(()),
    }
}

fn write_file(path: &Path, content: &[u8]) -> Result<(), Failure> {
    destination::write(path, content).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::cannot_run(format!("cannot write {}: {}", quote(path), plain(error)))
}

/// Writes which lines touched persistent memory.
fn write_coverage(path: &Path, report: &Report) -> Result<(), Failure> {
    let none = Touched::default();
    let touched = report.touched.as_ref().unwrap_or(&none);
    let mut text = Vec::new();
    lcov::write(touched, &mut text).map_err(|error| cannot_write(path, &error))?;
    write_file(path, &text)?;
    let unknown = match touched.unknown {
        0 => String::new(),
        n => format!(
            ", and {} without (compile with -g to see where they are)",
            counted(n, "place")
        ),
    };
    let missed = match touched.missed_lines() as u64 {
        0 => String::new(),
        n => format!(
            "; {} could write back, fence or call libpmem's functions, and were not seen to",
            counted(n, "line")
        ),
    };
    message(&format!(
        "persistent memory was touched at {} of source code{unknown}{missed}: {}",
        counted(touched.lines() as u64, "line"),
        quote(path)
    ));
    Ok(())
}

/// Writes the report, and suppressions if asked for.
fn write(reporting: &Reporting, rules: RuleSet, report: &Report) -> Result<(), Failure> {
    if let Some(path) = &reporting.gen_suppressions {
        write_file(path, suppress::generate(&report.findings).as_bytes())?;
    }
    if let Some(path) = &reporting.coverage {
        write_coverage(path, report)?;
    }
    use brownout_report::{Format, Options};
    let format = match (reporting.format, reporting.compat) {
        (ReportFormat::Terminal, Some(Compat::Pmemcheck)) => Format::Pmemcheck,
        (ReportFormat::Terminal, Some(Compat::Valgrind)) => Format::Valgrind,
        (ReportFormat::Terminal, None) => Format::Terminal,
        (ReportFormat::Json, _) => Format::Json,
        (ReportFormat::Html, _) => Format::Html,
        (ReportFormat::Sarif, _) => Format::Sarif,
        (ReportFormat::Junit, _) => Format::Junit,
    };
    let for_people = matches!(
        format,
        Format::Terminal | Format::Pmemcheck | Format::Valgrind
    );
    let is_fine = report.findings.is_empty() && report.verdict != Verdict::Incomplete;
    // Valgrind's log is there, and empty.
    if reporting.quiet && is_fine && for_people && format != Format::Valgrind {
        return Ok(());
    }
    let to_terminal = reporting.output.is_none()
        && match for_people {
            true => io::stderr().is_terminal(),
            false => io::stdout().is_terminal(),
        };
    let options = Options {
        colour: match reporting.color {
            ColorChoice::Auto => to_terminal && env::var_os("NO_COLOR").is_none(),
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        },
        folder: env::current_dir().ok(),
        rules,
        process: std::process::id(),
        quiet: reporting.quiet,
        show_suppressions: reporting.print_suppressions,
        fail_on: reporting.fail_on,
        suite: reporting.suite.clone(),
        ..Options::default()
    };
    let options = Options {
        frames_max: reporting.frames_max.unwrap_or(options.frames_max),
        ..options
    };
    let options = match reporting.all {
        true => options.all(),
        false => options,
    };
    let render = |out: &mut dyn Write| {
        brownout_report::render(report, format, &options, out)?;
        out.flush()
    };
    match &reporting.output {
        Some(path) => {
            let file = destination::create(path).map_err(|error| cannot_write(path, &error))?;
            render(&mut BufWriter::new(file)).map_err(|error| cannot_write(path, &error))?;
            if reporting.quiet && is_fine {
                return Ok(());
            }
            message(&brownout_report::terminal::last_line(report).replacen("brownout: ", "", 1));
            Ok(())
        }
        // The program has its standard output to itself, unless a machine is to read the report.
        None if for_people => {
            // That nobody reads stderr is no reason to fail.
            let _ = render(&mut BufWriter::new(io::stderr().lock()));
            Ok(())
        }
        None => match render(&mut BufWriter::new(io::stdout().lock())) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::cannot_run(
                format!("cannot write the report: {}", plain(&error)),
            )),
            _ => Ok(()),
        },
    }
}

/// The exit status, if the analysis itself would end with `status`.
fn exit_code(reporting: &Reporting, report: &Report, status: u8) -> u8 {
    let counts = |finding: &Finding| reporting.fail_on.counts(finding);
    if report.findings.iter().any(counts) {
        return reporting.error_exitcode.unwrap_or(exit::FINDINGS);
    }
    match reporting.fail_on.falls_short(report) {
        // Not the program's fault, and no success either.
        true if status == exit::OK => exit::CANNOT_RUN,
        _ => status,
    }
}

/// What was analysed, and how.
pub struct Subject<'a> {
    /// Who analysed what.
    pub analysed: Analysed,
    /// The built-in rules that were on.
    pub rules: RuleSet,
    /// How the command would end if the analysis had nothing to say.
    pub status: u8,
    /// The words after `brownout`, for replay tokens.
    pub command_line: &'a [OsString],
    /// Only the finding of this fingerprint is shown, and counts.
    pub wanted: Option<&'a str>,
}

/// Makes the report, the verdict and the exit status of what an analysis came to: the same for all.
/// `crash` gives the crash that a finding is about, by the finding's number in the outcome.
pub fn conclude<S: Serialize>(
    reporting: &Reporting,
    known: &Known,
    subject: Subject<'_>,
    outcome: Outcome<S>,
    crash: impl Fn(usize) -> Option<CrashSpec>,
) -> Result<u8, Failure> {
    let words = words(subject.command_line);
    let replay = |number: usize| {
        Some(Again {
            words: words.clone()?,
            crash: crash(number),
            ..Again::default()
        })
    };
    conclude_each(reporting, known, subject, outcome, replay)
}

/// What to say if no finding has a source line in the program's own code.
fn lacks_lines(findings: &[Finding]) -> Option<String> {
    let frames = || {
        let events = findings.iter().flat_map(Finding::all_events);
        let frames = events.flat_map(|event| &event.stack);
        frames.filter(|frame| {
            let module = frame.module.as_deref().unwrap_or_default();
            // What a distribution brings has its debug information elsewhere.
            !module.is_empty() && !module.starts_with("/lib") && !module.starts_with("/usr/lib")
        })
    };
    let has_lines = frames().any(|frame| frame.line.is_some());
    let module = frames().find_map(|frame| frame.module.as_ref())?;
    (!has_lines).then(|| {
        format!(
            "{} has no debug information: compile with -g to see source lines",
            quote(module)
        )
    })
}

/// For how long this command has been at work, in milliseconds.
fn since_start() -> u64 {
    let begun = BEGUN.get_or_init(Instant::now);
    begun.elapsed().as_millis() as u64
}

static BEGUN: OnceLock<Instant> = OnceLock::new();

/// The clock of this command begins.
pub fn begin() {
    since_start();
}

/// Makes one report of saved ones, and treats it as that of one run.
pub fn merge(reporting: &Reporting, files: &[PathBuf]) -> Result<u8, Failure> {
    if let Some(output) = &reporting.output {
        spare_inputs(files, output)?;
    }
    let known = Known::read(reporting)?;
    let load = |path: &PathBuf| saved::load(path).map_err(|e| Failure::usage(e.to_string()));
    let reports = files.iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let mut report = brownout_report::merge::merge(reports);
    known.apply(&mut report);
    write(reporting, RuleSet::default(), &report)?;
    Ok(exit_code(reporting, &report, exit::OK))
}

/// A command line as text, if it is.
pub fn words(line: &[OsString]) -> Option<Vec<String>> {
    let words = line.iter().map(|word| word.to_str());
    words.map(|word| Some(word?.to_owned())).collect()
}

/// The report of what an analysis came to, with names, tokens and verdict; and for each finding its
/// number in the outcome.
pub fn assemble<S: Serialize>(
    known: &Known,
    analysed: Analysed,
    outcome: Outcome<S>,
    replay: impl Fn(usize) -> Option<Again>,
) -> (Report, Vec<Option<usize>>) {
    let mut report = outcome.report(analysed);
    // Findings are sorted and left out: each keeps its number until it gets its token, which needs
    // its final name.
    for (number, finding) in report.findings.iter_mut().enumerate() {
        finding.replay = Some(Replay {
            token: number.to_string(),
            command: String::new(),
        });
    }
    known.apply(&mut report);
    let mut numbers = Vec::new();
    // A command line that is no text has no token.
    for finding in &mut report.findings {
        let number = finding.replay.take().and_then(|r| r.token.parse().ok());
        let token = number.and_then(&replay);
        let token = token.and_then(|again| Token::new(again, &finding.fingerprint));
        finding.replay = token.map(Token::replay);
        numbers.push(number);
    }
    (report, numbers)
}

/// As [`conclude`], where each finding has a command line of its own that shows it again.
pub fn conclude_each<S: Serialize>(
    reporting: &Reporting,
    known: &Known,
    subject: Subject<'_>,
    outcome: Outcome<S>,
    replay: impl Fn(usize) -> Option<Again>,
) -> Result<u8, Failure> {
    let bug = outcome.bug.clone();
    let analysed = Analysed {
        command: words(subject.command_line).unwrap_or_default(),
        milliseconds: Some(since_start()),
        ..subject.analysed
    };
    let (mut report, _) = assemble(known, analysed, outcome, replay);
    if let Some(fingerprint) = subject.wanted {
        report.findings.retain(|f| f.fingerprint == fingerprint);
        message(&match report.findings.is_empty() {
            true => format!(
                "finding {fingerprint} did not show again; the program ran on the files as they are now"
            ),
            false => format!("finding {fingerprint} shows again"),
        });
    }
    report.notes.extend(lacks_lines(&report.findings));
    // What is read elsewhere takes its source lines along.
    if matches!(reporting.format, ReportFormat::Json | ReportFormat::Html) {
        excerpts::attach(&mut report, env::current_dir().ok().as_deref());
    }
    write(reporting, subject.rules, &report)?;
    match bug {
        Some(bug) => Err(Failure::bug(bug)),
        None => Ok(exit_code(reporting, &report, subject.status)),
    }
}

//! `brownout check`: rules over one run, live or recorded.
//!
//! ```text
//!  program ─┐
//!  trace   ─┼▶ Analysis ─▶ findings ─▶ suppressions, baseline ─▶ report ─▶ exit status
//!  log     ─┘
//! ```
//! Guarantee: whatever can be wrong with the files named on the command line is said before the program starts. A run that
//! was cut short, or touched no persistent memory, is never reported as clean.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use brownout_check::{Analysis, Options};
use brownout_findings::{Analysed, Coverage, Finding, Limit, Report, SCHEMA_VERSION, Tool};
use brownout_host::{ExitStatus, LaunchConfig};
use brownout_model::{Config, Domain};
use brownout_storelog::Importer;
use brownout_symbols::Options as SymbolOptions;
use brownout_trace::maps::MapFault;
use brownout_trace::{Reader, Tee, event};
use serde_json::{Map, json};

use crate::exit::{self, Failure};
use crate::explore::{self, LiveLine};
use crate::output::TraceOutput;
use crate::record::{Keep, hint, missed_patterns};
use crate::reporting::{self, Known};
use crate::resolve::{Check, Explore, Source, plain};
use crate::signals;
use crate::terminal::quote;
use crate::token::Token;

/// Checks, reports, and says how to exit.
pub fn check(check: Check) -> Result<u8, Failure> {
    conduct(check, None)
}

/// As [`check`], but only the finding of that fingerprint is shown, and counts.
pub fn conduct(mut check: Check, wanted: Option<&str>) -> Result<u8, Failure> {
    let known = Known::read(&check.report)?;
    let seen = examine(&mut check)?;
    let mut report = seen.report;
    if seen.has_missed {
        let text = "--pm matches no file that the program maps shared";
        report.coverage.limit(Limit::Unmatched, text);
    }
    known.apply(&mut report);
    let status = match seen.status {
        // Nobody may take it for success.
        exit::OK if seen.is_killed => exit::CANNOT_RUN,
        status => status,
    };
    add_replay(&check, &mut report.findings);
    if let Some(fingerprint) = wanted {
        report.findings.retain(|f| f.fingerprint == fingerprint);
        reporting::conclude(&report.findings, fingerprint);
    }
    reporting::write(&check.report, check.rules, &report)?;
    if let Some(fault) = seen.fault {
        return Err(Failure::bug(format!(
            "bug in Brownout: the events make no sense, so that findings may be wrong or missing: {fault}"
        )));
    }
    Ok(reporting::exit_code(&check.report, &report, status))
}

// ---------------------------------------------------------------------- the run

/// What was seen.
struct Seen {
    report: Report,
    /// How the program ended, as an exit code; 0 for recordings.
    status: u8,
    /// Why the events make no sense, if they do not.
    fault: Option<MapFault>,
    /// A signal ended a process, so that not all was judged.
    is_killed: bool,
    /// Persistent memory was named, and none was seen.
    has_missed: bool,
}

fn options(check: &Check) -> Options {
    Options {
        model: Config {
            domain: Domain::from_name(&check.domain).unwrap_or_default(),
            ..Config::default()
        },
        rules: check.rules,
        tx_only: check.tx_only,
    }
}

/// Whether the rules get threads of their own. Custom rules look at the state of all of them, so they keep all in one place.
fn in_parallel(check: &Check) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    // The program, the thread that receives events, and two that check.
    let default = if cores >= 4 { 2 } else { 1 };
    check.plugins.is_empty() && check.jobs.unwrap_or(default) >= 2
}

fn examine(check: &mut Check) -> Result<Seen, Failure> {
    let mut analysis = match in_parallel(check) {
        true => Analysis::in_parallel(options(check), SymbolOptions::for_findings()),
        false => Analysis::new(options(check), SymbolOptions::for_findings()),
    };
    for (path, options) in &check.plugins {
        analysis
            .load_rule(path, options)
            .map_err(|error| Failure::usage(error.to_string()))?;
    }
    if let Source::Run(launch) = &mut check.source {
        launch.values |= analysis.needs_values();
        launch.loads |= analysis.needs_loads();
        if check.confirm.is_none() {
            signals::leave_to_program(launch)?;
        }
    }
    match &check.source {
        Source::Run(launch) if check.confirm.is_some() => {
            examine_confirmed(check, launch, analysis)
        }
        Source::Run(launch) => examine_run(check, launch, analysis),
        Source::Trace(path) => examine_trace(path, analysis),
        Source::PmemcheckLog(path) => examine_log(path, analysis),
    }
}

fn examine_run(
    check: &Check,
    launch: &LaunchConfig,
    mut analysis: Analysis,
) -> Result<Seen, Failure> {
    let mut keep = match &check.save_trace {
        Some(path) => Some(Keep::new(TraceOutput::open(path, false)?, launch)),
        None => None,
    };
    let mut sink = Tee::of([&mut analysis]).and(keep.as_mut());
    let outcome = match brownout_host::record(launch, &mut sink) {
        Ok(outcome) => outcome,
        Err(error) => {
            if let Some(keep) = keep {
                keep.abandon();
            }
            return Err(error.into());
        }
    };
    if let Some(keep) = keep {
        keep.finish(outcome.wall)?;
    }
    let mut notes = outcome.notes.clone();
    let program = std::iter::once(&launch.program).chain(&launch.args);
    let analysed = Analysed {
        program: program.map(|w| w.to_string_lossy().into_owned()).collect(),
        ..Analysed::default()
    };
    let checked = analysis.finish();
    let hints: Vec<String> = outcome.hints.iter().map(hint).collect();
    let missed = missed_patterns(checked.files.is_empty(), launch);
    let has_missed = missed.is_some();
    notes.extend(missed);
    if !checked.touched_pm {
        notes.extend(
            hints
                .iter()
                .map(|h| h.trim_start_matches("hint: ").to_owned()),
        );
    }
    let is_killed = checked.killed;
    let mut statistics = Map::new();
    let seconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
    statistics.insert("wall_s".into(), json!(seconds(outcome.wall)));
    statistics.insert("target_waited_s".into(), json!(seconds(outcome.waited)));
    Ok(Seen {
        fault: checked.fault,
        report: report(checked, analysed, notes, statistics),
        status: exit::of_program(&outcome.status),
        is_killed,
        has_missed,
    })
}

/// As [`examine_run`], and what is suspected is settled by exploration.
fn examine_confirmed(
    check: &Check,
    launch: &LaunchConfig,
    mut analysis: Analysis,
) -> Result<Seen, Failure> {
    let Some((recovery, stdin)) = &check.confirm else {
        return Err(Failure::usage("--confirm was not given"));
    };
    let explore = Explore {
        pm_globs: launch.pm_globs.clone(),
        program: launch.program.clone(),
        args: launch.args.clone(),
        stdin: stdin.clone(),
        recovery: recovery.clone(),
        jobs: None,
        depth: Some(1),
        exhaustive: false,
        self_test: 0,
        outcomes: None,
        resume: false,
        folder: "brownout-explore".into(),
        domain: check.domain.clone(),
        whole_lines: false,
        posix_names: false,
        tso: false,
        report: check.report.clone(),
        command_line: Vec::new(),
    };
    let (mut options, run) = explore::confirm(&explore, &mut analysis)?;
    let (output, errors) = run.output();
    // The program has its output to itself, as without --confirm.
    let _ = io::stdout().write_all(&output);
    let _ = io::stderr().write_all(&errors);
    let hints: Vec<String> = run.hints().iter().map(hint).collect();
    let ended = run.status();
    let mut checked = analysis.finish();
    let mut notes = Vec::new();
    let missed = missed_patterns(checked.files.is_empty(), launch);
    let has_missed = missed.is_some();
    notes.extend(missed);
    let is_killed = checked.killed;
    if !checked.touched_pm {
        notes.extend(
            hints
                .iter()
                .map(|h| h.trim_start_matches("hint: ").to_owned()),
        );
    }
    options.suspects = checked
        .findings
        .iter()
        .filter_map(brownout_explore::suspect)
        .collect();
    let mut statistics = Map::new();
    if !options.suspects.is_empty() {
        let mut line = LiveLine::new();
        let exploration = brownout_explore::explore_run(&options, run, &mut line)?;
        line.clear();
        brownout_explore::settle(&mut checked.findings, &exploration);
        notes.extend(exploration.notes);
        statistics.insert("exploration".into(), exploration.statistics.into());
    }
    let program = std::iter::once(&launch.program).chain(&launch.args);
    let analysed = Analysed {
        program: program.map(|w| w.to_string_lossy().into_owned()).collect(),
        ..Analysed::default()
    };
    let status = match ended {
        brownout_explore::Status::Exit(code) => exit::of_program(&ExitStatus::Code(code)),
        brownout_explore::Status::Signal(signal) => exit::of_program(&ExitStatus::Signal(signal)),
        brownout_explore::Status::Hang(_) => exit::CANNOT_RUN,
    };
    Ok(Seen {
        fault: checked.fault,
        report: report(checked, analysed, notes, statistics),
        status,
        is_killed,
        has_missed,
    })
}

fn examine_trace(path: &Path, mut analysis: Analysis) -> Result<Seen, Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read the trace {}: {error}", quote(path)))
    };
    let mut reader = Reader::<File>::open(path).map_err(|error| cannot(&error))?;
    let mut notes = Vec::new();
    let lacks = |what: &str| {
        reader
            .meta()
            .notes
            .get(what)
            .is_some_and(|on| on == "false")
    };
    if analysis.needs_values() && lacks("values") {
        notes.push(
            "a rule looks at the bytes of stores, and the trace was recorded with --no-values"
                .into(),
        );
    }
    if analysis.needs_loads() && lacks("loads") {
        notes.push("a rule looks at loads, and the trace was recorded without --loads".into());
    }
    loop {
        match reader.next() {
            Ok(Some(event)) => analysis.event(&event),
            Ok(None) => break,
            Err(error) => {
                notes.push(format!("the trace is damaged: {error}"));
                break;
            }
        }
    }
    let analysed = Analysed {
        program: reader.meta().command.clone(),
        trace: Some(path.to_string_lossy().into_owned()),
        ..Analysed::default()
    };
    // Recorded with patterns that matched nothing: there is nothing in it to be judged.
    let has_patterns = reader.meta().notes.contains_key("pm");
    let checked = analysis.finish();
    let (is_killed, has_missed) = (checked.killed, has_patterns && checked.files.is_empty());
    Ok(Seen {
        fault: checked.fault,
        report: report(checked, analysed, notes, Map::new()),
        status: exit::OK,
        is_killed,
        has_missed,
    })
}

fn examine_log(path: &Path, mut analysis: Analysis) -> Result<Seen, Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "cannot read the store log {}: {error}",
            quote(path)
        ))
    };
    let file = File::open(path).map_err(|error| cannot(&plain(&error)))?;
    let mut importer = Importer::new(BufReader::with_capacity(1 << 20, file));
    let mut notes = Vec::new();
    if analysis.needs_loads() {
        notes.push("a rule looks at loads, and a store log has none".into());
    }
    let mut events = 0;
    loop {
        match importer.next() {
            Ok(Some(event)) => {
                events += 1;
                analysis.event(&event);
            }
            Ok(None) => break,
            Err(error) if events == 0 => return Err(cannot(&error)),
            Err(error) => {
                notes.push(format!("the store log is not whole: {error}"));
                break;
            }
        }
    }
    let analysed = Analysed {
        trace: Some(path.to_string_lossy().into_owned()),
        ..Analysed::default()
    };
    let checked = analysis.finish_with_frames(|context| importer.frames(context).to_vec());
    let is_killed = checked.killed;
    Ok(Seen {
        fault: checked.fault,
        report: report(checked, analysed, notes, Map::new()),
        status: exit::OK,
        is_killed,
        has_missed: false,
    })
}

fn report(
    checked: brownout_check::Outcome,
    analysed: Analysed,
    mut notes: Vec<String>,
    mut statistics: Map<String, serde_json::Value>,
) -> Report {
    let counts = checked.counts;
    for (name, count) in [
        ("events", counts.events),
        ("stores", counts.stores),
        ("flushes", counts.flushes),
        ("fences", counts.fences),
        ("transactions", counts.transactions),
    ] {
        statistics.insert(name.into(), json!(count));
    }
    statistics.insert("files".into(), json!(checked.files));
    notes.extend(checked.notes);
    let mut coverage = Coverage::default();
    if checked.fault.is_some() {
        coverage.limit(Limit::Faulty, "the events make no sense: a bug in Brownout");
    } else if !checked.touched_pm {
        coverage.limit(Limit::Untouched, "no persistent memory was touched");
    } else if checked.killed {
        coverage.limit(
            Limit::Killed,
            "a signal ended the program: what it had not yet made persistent was not judged",
        );
    }
    if checked.never_writes_back {
        notes.push(
            "the program never writes back a cache line; if its files are on an ordinary disk, where msync makes them persistent, \
             add --domain page"
                .into(),
        );
    }
    if !checked.touched_pm && !checked.files.is_empty() {
        notes.push("persistent memory was mapped and never stored to".into());
    }
    if checked.ended.is_none() && checked.touched_pm {
        coverage.limit(
            Limit::Unfinished,
            "the recording has no end: what was not yet persistent there was not judged",
        );
    }
    Report {
        schema: SCHEMA_VERSION,
        tool: Tool {
            name: "brownout".into(),
            version: env!("CARGO_PKG_VERSION").into(),
        },
        analysed: Analysed {
            analysis: "check".into(),
            ended: checked
                .ended
                .map(|status: event::ExitStatus| status.to_string()),
            ..analysed
        },
        verdict: coverage.verdict(!checked.findings.is_empty()),
        coverage,
        findings: checked.findings,
        suppressed: 0,
        known: 0,
        notes,
        statistics,
    }
}

fn add_replay(check: &Check, findings: &mut [Finding]) {
    let Some(words) = replay_words(&check.command_line) else {
        return;
    };
    for finding in findings {
        finding.replay = Token::check(words.clone(), &finding.fingerprint).map(Token::replay);
    }
}

/// The command line as text; `None` if it has words that are not.
fn replay_words(words: &[OsString]) -> Option<Vec<String>> {
    words
        .iter()
        .map(|word| word.to_str().map(str::to_owned))
        .collect()
}

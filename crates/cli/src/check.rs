//! `brownout check`: rules over one run, live or recorded.
//!
//! ```text
//!  program ─┐
//!  trace   ─┼▶ Analysis ─▶ findings ─▶ suppressions, baseline ─▶ report ─▶ exit status
//!  log     ─┘
//! ```
//! Guarantee: whatever can be wrong with the files named on the command line is said before the
//! program starts. A run that was cut short, or touched no persistent memory, is never reported as
//! clean.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brownout_check::{Analysis as Checker, Statistics};
use brownout_findings::rules::Analysis;
use brownout_findings::{Analysed, Finding, Limit, Outcome};
use brownout_host::{ExitStatus, LaunchConfig};
use brownout_report::suppress;
use brownout_storelog::Importer;
use brownout_symbols::{Counting, Options as SymbolOptions, Part};
use brownout_trace::{Reader, Tee};
use serde::Serialize;

use crate::exit::{self, Failure};
use crate::explore;
use crate::gdb;
use crate::output::TraceOutput;
use crate::progress::{LiveLine, Pace};
use crate::record::{Keep, hint, missed_patterns};
use crate::reporting::{self, Known, Subject};
use crate::resolve::{Check, Source, plain};
use crate::signals;
use crate::terminal::quote;

/// Checks, reports, and says how to exit.
pub fn check(check: Check) -> Result<u8, Failure> {
    conduct(check, None)
}

/// As [`check`], but only the finding of that fingerprint is shown, and counts.
pub fn conduct(mut check: Check, wanted: Option<&str>) -> Result<u8, Failure> {
    let known = Known::read(&check.report)?;
    let mut seen = examine(&mut check)?;
    let advice = advice(&seen.outcome.statistics.checked);
    seen.outcome.notes.extend(advice.map(str::to_owned));
    let subject = Subject {
        analysed: Analysed {
            analysis: Analysis::Check.name().into(),
            domain: Some(check.options.model.domain.name().into()),
            ..seen.analysed
        },
        rules: check.options.rules,
        status: match seen.status {
            // Nobody may take it for success.
            exit::OK if seen.outcome.statistics.checked.killed => exit::CANNOT_RUN,
            status => status,
        },
        command_line: &check.command_line,
        wanted,
    };
    reporting::conclude(&check.report, &known, subject, seen.outcome, |_| None)
}

/// A run in which a finding has shown again.
pub struct Again {
    /// As it is told this time, if it was there.
    pub finding: Option<Finding>,
    /// The program, with the input that it has got.
    pub program: brownout_explore::Command,
    /// The run.
    pub run: brownout_explore::Run,
    /// What was recorded of it.
    pub seen: gdb::Seen,
}

/// Checks again, in a private view or with files that are put back, and says what the finding of
/// that fingerprint is this time.
pub fn find(check: &Check, wanted: &str, stdin: Option<PathBuf>) -> Result<Again, Failure> {
    let Source::Run(launch) = &check.source else {
        return Err(Failure::usage(
            "a recording was checked, and no program was run that gdb could run again",
        ));
    };
    let mut checker = checker(check)?;
    let program = brownout_explore::Command {
        program: launch.program.clone(),
        args: launch.args.clone(),
        stdin,
    };
    let images = PathBuf::from("brownout-explore");
    let options = brownout_explore::Options {
        pm_globs: launch.pm_globs.clone(),
        schedule: launch.schedule.clone(),
        ..brownout_explore::Options::new(program.clone(), program.clone(), images)
    };
    explore::listen(&options)?;
    let (loads, threads) = (launch.loads || checker.needs_loads(), launch.threads);
    let mut witness = gdb::Witness::new(&program)?;
    let mut sink = Tee::of([&mut checker, &mut witness]);
    let run = brownout_explore::record_beside(
        &options,
        brownout_explore::Besides {
            also: Some(&mut sink),
            prepare: Some(&|config| {
                config.loads = loads;
                config.threads = threads;
                config.beginnings = true;
            }),
            // A check has it, too.
            shares_network: true,
            ..brownout_explore::Besides::default()
        },
    )?;
    let seen = witness.finish()?;
    let mut report = checker.finish().report(Analysed::default());
    brownout_report::finish(&mut report, None, None, suppress::today());
    let mut findings = report.findings.into_iter();
    Ok(Again {
        finding: findings.find(|finding| finding.fingerprint == wanted),
        program,
        run,
        seen,
    })
}

/// What a user should know who finds less than was expected, or more.
fn advice(checked: &Statistics) -> impl Iterator<Item = &'static str> + use<> {
    let domain = "the program never writes back a cache line; if its files are on an ordinary disk, where msync makes them \
                  persistent, add --domain page";
    let unused = "persistent memory was mapped and never stored to";
    let domain = checked.never_writes_back.then_some(domain);
    let is_unused = !checked.touched_pm && !checked.files.is_empty();
    domain.into_iter().chain(is_unused.then_some(unused))
}

// ---------------------------------------------------------------------- the run

/// What was seen.
struct Seen {
    outcome: Outcome<Numbers>,
    analysed: Analysed,
    /// How the program ended, as an exit code; 0 for recordings.
    status: u8,
}

/// The numbers of a check, with those of the run that was checked.
#[derive(Serialize)]
struct Numbers {
    #[serde(flatten)]
    checked: Statistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_waited_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exploration: Option<brownout_explore::Numbers>,
}

impl From<Statistics> for Numbers {
    fn from(checked: Statistics) -> Numbers {
        Numbers {
            checked,
            wall_s: None,
            target_waited_s: None,
            exploration: None,
        }
    }
}

/// With the rules that are asked for.
fn checker(check: &Check) -> Result<Checker, Failure> {
    let mut checker = match check.in_parallel {
        true => Checker::in_parallel(check.options, SymbolOptions::for_findings()),
        false => Checker::new(check.options, SymbolOptions::for_findings()),
    };
    let around = brownout_host::of_ourselves();
    checker.started_by(around.into_iter().flatten().collect());
    for (path, options) in &check.plugins {
        checker
            .load_rule(path, options)
            .map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(checker)
}

fn examine(check: &mut Check) -> Result<Seen, Failure> {
    let checker = checker(check)?;
    if let Source::Run(launch) = &mut check.source {
        launch.values |= checker.needs_values();
        launch.loads |= checker.needs_loads();
        if check.confirm.is_none() {
            signals::leave_to_program(launch)?;
        }
    }
    let touches = check.report.touches();
    let mut counter = match &mut check.confirm {
        // The exploration counts, and records the run itself.
        Some(options) => {
            options.touches = touches.clone();
            None
        }
        None => touches.as_ref().map(|touches| touches.run(Part::Program)),
    };
    let mut seen = match (&check.source, &mut check.confirm) {
        (Source::Run(launch), Some(options)) => examine_confirmed(options, launch, checker),
        (Source::Run(launch), None) => {
            let trace = check.save_trace.as_deref();
            examine_run(trace, launch, checker, counter.as_mut())
        }
        (Source::Trace(path), _) => {
            examine_trace(path, checker, check.options.threads, counter.as_mut())
        }
        (Source::PmemcheckLog(path), _) => examine_log(path, checker),
    }?;
    drop(counter);
    seen.outcome.touched = touches.map(|touches| touches.total());
    Ok(seen)
}

/// The program that was run, in words.
fn program(launch: &LaunchConfig) -> Analysed {
    let words = std::iter::once(&launch.program).chain(&launch.args);
    Analysed {
        program: words.map(|w| w.to_string_lossy().into_owned()).collect(),
        ..Analysed::default()
    }
}

/// Patterns that matched nothing, and files that may be meant: what there is to say of them.
fn missing(
    checked: &mut brownout_check::Outcome,
    launch: &LaunchConfig,
    hints: &[PathBuf],
) -> Vec<String> {
    let missed = missed_patterns(checked.statistics.files.is_empty(), launch);
    if missed.is_some() {
        unmatched(checked);
    }
    let mut notes = Vec::from_iter(missed);
    if !checked.statistics.touched_pm {
        let hints = hints.iter().map(hint);
        notes.extend(hints.map(|hint| hint.trim_start_matches("hint: ").to_owned()));
    }
    notes
}

/// Persistent memory was named, and none was seen.
fn unmatched(checked: &mut brownout_check::Outcome) {
    let text = "--pm matches no file that the program maps shared";
    checked.coverage.limit(Limit::Unmatched, text);
}

fn examine_run(
    save_trace: Option<&Path>,
    launch: &LaunchConfig,
    mut checker: Checker,
    counter: Option<&mut Counting>,
) -> Result<Seen, Failure> {
    let mut keep = match save_trace {
        Some(path) => Some(Keep::new(TraceOutput::open(path, false)?, launch)),
        None => None,
    };
    let mut pace = Pace::new();
    let recorded = {
        let sink = Tee::of([&mut checker]).and(keep.as_mut());
        let mut sink = sink.and(counter).and(pace.as_mut());
        brownout_host::record(launch, &mut sink)
    };
    drop(pace);
    let run = match recorded {
        Ok(run) => run,
        Err(error) => {
            if let Some(keep) = keep {
                keep.abandon();
            }
            return Err(error.into());
        }
    };
    if let Some(keep) = keep {
        keep.finish(run.wall)?;
    }
    // What another run shows is not what was asked for.
    crate::schedule::expect_repeated(launch, &run)?;
    let mut checked = checker.finish();
    let mut notes = run.notes;
    notes.extend(missing(&mut checked, launch, &run.hints));
    checked.put_notes_first(notes);
    let seconds = |time: Duration| Some((time.as_secs_f64() * 1e6).round() / 1e6);
    Ok(Seen {
        outcome: checked.map_statistics(|checked| Numbers {
            wall_s: seconds(run.wall),
            target_waited_s: seconds(run.waited),
            ..Numbers::from(checked)
        }),
        analysed: program(launch),
        status: exit::of_program(&run.status),
    })
}

/// As [`examine_run`], and what is suspected is settled by exploration.
fn examine_confirmed(
    options: &mut brownout_explore::Options,
    launch: &LaunchConfig,
    mut checker: Checker,
) -> Result<Seen, Failure> {
    explore::listen(options)?;
    let run = brownout_explore::record_run(options, Some(&mut checker))?;
    let (output, errors) = run.output();
    // The program has its output to itself, as without --confirm.
    let _ = io::stdout().write_all(&output);
    let _ = io::stderr().write_all(&errors);
    let ended = run.status();
    let mut checked = checker.finish();
    let mut notes = missing(&mut checked, launch, run.hints());
    let suspects = checked.findings.iter();
    options.suspects = suspects.filter_map(brownout_explore::suspect).collect();
    let mut exploration = None;
    if !options.suspects.is_empty() {
        let mut line = LiveLine::new();
        let explored = brownout_explore::explore_run(options, run, &mut line)?;
        line.clear();
        brownout_explore::settle(&mut checked.findings, &explored);
        notes.extend(explored.notes);
        exploration = Some(explored.statistics);
    }
    checked.put_notes_first(notes);
    let status = match ended {
        brownout_explore::Status::Exit(code) => exit::of_program(&ExitStatus::Code(code)),
        brownout_explore::Status::Signal(signal) => exit::of_program(&ExitStatus::Signal(signal)),
        brownout_explore::Status::Hang(_) => exit::CANNOT_RUN,
    };
    Ok(Seen {
        outcome: checked.map_statistics(|checked| Numbers {
            exploration,
            ..Numbers::from(checked)
        }),
        analysed: program(launch),
        status,
    })
}

fn examine_trace(
    path: &Path,
    mut checker: Checker,
    threads: bool,
    mut counter: Option<&mut Counting>,
) -> Result<Seen, Failure> {
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
    if threads {
        // An old trace does not say.
        let has = |what: &str| reader.meta().notes.get(what).is_some_and(|on| on == "true");
        if !has("loads") || !has("threads") {
            return Err(Failure::usage(format!(
                "the trace {} has no loads or no locks, without which --threads sees nothing: record it with \
                 'brownout record --loads --threads'",
                quote(path)
            )));
        }
    }
    if checker.needs_values() && lacks("values") {
        notes.push(
            "a rule looks at the bytes of stores, and the trace was recorded with --no-values"
                .into(),
        );
    }
    if checker.needs_loads() && lacks("loads") {
        notes.push("a rule looks at loads, and the trace was recorded without --loads".into());
    }
    loop {
        match reader.next() {
            Ok(Some(event)) => {
                checker.event(&event);
                if let Some(counter) = &mut counter {
                    counter.observe(&event);
                }
            }
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
    let mut checked = checker.finish();
    if has_patterns && checked.statistics.files.is_empty() {
        unmatched(&mut checked);
    }
    checked.put_notes_first(notes);
    Ok(Seen {
        outcome: checked.map_statistics(Numbers::from),
        analysed,
        status: exit::OK,
    })
}

fn examine_log(path: &Path, mut checker: Checker) -> Result<Seen, Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "cannot read the store log {}: {error}",
            quote(path)
        ))
    };
    let file = File::open(path).map_err(|error| cannot(&plain(&error)))?;
    let mut importer = Importer::new(BufReader::with_capacity(1 << 20, file));
    let mut notes = Vec::new();
    if checker.needs_loads() {
        notes.push("a rule looks at loads, and a store log has none".into());
    }
    let mut events = 0;
    loop {
        match importer.next() {
            Ok(Some(event)) => {
                events += 1;
                checker.event(&event);
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
    let mut checked = checker.finish_with_frames(|context| importer.frames(context).to_vec());
    checked.put_notes_first(notes);
    Ok(Seen {
        outcome: checked.map_statistics(Numbers::from),
        analysed,
        status: exit::OK,
    })
}

//! `brownout explore`: what recovery does after a crash.

use brownout_explore::{CrashSpec, Error, Located, Options};
use brownout_findings::rules::{Analysis, RuleSet};
use brownout_findings::{Analysed, Event, Finding, Limit, Role, Severity};
use brownout_symbols::Touches;

use crate::cli::Stage;
use crate::exit::{self, Failure};
use crate::gdb;
use crate::progress::LiveLine;
use crate::record::hint;
use crate::reporting::{self, Known, Subject};
use crate::resolve::Explore;
use crate::signals;
use crate::terminal::message;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Usage(sentence) => Failure::usage(sentence),
            Error::Launch(error) => error.into(),
            error => Failure::cannot_run(error.to_string()),
        }
    }
}

/// Explores, reports, and says how to exit.
pub fn explore(explore: Explore) -> Result<u8, Failure> {
    let known = Known::read(&explore.report)?;
    let options = &Options {
        touches: explore.report.touches(),
        ..explore.options
    };
    listen(options)?;
    let mut line = LiveLine::new();
    let run = brownout_explore::record_run(options, None)?;
    let exploration = brownout_explore::explore_run(options, run, &mut line)?;
    line.clear();
    let hints: Vec<String> = exploration.hints.iter().map(hint).collect();
    let (mut outcome, crashes) = exploration.into_outcome();
    outcome.touched = options.touches.as_ref().map(Touches::total);
    if outcome.coverage.has(Limit::Untouched) {
        let hints = hints.iter().map(|hint| hint.trim_start_matches("hint: "));
        outcome.notes.extend(hints.map(str::to_owned));
    }
    let words = std::iter::once(&options.program.program).chain(&options.program.args);
    let subject = Subject {
        analysed: Analysed {
            analysis: Analysis::Explore.name().into(),
            program: words.map(|w| w.to_string_lossy().into_owned()).collect(),
            domain: Some(options.model.domain.name().into()),
            ..Analysed::default()
        },
        rules: RuleSet::defaults(Analysis::Explore),
        status: exit::OK,
        command_line: &explore.command_line,
        wanted: None,
    };
    let crash = |number: usize| crashes.get(number).cloned();
    reporting::conclude(&explore.report, &known, subject, outcome, crash)
}

/// The user may end an exploration and see what was found until then.
pub fn listen(options: &Options) -> Result<(), Failure> {
    signals::tell(&options.stop)
        .map_err(|error| Failure::cannot_run(format!("cannot set up signals: {error}")))
}

/// How often a run of several threads is recorded, until it is the one that was explored.
const INTERLEAVINGS: u32 = 4;

/// Hands the program to gdb, up to where the finding's crash loses something.
pub fn debug(explore: Explore, crash: &CrashSpec, stage: Stage) -> Result<u8, Failure> {
    let options = explore.options;
    listen(&options)?;
    for _ in 0..INTERLEAVINGS {
        let mut witness = gdb::Witness::new(&options.program)?;
        let located = brownout_explore::locate(&options, crash, &mut witness)?;
        let Some(Located { run, events }) = located else {
            continue;
        };
        let seen = witness.finish()?;
        let is_lost = |event: &Event| event.role == Role::Store;
        if stage == Stage::Store && !events.iter().any(is_lost) {
            return Err(Failure::usage(
                "nothing that was stored is lost in this crash; take --gdb crash, or --gdb recovery",
            ));
        }
        let finding = Finding {
            crash_point: events.last().cloned(),
            events,
            ..Finding::new("", Severity::Correctness, "")
        };
        return gdb::debug(gdb::Session {
            finding: &finding,
            stage,
            program: &options.program,
            run,
            seen,
        });
    }
    Err(Failure::usage(
        "the program's run is not the one that was explored: it, its input or its files have changed",
    ))
}

/// Makes the crash of a finding again and shows what recovery does.
pub fn replay(
    explore: Explore,
    fingerprint: &str,
    crash: &CrashSpec,
    in_gdb: bool,
) -> Result<u8, Failure> {
    let mut options = explore.options;
    listen(&options)?;
    options.folder = options.folder.join(format!("replay-{fingerprint}"));
    let replayed = brownout_explore::replay(&options, crash)?;
    message(&format!(
        "finding {fingerprint}: recovery ends with {} under Brownout",
        replayed.outcome.status
    ));
    if let Some(native) = &replayed.native {
        message(&format!("natively it ends with {}", native.status));
    }
    if let Some(words) = replayed.outcome.last_words() {
        message(&format!("it says: {words}"));
    }
    message(&format!("natively: {}", replayed.reproduction.command));
    message(&format!("debugger: {}", replayed.reproduction.gdb));
    message(&match replayed.is_same {
        true => format!("finding {fingerprint} shows again"),
        false => format!("finding {fingerprint} did not show again"),
    });
    if in_gdb {
        return gdb::in_recovery(&replayed.reproduction.gdb);
    }
    let code = match replayed.is_same {
        true => explore.report.error_exitcode.unwrap_or(exit::FINDINGS),
        false => exit::OK,
    };
    Ok(code)
}

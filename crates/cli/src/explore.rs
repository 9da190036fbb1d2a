//! `brownout explore`: what recovery does after a crash.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use brownout_explore::{
    Command, CrashSpec, Error, Exploration, Options, Progress, Run, Statistics,
};
use brownout_findings::rules::{Analysis, RuleSet};
use brownout_findings::{Analysed, Finding, Limit, Replay, Report, SCHEMA_VERSION, Tool};
use brownout_model::names::Promise;
use brownout_model::{Atomicity, Config, Domain};
use brownout_trace::EventSink;

use crate::exit::{self, Failure};
use crate::record::hint;
use crate::reporting::{self, Known};
use crate::resolve::Explore;
use crate::signals;
use crate::terminal::message;
use crate::token::Token;

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
    let options = options(&explore)?;
    let mut line = LiveLine::new();
    let exploration = brownout_explore::explore(&options, &mut line)?;
    line.clear();
    let program = std::iter::once(&explore.program).chain(&explore.args);
    let program: Vec<String> = program.map(|w| w.to_string_lossy().into_owned()).collect();
    let bug = exploration.bug.clone();
    let (mut report, specs) = report(exploration, program);
    // Findings are sorted and left out: each keeps the number of its crash until it gets its token, which needs its final name.
    for (number, finding) in report.findings.iter_mut().enumerate() {
        finding.replay = Some(Replay {
            token: number.to_string(),
            command: String::new(),
        });
    }
    known.apply(&mut report);
    let words: Option<Vec<String>> = explore
        .command_line
        .iter()
        .map(|word| word.to_str().map(str::to_owned))
        .collect();
    for finding in &mut report.findings {
        let number = finding.replay.take();
        let number: Option<usize> = number.and_then(|number| number.token.parse().ok());
        let spec = number.and_then(|number| specs.get(number));
        if let (Some(words), Some(spec)) = (&words, spec) {
            finding.replay = Token::explore(words.clone(), &finding.fingerprint, spec.clone())
                .map(Token::replay);
        }
    }
    reporting::write(
        &explore.report,
        RuleSet::defaults(Analysis::Explore),
        &report,
    )?;
    if let Some(bug) = bug {
        return Err(Failure::bug(bug));
    }
    Ok(reporting::exit_code(&explore.report, &report, exit::OK))
}

/// What to explore, as the library wants it.
pub fn options(explore: &Explore) -> Result<Options, Failure> {
    let default_jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let stop = Arc::new(AtomicBool::new(false));
    signals::tell(&stop)
        .map_err(|error| Failure::cannot_run(format!("cannot set up signals: {error}")))?;
    let here = std::env::current_dir()
        .map_err(|error| Failure::cannot_run(format!("the current folder is gone: {error}")))?;
    let absolute = |path: &Path| here.join(path);
    let program = Command {
        program: explore.program.clone(),
        args: explore.args.clone(),
        stdin: explore.stdin.as_deref().map(absolute),
    };
    let recovery = &explore.recovery;
    let recover_stdin = recovery.recover_stdin.as_deref().map(absolute);
    let recover = match &recovery.recover {
        Some(line) => Command::shell(line, recover_stdin),
        None => Command {
            stdin: recover_stdin.or_else(|| program.stdin.clone()),
            ..program.clone()
        },
    };
    Ok(Options {
        setup: recovery.setup.clone(),
        program,
        recover,
        pm_globs: explore.pm_globs.clone(),
        model: Config {
            domain: Domain::from_name(&explore.domain).unwrap_or_default(),
            atomicity: match explore.whole_lines {
                true => Atomicity::Line,
                false => Atomicity::Word,
            },
            ..Config::default()
        },
        promise: match explore.posix_names {
            true => Promise::Posix,
            false => Promise::Ordered,
        },
        operations: recovery.operations,
        ordered: recovery.ordered,
        acknowledged_survives: false,
        suspects: Vec::new(),
        store_buffers: explore.tso,
        checker: recovery.checker.clone(),
        depth: explore.depth,
        jobs: explore.jobs.unwrap_or(default_jobs),
        time: recovery.time,
        exhaustive: explore.exhaustive,
        self_test: explore.self_test,
        resume: explore.resume,
        folder: absolute(&explore.folder),
        outcomes: explore.outcomes.as_deref().map(absolute),
        stop,
        patience: recovery.hang_after,
    })
}

/// The report, and the crash of each finding.
fn report(exploration: Exploration, program: Vec<String>) -> (Report, Vec<CrashSpec>) {
    let mut notes = exploration.notes;
    let coverage = exploration.coverage;
    if coverage.has(Limit::Untouched) {
        let hints = exploration.hints.iter().map(hint);
        notes.extend(hints.map(|hint| hint.trim_start_matches("hint: ").to_owned()));
    }
    let (findings, specs): (Vec<Finding>, _) = exploration.findings.into_iter().unzip();
    let report = Report {
        schema: SCHEMA_VERSION,
        tool: Tool {
            name: "brownout".into(),
            version: env!("CARGO_PKG_VERSION").into(),
        },
        analysed: Analysed {
            analysis: "explore".into(),
            program,
            ended: Some(exploration.ended.to_string()),
            ..Analysed::default()
        },
        verdict: coverage.verdict(!findings.is_empty()),
        coverage,
        findings,
        suppressed: 0,
        known: 0,
        notes,
        statistics: exploration.statistics,
    };
    (report, specs)
}

/// Makes the crash of a finding again and shows what recovery does.
pub fn replay(explore: Explore, fingerprint: &str, crash: &CrashSpec) -> Result<u8, Failure> {
    let mut options = options(&explore)?;
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
    let code = match replayed.is_same {
        true => explore.report.error_exitcode.unwrap_or(exit::FINDINGS),
        false => exit::OK,
    };
    Ok(code)
}

/// Runs a program once, gives its events to `also`, and settles by exploration what is suspected then.
pub fn confirm(explore: &Explore, also: &mut dyn EventSink) -> Result<(Options, Run), Failure> {
    let mut options = options(explore)?;
    options.acknowledged_survives = true;
    let run = brownout_explore::record_run(&options, Some(also))?;
    Ok((options, run))
}

/// One line that is written over and over, on a terminal only.
pub struct LiveLine {
    shown: bool,
    on: bool,
    last: Instant,
}

impl LiveLine {
    pub fn new() -> LiveLine {
        LiveLine {
            shown: false,
            on: io::stderr().is_terminal(),
            last: Instant::now(),
        }
    }

    pub fn clear(&mut self) {
        if self.shown {
            // Nobody reads it any more if this fails.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Progress for LiveLine {
    fn progress(&mut self, s: &Statistics, failures: usize, left: Option<Duration>) {
        if !self.on || self.last.elapsed() < Duration::from_millis(200) {
            return;
        }
        self.last = Instant::now();
        self.shown = true;
        let left = left.map_or(String::new(), |left| format!(", {} s left", left.as_secs()));
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{} of {} failure points, {} recoveries run, {} known without running, {} crash states fail{left}",
            s.points_done,
            s.failure_points + s.nested_points,
            s.executions,
            s.saved,
            failures,
        );
        let _ = io::stderr().flush();
    }
}

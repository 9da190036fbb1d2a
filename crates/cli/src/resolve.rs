//! The command line as meant: everything checked, every path and pattern made definite.

use std::borrow::Cow;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::iter;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use brownout_findings::rules::{Rule, RuleSet};
use brownout_findings::{BuiltIn, Limit};
use brownout_host::LaunchConfig;
use brownout_model::names::Promise;
use brownout_model::{Atomicity, Config, Domain};
use brownout_rule::host::split_argument;
use brownout_symbols::Touches;
use brownout_trace::event::ThreadId;
use clap::Parser;

use crate::cli::{
    CheckArgs, Cli, Command, DumpArgs, ExploreArgs, FileArg, Format, FuzzArgs, ImageSource,
    LaunchArgs, Names, OracleArg, RaceArgs, RecordArgs, RecoveryArgs, ReportArgs, RuleEdit,
    SYMBOLIC_MAX, Selection, Shell, Stage, Steering, SymexArgs, TraceCommand, Unit,
};
use crate::compat;
use crate::exit::Failure;
use crate::schedule::ScheduleArg;
use crate::terminal::{message, quote};
use crate::valgrind;

pub use crate::terminal::plain;

pub use crate::cli::{ColorChoice, Compat, FuzzCommand, ReportFormat};
use crate::cli::{FailOn, Header};

/// What to do.
pub enum Task {
    /// `check`
    Check(Box<Check>),
    /// `explore`
    Explore(Box<Explore>),
    /// `fuzz`
    Fuzz(Box<Fuzz>),
    /// `race`
    Race(Box<Race>),
    /// Search for paths.
    Symex(Box<Symex>),
    /// `fuzz tree` and the like
    Campaign(FuzzCommand),
    /// `explain`: this rule, or all.
    Explain(Option<&'static Rule>),
    /// `replay`
    Replay(Replay),
    /// `report`
    Report(Pages),
    /// Make one report of these.
    Merge {
        report: Box<Reporting>,
        files: Vec<PathBuf>,
    },
    /// `run`
    Run(LaunchConfig),
    /// `record`
    Record(Recording),
    /// `trace stat`
    Stat(PathBuf),
    /// `trace dump`
    Dump(Dump),
    /// `completions`
    Completions(Shell),
    /// `man`: all pages into this folder, or one to stdout.
    Man(Option<PathBuf>),
    /// Write a header.
    Header(Header),
}

/// Saved reports to show.
pub struct Pages {
    /// The reports.
    pub files: Vec<PathBuf>,
    /// They are served on this port, until the user ends it.
    pub watch: Option<u16>,
    /// They are two, an old one and a new one, and what has changed is asked for.
    pub compare: bool,
    /// Where the page goes.
    pub output: Option<PathBuf>,
    /// A browser is to show it.
    pub open: bool,
    /// Paths are shortened.
    pub redact: bool,
}

/// A finding to show again.
pub struct Replay {
    /// What names it.
    pub token: String,
    /// Only say what would be run.
    pub only_show: bool,
    /// Run it without asking.
    pub agreed: bool,
    /// In gdb, up to there.
    pub gdb: Option<Stage>,
}

/// What to check.
pub enum Source {
    /// A program to run.
    Run(Box<LaunchConfig>),
    /// A recording.
    Trace(PathBuf),
    /// A store log of pmemcheck.
    PmemcheckLog(PathBuf),
}

/// A check to make.
pub struct Check {
    /// What to look at.
    pub source: Source,
    /// The model, and the built-in rules that are on.
    pub options: brownout_check::Options,
    /// Libraries with rules (absolute paths), and the options for each.
    pub plugins: Vec<(PathBuf, String)>,
    /// What becomes of findings.
    pub report: Reporting,
    /// Where the recording goes. Only with [`Source::Run`].
    pub save_trace: Option<PathBuf>,
    /// The rules have threads of their own.
    pub in_parallel: bool,
    /// How findings are settled by exploration, if they are.
    pub confirm: Option<Box<brownout_explore::Options>>,
    /// The words after `brownout` that give this check, wherever they come from: as typed, or with
    /// what brownout.toml adds and `--no-config`.
    pub command_line: Vec<OsString>,
}

/// A campaign to run.
pub struct Fuzz {
    /// What to fuzz, and how.
    pub options: brownout_fuzz::Options,
    /// What becomes of findings.
    pub report: Reporting,
    /// As in [`Check`].
    pub command_line: Vec<OsString>,
}

/// A search for interleavings to make.
pub struct Race {
    /// What to search, and how.
    pub options: brownout_race::Options,
    /// What becomes of findings.
    pub report: Reporting,
    /// As in [`Check`].
    pub command_line: Vec<OsString>,
}

/// A search for paths to make.
pub struct Symex {
    /// What to search, and how.
    pub options: brownout_symex::Options,
    /// Where inputs of findings go.
    pub folder: PathBuf,
    /// What becomes of findings.
    pub report: Reporting,
    /// As in [`Check`].
    pub command_line: Vec<OsString>,
}

/// An exploration to make.
pub struct Explore {
    /// What to explore, and how.
    pub options: brownout_explore::Options,
    /// What becomes of findings.
    pub report: Reporting,
    /// As in [`Check`].
    pub command_line: Vec<OsString>,
}

/// What happens after a crash, and how it is judged.
struct Recovery {
    /// Shell command that runs first.
    setup: Option<String>,
    /// Shell command that recovers; `None`: the program itself.
    recover: Option<String>,
    /// Its input.
    recover_stdin: Option<PathBuf>,
    /// Operations are atomic.
    operations: bool,
    /// The order in which recovery prints things is part of them.
    ordered: bool,
    /// A command that judges.
    checker: Option<String>,
    /// No longer than this.
    time: Option<Duration>,
    /// A recovery that takes longer hangs.
    hang_after: Option<Duration>,
}

impl Recovery {
    /// Whether anything was asked for.
    fn is_given(&self) -> bool {
        self.setup.is_some()
            || self.recover.is_some()
            || self.recover_stdin.is_some()
            || self.operations
            || self.checker.is_some()
            || self.time.is_some()
            || self.hang_after.is_some()
    }
}

/// What becomes of findings.
#[derive(Clone)]
pub struct Reporting {
    /// The report's form.
    pub format: ReportFormat,
    /// Where the report goes; by default where the form asks for.
    pub output: Option<PathBuf>,
    /// When to use colours.
    pub color: ColorChoice,
    /// Show every finding in full.
    pub all: bool,
    /// What counts for the exit status.
    pub fail_on: brownout_report::FailOn,
    /// What JUnit's test suite is called.
    pub suite: Option<String>,
    /// What need not be looked at.
    pub accept: Vec<Limit>,
    /// The exit status for findings, if not [`crate::exit::FINDINGS`]. Never 0.
    pub error_exitcode: Option<u8>,
    /// Files of suppressions.
    pub suppressions: Vec<PathBuf>,
    /// Where suppressions for what is found go.
    pub gen_suppressions: Option<PathBuf>,
    /// A report whose findings are known.
    pub baseline: Option<PathBuf>,
    /// Whose habits to follow.
    pub compat: Option<Compat>,
    /// Say nothing if there is nothing wrong.
    pub quiet: bool,
    /// So many frames of a stack, if not as many as the form shows.
    pub frames_max: Option<usize>,
    /// Suppressions for what was found stand behind the report.
    pub print_suppressions: bool,
    /// Where it is written which source lines touched persistent memory.
    pub coverage: Option<PathBuf>,
}

impl Reporting {
    /// Who counts these lines, if that is wanted.
    pub fn touches(&self) -> Option<Touches> {
        self.coverage.as_ref().map(|_| Touches::default())
    }
}

/// A recording to make.
pub struct Recording {
    /// The program.
    pub launch: LaunchConfig,
    /// Where the trace goes. None only if there is a `pmemcheck_log`.
    pub output: Option<PathBuf>,
    /// Where a store log in pmemcheck's form goes.
    pub pmemcheck_log: Option<PathBuf>,
    /// Where the list of what was decided goes.
    pub schedule_out: Option<PathBuf>,
    /// Replace any file.
    pub force: bool,
    /// Check the trace against the files.
    pub verify: bool,
}

/// Events to show.
pub struct Dump {
    /// The trace.
    pub file: PathBuf,
    /// How to write them.
    pub format: Format,
    /// Only this thread's.
    pub thread: Option<ThreadId>,
    /// Only these, by number.
    pub range: Range<u64>,
    /// At most so many.
    pub limit: Option<u64>,
    /// How much to say about the code.
    pub symbols: Symbols,
}

/// How much to say about where in the code an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbols {
    /// Addresses only.
    None,
    /// The innermost frame.
    Innermost,
    /// All frames.
    Stack,
}

/// Checks and completes what was typed. `words` are the words behind `cli`.
pub fn resolve(cli: Cli, words: Vec<OsString>) -> Result<Task, Failure> {
    Ok(match cli.command {
        Command::Check(args) => Task::Check(Box::new(check(*args, words)?)),
        Command::Explore(args) => Task::Explore(Box::new(explore(*args, words)?)),
        Command::Race(args) => Task::Race(Box::new(race(*args, words)?)),
        Command::Symex(args) => Task::Symex(Box::new(symex(*args, words)?)),
        Command::Fuzz(mut args) => match args.command.take() {
            Some(command) => Task::Campaign(command),
            None => Task::Fuzz(Box::new(fuzz(*args, words)?)),
        },
        Command::Explain(args) => Task::Explain(args.rule.map(BuiltIn::rule)),
        Command::Replay(args) => Task::Replay(Replay {
            token: args.token,
            only_show: args.show,
            gdb: args.gdb,
            agreed: args.yes,
        }),
        Command::Merge(args) => Task::Merge {
            report: Box::new(reporting(args.report)),
            files: args.files,
        },
        Command::Report(args) => Task::Report(Pages {
            files: args.files,
            watch: args.watch.then_some(args.port),
            compare: args.compare,
            output: args.output,
            open: args.open,
            redact: args.redact_paths,
        }),
        Command::Run(args) => Task::Run(launch(args.launch)?),
        Command::Record(args) => Task::Record(recording(args)?),
        Command::Valgrind(args) => {
            let translated = valgrind::translate(&args.words)?;
            translated.notes.iter().for_each(|note| message(note));
            let words = translated.words;
            let line = iter::once(OsString::from("brownout")).chain(words.iter().cloned());
            let cli = Cli::try_parse_from(line)
                .map_err(|error| Failure::usage(error.to_string().trim_end().to_owned()))?;
            return resolve(cli, words);
        }
        Command::Trace(TraceCommand::Stat(args)) => Task::Stat(args.file),
        Command::Trace(TraceCommand::Dump(args)) => Task::Dump(dump(args)?),
        Command::Completions(args) => Task::Completions(args.shell),
        Command::Man(args) => Task::Man(args.dir),
        Command::Header(args) => Task::Header(args.name),
    })
}

fn check(args: CheckArgs, words: Vec<OsString>) -> Result<Check, Failure> {
    let recovery = recovery(args.recovery);
    if !args.confirm && recovery.is_given() {
        return Err(Failure::usage(
            "--setup, --recover, --oracle and the like belong to 'brownout explore', or to check with --confirm",
        ));
    }
    let compat = compat::translate(args.pmemcheck);
    for note in &compat.notes {
        message(note);
    }
    let plugins = custom_rules(&args.rule, &args.rules.0)?.rules;
    let source = match (args.trace, args.import_pmemcheck) {
        (Some(trace), _) => Source::Trace(trace),
        (None, Some(log)) => Source::PmemcheckLog(log),
        (None, None) => Source::Run(Box::new(LaunchConfig {
            pm_globs: patterns(&args.pm)?,
            // No built-in rule looks at them. A kept recording has them, and custom rules ask when
            // they are loaded.
            values: args.save_trace.is_some(),
            loads: args.threads,
            threads: args.threads,
            lean: args.save_trace.is_none() && args.rule.is_empty(),
            execute_flushes: args.execute_flushes,
            beginnings: true,
            stdin: args.stdin.as_deref().map(standard_input).transpose()?,
            ..scheduled(
                args.schedule,
                LaunchArgs {
                    deterministic: args.deterministic,
                    program: args.program,
                },
            )?
        })),
    };
    let model = Config {
        domain: args.domain,
        ..Config::default()
    };
    let confirm = match &source {
        Source::Run(launch) if args.confirm => {
            let program = (launch.program.clone(), launch.args.clone());
            let patterns = launch.pm_globs.clone();
            let options = exploration(program, args.stdin.as_deref(), patterns, recovery, model)?;
            Some(Box::new(brownout_explore::Options {
                acknowledged_survives: true,
                depth: Some(1),
                ..options
            }))
        }
        _ => None,
    };
    if args.report.coverage.is_some() && matches!(source, Source::PmemcheckLog(_)) {
        return Err(Failure::usage(
            "--coverage needs a run or a trace: a store log does not say where code is",
        ));
    }
    if args.threads && args.domain == Domain::Hops {
        return Err(Failure::usage("--threads does not know --domain hops"));
    }
    let mut rules = rule_set(args.threads, compat.rules.iter().chain(&args.rules.0));
    if rules.has(BuiltIn::UnpersistedPublication) && !args.threads {
        let named = RuleEdit::Enable(Selection::One(BuiltIn::UnpersistedPublication));
        if args.rules.0.contains(&named) {
            return Err(Failure::usage(
                "unpersisted-publication is about threads, and takes a recording with loads and locks: add --threads",
            ));
        }
        // Asked for with all others: no report may say that it has looked.
        rules.set(BuiltIn::UnpersistedPublication, false);
    }
    // The program, the thread that receives events, and two that check.
    let jobs = args.jobs.unwrap_or(if cores() >= 4 { 2 } else { 1 });
    Ok(Check {
        source,
        options: brownout_check::Options {
            model,
            rules,
            tx_only: args.tx_only,
            threads: args.threads,
            efforts: true,
        },
        // Custom rules look at the state of all of them, so they keep all in one place.
        in_parallel: plugins.is_empty() && jobs >= 2,
        plugins,
        report: Reporting {
            output: args.report.output.clone().or(compat.output),
            compat: args.compat,
            frames_max: compat.frames_max,
            print_suppressions: compat.print_suppressions,
            ..reporting(args.report)
        },
        save_trace: args.save_trace,
        confirm,
        command_line: words,
    })
}

fn reporting(args: ReportArgs) -> Reporting {
    Reporting {
        format: args.format,
        output: args.output,
        color: args.color,
        all: args.all,
        fail_on: fail_on(&args.fail_on, is_ci()),
        suite: args.suite,
        accept: args.accept,
        error_exitcode: args.error_exitcode,
        suppressions: args.suppressions,
        gen_suppressions: args.gen_suppressions,
        baseline: args.baseline,
        compat: None,
        quiet: args.quiet,
        frames_max: None,
        print_suppressions: false,
        coverage: args.coverage,
    }
}

/// Whether this is a job of a CI service: all of them set this variable.
fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !["", "0", "false"].iter().any(|no| value == *no))
}

/// What counts. Where nobody says it, a CI job in which nothing was checked is none that has
/// passed.
fn fail_on(given: &[FailOn], is_ci: bool) -> brownout_report::FailOn {
    let has = |what| given.contains(&what);
    match given.is_empty() {
        true => brownout_report::FailOn {
            nothing_checked: is_ci,
            ..brownout_report::FailOn::default()
        },
        false => brownout_report::FailOn {
            correctness: has(FailOn::Correctness) || has(FailOn::Performance),
            others: has(FailOn::Performance),
            nothing_checked: has(FailOn::NothingChecked),
        },
    }
}

fn explore(args: ExploreArgs, words: Vec<OsString>) -> Result<Explore, Failure> {
    let launch = launch(LaunchArgs {
        deterministic: true,
        program: args.program,
    })?;
    for file in [&args.stdin, &args.recovery.recover_stdin]
        .into_iter()
        .flatten()
    {
        standard_input(file)?;
    }
    let model = Config {
        domain: args.domain,
        atomicity: match args.atomicity {
            Unit::Line => Atomicity::Line,
            Unit::Word => Atomicity::Word,
        },
        ..Config::default()
    };
    let patterns = patterns(&args.pm)?;
    let recovery = recovery(args.recovery);
    let program = (launch.program, launch.args);
    let options = exploration(program, args.stdin.as_deref(), patterns, recovery, model)?;
    let here = here()?;
    Ok(Explore {
        options: brownout_explore::Options {
            promise: match args.names {
                Names::Posix => Promise::Posix,
                Names::Ordered => Promise::Ordered,
            },
            schedule: args.schedule.map(|arg| *arg.0),
            store_buffers: args.tso,
            depth: args.depth,
            jobs: args.jobs.map_or(options.jobs, |jobs| jobs as usize),
            exhaustive: args.exhaustive,
            self_test: args.self_test,
            resume: args.resume,
            folder: here.join(&args.folder),
            outcomes: args.outcomes.map(|path| here.join(path)),
            ..options
        },
        report: reporting(args.report),
        command_line: words,
    })
}

/// What symex solves for.
struct Solved {
    delivery: brownout_symex::Delivery,
    first: Vec<u8>,
    /// None: all of it.
    free: Vec<std::ops::Range<usize>>,
}

/// What the options and the arguments of the program say is solved for.
fn solved(args: &SymexArgs, words: &[OsString], here: &Path) -> Result<Solved, Failure> {
    use brownout_symex::{Delivery, Place};
    const BLANK: u8 = b' ';
    let has = |mark: &str| {
        let mut words = words.iter();
        words.any(|word| word.to_string_lossy().contains(mark))
    };
    if let Some(pool) = &args.pool_symbolic {
        let literal = |pattern: &&String| !pattern.contains(['*', '?', '[', '{']);
        let path = match (&pool.file, args.pm.as_slice()) {
            (Some(file), _) => file.clone(),
            (None, [one]) if literal(&one) => PathBuf::from(one),
            _ => {
                return Err(Failure::usage(
                    "--pool-symbolic: which file? Write FILE:RANGE, or name one file by --pm",
                ));
            }
        };
        let from = pool.ranges[0].start;
        let free = pool.ranges.iter();
        let free = free.map(|r| (r.start - from) as usize..(r.end - from) as usize);
        let free: Vec<_> = free.collect();
        let len = free.last().map_or(0, |range| range.end);
        return Ok(Solved {
            delivery: Delivery::Place(Place {
                path: here.join(path),
                from: Some(from),
            }),
            first: vec![0; len],
            free,
        });
    }
    let (mut len, delivery) = match (&args.file_symbolic, args.arguments_symbolic) {
        (Some(FileArg(Some(name), len)), _) => {
            let path = here.join(name);
            (Some(*len), Delivery::Place(Place { path, from: None }))
        }
        (Some(FileArg(None, len)), _) if has("@@") => (Some(*len), Delivery::File),
        (Some(FileArg(None, _)), _) => {
            return Err(Failure::usage(
                "--file-symbolic: which file? Write NAME:N, or '@@' in the arguments of the program where its name is to stand",
            ));
        }
        (None, Some(each)) => {
            let numbers = (1..=9).filter(|number| has(&format!("@@{number}")));
            let Some(last) = numbers.max() else {
                return Err(Failure::usage(
                    "--arguments-symbolic: write '@@1' in the arguments of the program where the bytes are to stand",
                ));
            };
            let each = each as usize;
            (Some(last * each), Delivery::Arguments { each })
        }
        (None, None) => match (args.socket_symbolic, &args.socket) {
            (len, Some(socket)) => (len.map(|n| n as usize), Delivery::Socket(socket.clone())),
            (Some(len), None) => (
                Some(len as usize),
                Delivery::Socket(brownout_symex::Endpoint::Auto),
            ),
            (None, None) if has("@@") => (None, Delivery::File),
            (None, None) => (args.stdin_symbolic.map(|n| n as usize), Delivery::Stdin),
        },
    };
    if args.socket.is_some() && !matches!(delivery, Delivery::Socket(_)) {
        return Err(Failure::usage(
            "--socket: a server gets its input over a connection; it cannot be solved for elsewhere at the same time",
        ));
    }
    if let Some(path) = &args.template {
        let (first, free) = brownout_symex::from_templates(&templates(path)?);
        if free.is_empty() {
            let path = quote(path);
            return Err(Failure::usage(format!(
                "{path}: there is no byte to solve for, because no operation has a field"
            )));
        }
        return Ok(Solved {
            delivery,
            first,
            free,
        });
    }
    let file = match (&args.input, &args.stdin) {
        (Some(input), _) => Some(input),
        (None, stdin) => stdin.as_ref().filter(|_| delivery == Delivery::Stdin),
    };
    let mut first = Vec::new();
    if let Some(path) = file {
        let read = standard_input(path)?.read_to_end(&mut first);
        read.map_err(|error| {
            let (path, why) = (quote(path), plain(&error));
            Failure::usage(format!("cannot read {path}: {why}"))
        })?;
        len = len.or(Some(first.len()));
    }
    first.resize(len.unwrap_or(0), BLANK);
    if first.is_empty() {
        return Err(Failure::usage(
            "there is no byte to solve for: --stdin-symbolic N says how many (or --file-symbolic, --arguments-symbolic, --socket-symbolic, --pool-symbolic, --template, --input)",
        ));
    }
    if first.len() as u64 > SYMBOLIC_MAX {
        let len = first.len();
        return Err(Failure::usage(format!(
            "{len} bytes are too many to solve for: at most {SYMBOLIC_MAX}"
        )));
    }
    Ok(Solved {
        delivery,
        first,
        free: Vec::new(),
    })
}

fn symex(args: SymexArgs, words: Vec<OsString>) -> Result<Symex, Failure> {
    let launch = launch(LaunchArgs {
        deterministic: true,
        program: args.program.clone(),
    })?;
    let here = here()?;
    let Solved {
        delivery,
        first,
        free,
    } = solved(&args, &launch.args, &here)?;
    let rules = rule_set(false, &args.rules.0);
    let named = RuleEdit::Enable(Selection::One(BuiltIn::UnpersistedPublication));
    if args.rules.0.contains(&named) {
        return Err(Failure::usage(
            "unpersisted-publication is about threads, and one run of 'brownout check --threads' predicts it",
        ));
    }
    let plugins = custom_rules(&args.rule, &args.rules.0)?;
    let is_stdin = delivery == brownout_symex::Delivery::Stdin;
    let stdin = args.stdin.as_deref().filter(|_| !is_stdin);
    if let Some(path) = stdin {
        standard_input(path)?;
    }
    let program = brownout_explore::Command {
        program: launch.program,
        args: launch.args,
        stdin: None,
    };
    let mut options = brownout_symex::Options::new(program, first);
    options.delivery = delivery;
    options.free = free;
    options.stdin = stdin.map(|path| here.join(path));
    options.setup = args.setup;
    options.pm_globs = patterns(&args.pm)?;
    options.check.model.domain = args.domain;
    options.check.rules = rules;
    // Asked for with all others: no report may say that it has looked.
    options
        .check
        .rules
        .set(BuiltIn::UnpersistedPublication, false);
    options.plugins = plugins.rules;
    options.loads = plugins.need_loads;
    options.strategy = args.strategy.0;
    options.seed = args.seed;
    options.time = Some(args.time);
    options.paths = args.paths;
    options.until_found = args.until_found;
    options.native_cpu = args.native_cpu;
    if let Some(solver) = &args.solver {
        let works = brownout_symex::try_solver(solver);
        works.map_err(|why| Failure::usage(format!("--solver: {} {why}", quote(solver))))?;
    }
    options.external_solver = args.solver;
    options.out = args.out.map(|path| here.join(path));
    options.resume = args.resume;
    options.jobs = args.jobs as usize;
    let share = match &args.recover {
        Some(_) => 20.0,
        None => 0.0,
    };
    options.explore_share = args.explore_share.unwrap_or(share);
    options.recover = args.recover;
    options.patience = args.hang_after;
    Ok(Symex {
        options,
        folder: here.join(args.folder),
        report: reporting(args.report),
        command_line: words,
    })
}

fn race(args: RaceArgs, words: Vec<OsString>) -> Result<Race, Failure> {
    let launch = launch(LaunchArgs {
        deterministic: true,
        program: args.program,
    })?;
    for file in [&args.stdin, &args.recover_stdin].into_iter().flatten() {
        standard_input(file)?;
    }
    let here = here()?;
    let model = Config {
        domain: args.domain,
        ..Config::default()
    };
    let recovery = Recovery {
        setup: args.setup,
        recover: args.recover,
        recover_stdin: args.recover_stdin,
        operations: false,
        ordered: false,
        checker: args.checker,
        time: args.time,
        hang_after: args.hang_after,
    };
    let program = (launch.program, launch.args);
    let patterns = patterns(&args.pm)?;
    let explore = exploration(program, args.stdin.as_deref(), patterns, recovery, model)?;
    let continues = args.continues.map(|what| {
        let file = here.join(&what);
        match file.is_file() && !what.contains(char::is_whitespace) {
            // The program again, on this input.
            true => brownout_explore::Command {
                stdin: Some(file),
                ..explore.program.clone()
            },
            false => brownout_explore::Command::shell(&what, None),
        }
    });
    let has_seeds = !args.seeds.is_empty() || args.operations.is_some();
    let given = seeds(&args.seeds)?.into_iter().map(|(_, input)| input);
    let seeds = brownout_race::Seeds {
        inputs: given.collect(),
        templates: args.operations.as_deref().map(templates).transpose()?,
    };
    Ok(Race {
        options: brownout_race::Options {
            seeds: has_seeds.then_some(seeds),
            setup: explore.setup,
            continues,
            checker: explore.checker,
            pm_globs: explore.pm_globs,
            model,
            strategy: args.strategy.map(|strategy| strategy.0),
            seed: args.seed,
            time: args.time,
            runs: args.runs,
            until_found: args.until_found,
            jobs: args.jobs.map_or_else(cores, |jobs| jobs as usize),
            out: args.out.map(|path| here.join(path)),
            resume: args.resume,
            patience: args.hang_after,
            ..brownout_race::Options::new(explore.program, explore.recover, here.join(args.folder))
        },
        report: reporting(args.report),
        command_line: words,
    })
}

/// What a file holds that the user has named.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {}", quote(path), plain(&error))))
}

/// Inputs to begin with, by their names: files, and all files of folders.
fn seeds(given: &[PathBuf]) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut seeds = Vec::new();
    for given in given {
        let mut files = vec![given.clone()];
        if given.is_dir() {
            let entries = fs::read_dir(given).map_err(|error| {
                Failure::usage(format!("cannot read {}: {}", quote(given), plain(&error)))
            })?;
            files = entries.flatten().map(|entry| entry.path()).collect();
            files.retain(|path| path.is_file());
            files.sort();
            if files.is_empty() {
                return Err(Failure::usage(format!(
                    "there is no seed in {}: put an input of the program there",
                    quote(given)
                )));
            }
        }
        for path in files {
            let name = path.file_name().unwrap_or_default();
            seeds.push((name.to_string_lossy().into_owned(), read(&path)?));
        }
    }
    Ok(seeds)
}

/// What operations look like, from a file.
fn templates(path: &Path) -> Result<brownout_fuzz::Templates, Failure> {
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    text.parse()
        .map_err(|error| Failure::usage(format!("{}: {error}", quote(path))))
}

/// What dictionaries have.
fn tokens(files: &[PathBuf]) -> Result<brownout_fuzz::Tokens, Failure> {
    let mut tokens = brownout_fuzz::Tokens::default();
    for path in files {
        let added = tokens.add_dictionary(&read(path)?);
        added.map_err(|error| Failure::usage(format!("{}: {error}", quote(path))))?;
    }
    Ok(tokens)
}

fn fuzz(args: FuzzArgs, words: Vec<OsString>) -> Result<Fuzz, Failure> {
    let launch = launch(LaunchArgs {
        deterministic: true,
        program: args.program,
    })?;
    let here = here()?;
    let seeds = seeds(&args.seeds)?;
    let templates = args.operations.as_deref().map(templates).transpose()?;
    let tokens = tokens(&args.dictionary)?;
    if let Some(image) = &args.image {
        read(image)?;
    }
    let model = Config {
        domain: args.domain,
        ..Config::default()
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let text = words.iter().map(|word| word.to_string_lossy().into_owned());
    let text: Vec<String> = text.collect();
    let delivery =
        brownout_fuzz::Delivery::of(&launch.args, args.socket).map_err(Failure::usage)?;
    Ok(Fuzz {
        options: brownout_fuzz::Options {
            target: brownout_fuzz::Target {
                program: launch.program,
                args: launch.args,
                pm_globs: patterns(&args.pm)?,
                delivery,
            },
            setup: args.setup,
            image: args.image.map(|path| here.join(path)),
            recover: args.recover,
            detect: args.detect,
            sync: args.sync.map(|path| here.join(path)),
            seeds,
            templates,
            tokens,
            out: here.join(args.out.unwrap_or_default()),
            resume: args.resume,
            limits: brownout_fuzz::Limits {
                time: args.time,
                executions: args.executions,
                ..brownout_fuzz::Limits::default()
            },
            until_found: args.until_found,
            jobs: args.jobs.map_or(processors, |jobs| jobs as usize),
            seed: args.seed,
            edges_only: args.feedback == Steering::Edges,
            images: match args.images {
                ImageSource::Model => brownout_fuzz::Images::Model,
                ImageSource::None => brownout_fuzz::Images::None,
                ImageSource::Mutate => brownout_fuzz::Images::Mutate,
            },
            explore_share: args.explore_share,
            check: brownout_check::Options {
                model,
                ..brownout_check::Options::default()
            },
            symbols: brownout_symbols::Options::default(),
            touches: None,
            patience: args.hang_after,
            memory_max: Some(args.memory.saturating_mul(1 << 20)),
            stop: Default::default(),
            command_line: format!("brownout {}", text.join(" ")),
        },
        report: reporting(args.report),
        command_line: words,
    })
}

/// An exploration of a program, as it is unless the command line says otherwise.
fn exploration(
    (program, args): (OsString, Vec<OsString>),
    stdin: Option<&Path>,
    pm_globs: Vec<String>,
    recovery: Recovery,
    model: Config,
) -> Result<brownout_explore::Options, Failure> {
    let here = here()?;
    let absolute = |path: &Path| here.join(path);
    let program = brownout_explore::Command {
        program,
        args,
        stdin: stdin.map(absolute),
    };
    let recover_stdin = recovery.recover_stdin.as_deref().map(absolute);
    let recover = match &recovery.recover {
        Some(line) => brownout_explore::Command::shell(line, recover_stdin),
        None => brownout_explore::Command {
            stdin: recover_stdin.or_else(|| program.stdin.clone()),
            ..program.clone()
        },
    };
    let folder = absolute(Path::new("brownout-explore"));
    Ok(brownout_explore::Options {
        setup: recovery.setup,
        pm_globs,
        model,
        operations: recovery.operations,
        ordered: recovery.ordered,
        checker: recovery.checker,
        // One more than there are processors: while one recovery is set up, ends or is waited for,
        // another one has something to do.
        jobs: cores() + 1,
        time: recovery.time,
        patience: recovery.hang_after,
        ..brownout_explore::Options::new(program, recover, folder)
    })
}

fn here() -> Result<PathBuf, Failure> {
    env::current_dir()
        .map_err(|error| Failure::cannot_run(format!("the current folder is gone: {error}")))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

fn recovery(args: RecoveryArgs) -> Recovery {
    let (mut operations, mut ordered, mut checker) = (false, false, None);
    for oracle in args.oracle {
        match oracle {
            OracleArg::Operations { ordered: wanted } => {
                operations = true;
                ordered |= wanted;
            }
            OracleArg::Checker(command) => checker = Some(command),
        }
    }
    Recovery {
        setup: args.setup,
        recover: args.recover,
        recover_stdin: args.recover_stdin,
        operations,
        ordered,
        checker,
        time: args.time,
        hang_after: args.hang_after,
    }
}

/// The default set, with what `--threads` adds, after some edits.
fn rule_set<'a>(threads: bool, edits: impl IntoIterator<Item = &'a RuleEdit>) -> RuleSet {
    fn switch(set: &mut RuleSet, rules: &Selection, on: bool) {
        match rules {
            Selection::All => set.set_all(on),
            Selection::Group(severity) => set.set_group(*severity, on),
            Selection::One(rule) => set.set(*rule, on),
            // See `custom_rules`.
            Selection::Custom(_) => {}
        }
    }
    let mut set = RuleSet::default();
    set.set(BuiltIn::UnpersistedPublication, threads);
    for edit in edits {
        match edit {
            RuleEdit::Clear { .. } => set = RuleSet::NONE,
            RuleEdit::Enable(rules) => switch(&mut set, rules, true),
            RuleEdit::Disable(rules) => switch(&mut set, rules, false),
        }
    }
    set
}

/// Rules that somebody has brought.
#[derive(Default)]
struct CustomRules {
    /// Their libraries, and what is behind the colon.
    rules: Vec<(PathBuf, String)>,
    /// One of them looks at loads.
    need_loads: bool,
}

/// The custom rules that are on. Each is loaded once to see that it can be, and which names there
/// are.
fn custom_rules(given: &[OsString], edits: &[RuleEdit]) -> Result<CustomRules, Failure> {
    let given = given.iter().map(|word| library(word));
    let mut rules = given.collect::<Result<Vec<_>, _>>()?;
    if rules.is_empty() {
        return Ok(CustomRules::default());
    }
    let symbols = brownout_symbols::Options::default();
    let mut tried = brownout_check::Analysis::new(brownout_check::Options::default(), symbols);
    for (path, options) in &rules {
        tried
            .load_rule(path, options)
            .map_err(|error| Failure::usage(error.to_string()))?;
    }
    let known: Vec<&str> = tried.custom_rules().collect();
    // Whoever loads a rule wants it, unless another one is all that is wanted. Groups are about the
    // built-in ones.
    let mut are_on = known.iter().map(|id| {
        let is_it = |rules: &Selection| matches!(rules, Selection::Custom(name) if name == id);
        edits.iter().fold(true, |is_on, edit| match edit {
            RuleEdit::Clear { custom } => is_on && !custom,
            RuleEdit::Enable(rules) => is_on || is_it(rules),
            RuleEdit::Disable(rules) => is_on && !is_it(rules),
        })
    });
    for edit in edits {
        if let RuleEdit::Enable(Selection::Custom(name))
        | RuleEdit::Disable(Selection::Custom(name)) = edit
            && !known.contains(&name.as_str())
        {
            return Err(Failure::usage(format!(
                "there is no rule '{name}': none of 'brownout explain' has that name, and --rule loads {}",
                known.join(", ")
            )));
        }
    }
    rules.retain(|_| are_on.next().unwrap_or(true));
    let need_loads = !rules.is_empty() && tried.needs_loads();
    Ok(CustomRules { rules, need_loads })
}

/// `FILE[:OPTIONS]`. The first colon counts, so the file's path holds none.
fn library(word: &OsStr) -> Result<(PathBuf, String), Failure> {
    let (file, options) = split_argument(word);
    let shown = quote(file);
    let library = fs::canonicalize(file).map_err(|error| {
        let error = plain(&error);
        Failure::usage(format!("cannot read the rule {shown}: {error}"))
    })?;
    match options {
        Cow::Borrowed(options) => Ok((library, options.to_owned())),
        // Something had to be replaced.
        Cow::Owned(_) => Err(Failure::usage(format!(
            "the options of the rule {shown} are not UTF-8"
        ))),
    }
}

fn launch(args: LaunchArgs) -> Result<LaunchConfig, Failure> {
    let mut words = args.program.into_iter();
    let program: OsString = words.next().unwrap_or_default();
    if program.is_empty() {
        return Err(Failure::usage("the name of the program is empty"));
    }
    Ok(LaunchConfig {
        values: false,
        deterministic: args.deterministic,
        execute_flushes: true,
        ..LaunchConfig::new(program, words)
    })
}

/// A run that may have a schedule, which removes randomness, too.
fn scheduled(schedule: Option<ScheduleArg>, args: LaunchArgs) -> Result<LaunchConfig, Failure> {
    let launch = launch(args)?;
    Ok(LaunchConfig {
        deterministic: launch.deterministic || schedule.is_some(),
        schedule: schedule.map(|arg| *arg.0),
        ..launch
    })
}

fn recording(args: RecordArgs) -> Result<Recording, Failure> {
    let stdin = args.stdin.as_deref().map(standard_input).transpose()?;
    Ok(Recording {
        launch: LaunchConfig {
            pm_globs: patterns(&args.pm)?,
            loads: args.loads,
            threads: args.threads,
            values: !args.no_values,
            execute_flushes: args.execute_flushes,
            stdin,
            layout: args.layout,
            ..scheduled(args.schedule, args.launch)?
        },
        output: args.output,
        pmemcheck_log: args.pmemcheck_log,
        schedule_out: args.schedule_out,
        force: args.force,
        verify: args.verify,
    })
}

fn standard_input(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| {
        let path = quote(path);
        let error = plain(&error);
        Failure::usage(format!("cannot read {path} as standard input: {error}"))
    })
}

/// A program that is run often needs its input by name: what comes by redirection would be read
/// once. Whoever redirects a file means it to be read, and a run without it would be praised for
/// what it has not done. A file that somebody has begun to read (a script, a list that a loop goes
/// through) is meant for that one.
pub fn refuse_redirected_input(task: &Task) -> Result<(), Failure> {
    use std::os::fd::AsFd;
    let program = match task {
        Task::Explore(explore) => &explore.options.program,
        Task::Race(race) => &race.options.program,
        Task::Check(check) => match &check.confirm {
            Some(confirm) => &confirm.program,
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    if program.stdin.is_some() {
        return Ok(());
    }
    let Ok(descriptor) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return Ok(());
    };
    let mut input = File::from(descriptor);
    let has_content = |input: &File| {
        let meta = input.metadata();
        meta.is_ok_and(|meta| meta.is_file() && meta.len() > 0)
    };
    if has_content(&input) && input.stream_position().is_ok_and(|at| at == 0) {
        return Err(Failure::usage(
            "the program's input is not taken by redirection here, because it is read several times: name the file with --stdin FILE",
        ));
    }
    Ok(())
}

/// The patterns of `--pm`, over absolute paths.
fn patterns(globs: &[String]) -> Result<Vec<String>, Failure> {
    if globs.is_empty() {
        return Ok(Vec::new());
    }
    let here = env::current_dir()
        .map_err(|error| Failure::usage(format!("the current folder is gone: {error}")))?;
    let mut all = Vec::new();
    for glob in globs {
        let pattern = pattern(glob, &here)?;
        all.extend(behind_links(glob, &pattern, &here));
        all.push(pattern);
    }
    Ok(all)
}

fn dump(args: DumpArgs) -> Result<Dump, Failure> {
    Ok(Dump {
        file: args.file,
        format: args.format,
        thread: args.thread.map(ThreadId),
        range: args.range.as_deref().map_or(Ok(0..u64::MAX), range)?,
        limit: args.limit,
        symbols: match (args.no_symbols, args.stacks) {
            (true, _) => Symbols::None,
            (false, true) => Symbols::Stack,
            (false, false) => Symbols::Innermost,
        },
    })
}

/// `A..B`, `A..`, `..B` or `..`.
fn range(text: &str) -> Result<Range<u64>, Failure> {
    let shape = || {
        let text = quote(text);
        Failure::usage(format!(
            "the range {text} is not of the form A..B with numbers A and B"
        ))
    };
    let (start, end) = text.split_once("..").ok_or_else(shape)?;
    let number = |text: &str, default| match text {
        "" => Ok(default),
        _ => text.parse::<u64>().map_err(|_| shape()),
    };
    let (start, end) = (number(start, 0)?, number(end, u64::MAX)?);
    match start <= end {
        true => Ok(start..end),
        false => Err(Failure::usage(format!(
            "the range {text} ends before it begins"
        ))),
    }
}

/// Makes a `--pm` pattern one over absolute, real paths, which is what the kernel reports.
fn pattern(glob: &str, here: &Path) -> Result<String, Failure> {
    if let Some(fault) = fault(glob) {
        let glob = quote(glob);
        return Err(Failure::usage(format!(
            "the pattern {glob} of --pm cannot be used: {fault}"
        )));
    }
    let home = glob
        .strip_prefix("~/")
        .and_then(|rest| Some(format!("{}/{rest}", escape(env::home_dir()?.to_str()?))));
    let glob = home.as_deref().unwrap_or(glob);
    // A folder stands for all that is below it.
    let is_folder = !glob.contains(SPECIAL) && glob.contains('/') && here.join(glob).is_dir();
    if let Some(folder) = glob.strip_suffix('/').or(is_folder.then_some(glob)) {
        return pattern(&format!("{}/**", folder.trim_end_matches('/')), here);
    }
    if !glob.contains('/') {
        return Ok(format!("**/{glob}"));
    }
    if glob.starts_with("**/") {
        return Ok(format!("/{glob}"));
    }
    // As in `case $path in */db)` and `find -path`: no folder is named, so any will do, also the
    // current one.
    if let Some(rest) = glob.strip_prefix("*/") {
        return Ok(format!("/**/{rest}"));
    }
    // Folders up to the first that is a pattern are made real: symlinks and `..` resolved.
    let (mut fixed, mut rest) = (PathBuf::new(), PathBuf::new());
    for component in Path::new(glob).components() {
        let text = component.as_os_str().to_string_lossy();
        match rest.as_os_str().is_empty() && !text.contains(SPECIAL) {
            true => fixed.push(component),
            false => rest.push(component),
        }
    }
    let fixed = real(&here.join(fixed));
    let Some(fixed) = fixed.to_str() else {
        let glob = quote(glob);
        return Err(Failure::usage(format!(
            "the pattern {glob} of --pm lies in a folder whose path is not UTF-8"
        )));
    };
    let fixed = escape(fixed.trim_end_matches('/'));
    Ok(match rest.to_str().filter(|rest| !rest.is_empty()) {
        Some(rest) => format!("{fixed}/{rest}"),
        None => fixed,
    })
}

/// Patterns for the files that a pattern means by symbolic links: the kernel reports where these
/// lead.
///
/// Links in folders that are named are resolved by [`pattern`]; here, those that wildcards match,
/// and those in the current folder that a name matches. What lies below `**` is not searched.
fn behind_links(glob: &str, pattern: &str, here: &Path) -> Vec<String> {
    let mut found = Vec::new();
    if !glob.contains('/') {
        follow(here, &[glob], &mut found);
    } else if let Some(path) = pattern.strip_prefix('/') {
        let components: Vec<&str> = path.split('/').collect();
        follow(Path::new("/"), &components, &mut found);
    }
    found
}

/// Entries looked at in one folder. Beyond that, links are not followed: somebody who has so many
/// files names them.
const ENTRIES_MAX: usize = 10_000;

fn follow(folder: &Path, components: &[&str], found: &mut Vec<String>) {
    let Some((first, rest)) = components.split_first() else {
        return;
    };
    if *first == "**" {
        return;
    }
    if !first.contains(SPECIAL) && !rest.is_empty() {
        return follow(&folder.join(first), rest, found);
    }
    let Ok(glob) = globset::Glob::new(first) else {
        return;
    };
    let (matcher, entries) = (glob.compile_matcher(), fs::read_dir(folder));
    for entry in entries.into_iter().flatten().take(ENTRIES_MAX).flatten() {
        if !matcher.is_match(Path::new(&entry.file_name())) {
            continue;
        }
        let path = entry.path();
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let real = is_link.then(|| fs::canonicalize(&path).ok()).flatten();
        if let Some(real) = real.as_deref().and_then(Path::to_str) {
            found.push([&[escape(real).as_str()], rest].concat().join("/"));
        }
        if !rest.is_empty() && path.is_dir() {
            follow(&path, rest, found);
        }
    }
}

/// Characters that mean something in a pattern.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// What is wrong with a pattern, if anything. Syntax is judged by the library that will match it.
fn fault(glob: &str) -> Option<String> {
    if glob.is_empty() {
        return Some("it is empty".to_owned());
    }
    if glob.contains('\0') {
        return Some("it contains a null character".to_owned());
    }
    globset::Glob::new(glob)
        .err()
        .map(|error| error.kind().to_string())
}

/// The pattern that matches exactly `text`.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if SPECIAL.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// As [`fs::canonicalize`], for paths whose end need not exist yet.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    match (path.parent(), path.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => real(parent).join(name),
        (Some(parent), Some(Component::ParentDir)) => {
            real(parent).parent().map_or("/".into(), Path::to_owned)
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::rules;
    use std::os::unix::ffi::OsStrExt;

    fn check(words: &str) -> Check {
        let line = format!("brownout check {words}");
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        match resolve(cli, Vec::new()).unwrap() {
            Task::Check(check) => *check,
            _ => panic!("{words}"),
        }
    }

    #[test]
    fn sources_of_a_check() {
        let trace = check("--trace t").source;
        assert!(matches!(trace, Source::Trace(path) if path == Path::new("t")));
        let log = check("--import-pmemcheck l").source;
        assert!(matches!(log, Source::PmemcheckLog(path) if path == Path::new("l")));
        let Source::Run(launch) = check("--pm *.pool --deterministic -- ls -l").source else {
            panic!()
        };
        assert_eq!(
            (launch.program, launch.args),
            ("ls".into(), vec!["-l".into()])
        );
        assert_eq!(launch.pm_globs, ["**/*.pool"]);
        assert!(launch.deterministic && !launch.values && !launch.execute_flushes);
        let Source::Run(launch) = check("--save-trace t -- ls").source else {
            panic!()
        };
        assert!(
            launch.values,
            "crash states are computed from kept recordings"
        );
    }

    #[test]
    fn rules_are_chosen_by_name_and_by_group() {
        let rules = |words: &str| check(&format!("{words} --trace t")).options.rules;
        let count = |set: RuleSet| rules::RULES.iter().filter(|rule| set.has(rule.is)).count();
        assert_eq!(rules(""), RuleSet::default());
        let of_check = rules::RULES
            .iter()
            .filter(|rule| rule.analysis == rules::Analysis::Check);
        let of_check = of_check.count();
        assert_eq!(count(rules("--threads --enable all")), of_check);
        let without = rules("--enable all");
        assert_eq!(count(without), of_check - 1);
        assert!(!without.has(BuiltIn::UnpersistedPublication));
        assert!(rules("--threads").has(BuiltIn::UnpersistedPublication));
        assert_eq!(count(rules("--only empty-fence,fresh-log")), 2);
        let is_off = |rule: &&rules::Rule| {
            rule.analysis == rules::Analysis::Check
                && !rule.default_on
                && rule.is != BuiltIn::UnpersistedPublication
        };
        for rule in rules::RULES.iter().filter(is_off) {
            // A group is what is on by default; what is off wants to be asked for.
            for words in [
                "--only correctness,performance",
                "--enable correctness,performance",
            ] {
                assert!(!rules(words).has(rule.is), "{words} {}", rule.id);
            }
            for words in [
                format!("--only correctness,{}", rule.id),
                "--only all".into(),
            ] {
                assert!(rules(&words).has(rule.is), "{words}");
            }
            assert!(!rules("--enable all --disable correctness,performance").has(rule.is));
        }
        let set = rules("--only performance --disable empty-fence --enable not-ordered");
        assert!(set.has(BuiltIn::CleanFlush) && set.has(BuiltIn::NotOrdered));
        assert!(!set.has(BuiltIn::EmptyFence) && !set.has(BuiltIn::MissingFlush));
    }

    #[test]
    fn options_of_pmemcheck_choose_rules() {
        let default = check("--compat pmemcheck --trace t");
        assert_eq!(default.options.rules, RuleSet::default());
        let set = "--compat pmemcheck --mult-stores=yes --flush-check=no --log-file=r --trace t";
        let check = check(set);
        assert!(
            check.options.rules.has(BuiltIn::OverwrittenUnpersisted)
                && check.options.rules.has(BuiltIn::MissingFlush)
        );
        for rule in [
            BuiltIn::CleanFlush,
            BuiltIn::DoubleFlush,
            BuiltIn::OversizedFlush,
        ] {
            assert!(!check.options.rules.has(rule), "{rule:?}");
        }
        assert_eq!(check.report.output.as_deref(), Some(Path::new("r")));
        assert_eq!(check.report.compat, Some(Compat::Pmemcheck));
    }

    #[test]
    fn libraries_with_rules() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("a=b.so");
        fs::write(&path, "").unwrap();
        let with = |options: &str| {
            let mut word = path.clone().into_os_string();
            word.push(options);
            library(&word).unwrap()
        };
        assert_eq!(with(""), (path.clone(), String::new()));
        assert_eq!(with(":"), (path.clone(), String::new()));
        assert_eq!(with(":x=1,y=:/z"), (path.clone(), "x=1,y=:/z".to_owned()));
        let mut word = path.clone().into_os_string();
        word.push(OsStr::from_bytes(b":\xff"));
        assert!(library(&word).is_err());
        assert!(library(OsStr::new("none:x")).is_err());
        assert!(library(OsStr::new("")).is_err());
    }

    #[test]
    fn a_store_log_makes_the_trace_optional() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
        assert!(parse("brownout record -- ls").is_err());
        let cli = parse("brownout record --pmemcheck-log l -- ls").unwrap();
        let Task::Record(recording) = resolve(cli, Vec::new()).unwrap() else {
            panic!()
        };
        assert_eq!(recording.output, None);
        assert_eq!(recording.pmemcheck_log.as_deref(), Some(Path::new("l")));
    }

    #[test]
    fn ranges() {
        let ok = |text| range(text).unwrap();
        assert_eq!(ok("3..7"), 3..7);
        assert_eq!(ok("3.."), 3..u64::MAX);
        assert_eq!(ok("..7"), 0..7);
        assert_eq!(ok(".."), 0..u64::MAX);
        assert_eq!(ok("5..5"), 5..5);
        for bad in [
            "",
            "3",
            "7..3",
            "a..b",
            "1..2..3",
            "-1..2",
            "1...2",
            "1..99999999999999999999",
        ] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_become_absolute() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        let shown = here.to_str().unwrap();
        fs::create_dir(here.join("real")).unwrap();
        std::os::unix::fs::symlink("real", here.join("link")).unwrap();
        let ok = |glob: &str| pattern(glob, &here).unwrap();
        assert_eq!(ok("pool"), "**/pool");
        assert_eq!(ok("*.pool"), "**/*.pool");
        assert_eq!(ok("/mnt/none/*"), "/mnt/none/*");
        assert_eq!(ok("**/x"), "/**/x");
        assert_eq!(ok("./pool"), format!("{shown}/pool"));
        assert_eq!(ok("link/new"), format!("{shown}/real/new"));
        assert_eq!(ok("link/../new*"), format!("{shown}/new*"));
        assert_eq!(ok("link/**"), format!("{shown}/real/**"));
        assert_eq!(ok("none/../x/{a,b}"), format!("{shown}/x/{{a,b}}"));
        assert_eq!(ok("/*"), "/*");
        // No folder is named: any.
        assert_eq!(ok("*/db"), "/**/db");
        assert_eq!(ok("*/db/*.mdb"), "/**/db/*.mdb");
        // One is: that one.
        assert_eq!(ok("./*/db"), format!("{shown}/*/db"));
        assert_eq!(ok("a*/db"), format!("{shown}/a*/db"));
        // A folder: all below.
        assert_eq!(ok("real/"), format!("{shown}/real/**"));
        assert_eq!(ok("./link"), format!("{shown}/real/**"));
        assert_eq!(ok("new/"), format!("{shown}/new/**"));
        assert_eq!(ok("/"), "/**");
        let home = env::home_dir().unwrap().canonicalize().unwrap();
        assert_eq!(ok("~/p"), format!("{}/p", home.display()));
        assert_eq!(ok("~"), "**/~");
    }

    #[test]
    fn links_that_wildcards_match_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        for made in ["real", "here"] {
            fs::create_dir(here.join(made)).unwrap();
        }
        fs::write(here.join("real/file"), "").unwrap();
        for (to, from) in [("../real", "here/folder"), ("../real/file", "here/name")] {
            std::os::unix::fs::symlink(to, here.join(from)).unwrap();
        }
        let shown = here.join("real").display().to_string();
        let at = here.join("here");
        let links = |glob: &str| behind_links(glob, &pattern(glob, &at).unwrap(), &at);
        assert_eq!(links("./f*/*.pool"), [format!("{shown}/*.pool")]);
        assert_eq!(links("n*"), [format!("{shown}/file")]);
        assert_eq!(links("name"), [format!("{shown}/file")]);
        assert_eq!(links("./nam?"), [format!("{shown}/file")]);
        assert!(links("none").is_empty() && links("**/x").is_empty());
    }

    /// As the host builds them.
    #[test]
    fn what_patterns_match() {
        let here = Path::new("/some dir");
        let matches = |glob: &str, path: &str| {
            globset::GlobBuilder::new(&pattern(glob, here).unwrap())
                .literal_separator(true)
                .build()
                .unwrap()
                .compile_matcher()
                .is_match(path)
        };
        for (glob, yes, no) in [
            ("db", "/a/db", "/a/db/x"),
            ("*/db", "/some dir/db", "/some dir/dbs"),
            ("*/db", "/a/b/db", "/a/xdb"),
            ("./*/db", "/some dir/a/db", "/some dir/db"),
            ("./db", "/some dir/db", "/a/db"),
            ("a/**/db", "/some dir/a/db", "/some dir/db"),
            ("a/**/db", "/some dir/a/b/c/db", "/a/db"),
            ("p[0-9]", "/x/p1", "/x/pa"),
            ("p[!0-9]", "/x/pa", "/x/p1"),
            ("{a,b}.pool", "/x/a.pool", "/x/c.pool"),
            ("/mnt/pmem/", "/mnt/pmem/a/b", "/mnt/pmemx"),
        ] {
            assert!(matches(glob, yes), "{glob} {yes}");
            assert!(!matches(glob, no), "{glob} {no}");
        }
    }

    #[test]
    fn patterns_in_a_folder_with_special_characters() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap().join("a[1]");
        fs::create_dir(&here).unwrap();
        assert!(pattern("./p", &here).unwrap().ends_with(r"/a\[1\]/p"));
    }

    #[test]
    fn bad_patterns() {
        for bad in ["", "[a", "x[!", "[]", "{a", "a}", "[z-a]", "a\\", "a\0"] {
            assert!(fault(bad).is_some(), "{bad:?}");
        }
        for good in ["a", "[]]", "[!]a]", "{a,b}c", "\\[", "**", "[{]"] {
            assert!(fault(good).is_none(), "{good:?}");
        }
    }
}

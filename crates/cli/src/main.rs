//! The `brownout` command.
//!
//! ```text
//!  config.rs (words, brownout.toml) ─▶ cli.rs (as typed) ─▶ resolve.rs (as meant)
//!        ─▶ check, run, record, report, explain, … ─▶ exit.rs (code, one sentence)
//! ```
//!
//! Guarantee: every failure is one sentence on stderr that begins with `brownout: ` and one of the
//! exit codes of [`exit`]; stdout carries results only. `check`, `run` and `record` otherwise stay
//! out of the way: the program has the terminal, its signals and its exit status.

mod bug;
mod campaign;
mod check;
mod cli;
mod compat;
mod config;
mod destination;
mod exit;
mod explain;
mod explore;
mod fuzz;
mod gdb;
mod inspect;
mod memory;
mod output;
mod progress;
mod race;
mod record;
mod replay;
mod report;
mod reporting;
mod resolve;
mod schedule;
mod shell;
mod signals;
mod snapshot;
mod symex;
mod terminal;
mod token;
mod usage;
mod valgrind;
mod verification;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use crate::config::CommandLine;
use crate::exit::Failure;
use crate::resolve::Task;
use crate::terminal::message;

#[global_allocator]
static MEMORY: memory::LargePages = memory::LargePages;

/// Below this limit of the stack (`ulimit -s`), which is meant for the program, there is not enough
/// for us.
const STACK_MIN: u64 = 4 << 20;
const STACK: usize = 16 << 20;

fn main() -> ExitCode {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: our own variable.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } == 0;
    if known && limit.rlim_cur < STACK_MIN {
        // The program gets the limit as it is, so it is not changed. What a program leaves behind
        // that is not followed is not waited for by another thread than the first one.
        let roomy = std::thread::Builder::new().stack_size(STACK);
        if let Ok(thread) = roomy.spawn(|| bug::guard(command)) {
            // A panic there has been reported by the panic hook.
            return ExitCode::from(thread.join().unwrap_or(exit::BUG));
        }
    }
    ExitCode::from(bug::guard(command))
}

fn command() -> u8 {
    perform().unwrap_or_else(|failure| {
        message(&failure.sentence);
        failure.code
    })
}

fn perform() -> Result<u8, Failure> {
    reporting::begin();
    let arguments: Vec<_> = std::env::args_os().collect();
    let words = match valgrind::asked(&arguments) {
        Some(words) => {
            let words = valgrind::with_variable(words, std::env::var_os("VALGRIND_OPTS"));
            let translated = valgrind::translate(&words)?;
            for note in &translated.notes {
                message(note);
            }
            translated.words
        }
        None => arguments.into_iter().skip(1).collect(),
    };
    let line = CommandLine::complete(words)?;
    let cli = match cli::Cli::try_parse_from(line.with_program_name()) {
        Ok(cli) => cli,
        Err(error) => return Ok(usage::answer(&error, &line)),
    };
    let task = resolve::resolve(cli, line.words)?;
    resolve::refuse_redirected_input(&task)?;
    match task {
        Task::Check(check) => check::check(*check),
        Task::Explore(explore) => explore::explore(*explore),
        Task::Fuzz(fuzz) => fuzz::fuzz(*fuzz),
        Task::Race(race) => race::race(*race),
        Task::Symex(symex) => symex::symex(*symex),
        Task::Campaign(command) => fuzz::look(command, None),
        Task::Explain(rule) => explain::explain(rule),
        Task::Replay(replay) => replay::replay(&replay),
        Task::Report(pages) => report::report(&pages),
        Task::Merge { report, files } => reporting::merge(&report, &files),
        Task::Run(config) => run(config),
        Task::Record(recording) => record::record(recording),
        Task::Stat(file) => inspect::stat(&file),
        Task::Dump(dump) => inspect::dump(&dump),
        Task::Completions(shell) => shell::completions(shell),
        Task::Man(folder) => shell::man(folder.as_deref()),
        Task::Header(name) => shell::header(name),
    }
}

fn run(mut config: brownout_host::LaunchConfig) -> Result<u8, Failure> {
    signals::leave_to_program(&mut config)?;
    let outcome = brownout_host::run(&config)?;
    // The other notes tell what a recording misses; here nothing is recorded.
    for note in &outcome.lost_rights {
        message(&format!("note: {note}"));
    }
    Ok(exit::of_program(&outcome.status))
}

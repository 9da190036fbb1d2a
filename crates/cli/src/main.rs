//! The `brownout` command.
//!
//! ```text
//!  cli.rs (as typed) ─▶ resolve.rs (as meant) ─▶ run, record, inspect ─▶ exit.rs (code, one sentence)
//! ```
//!
//! Guarantee: every failure is one sentence on stderr that begins with `brownout: ` and one of the
//! exit codes of [`exit`]; stdout carries results only. `run` and `record` otherwise stay out of
//! the way: the program has the terminal, its signals and its exit status.

mod bug;
mod cli;
mod exit;
mod inspect;
mod output;
mod record;
mod resolve;
mod signals;
mod snapshot;
mod terminal;
mod usage;
mod verification;

use std::process::ExitCode;

use clap::Parser;

use crate::exit::Failure;
use crate::resolve::Task;
use crate::terminal::message;

fn main() -> ExitCode {
    ExitCode::from(bug::guard(command))
}

fn command() -> u8 {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::answer(&error),
    };
    let done = resolve::resolve(cli).and_then(|task| match task {
        Task::Run(config) => run(&config),
        Task::Record(recording) => record::record(recording),
        Task::Stat(file) => inspect::stat(&file),
        Task::Dump(dump) => inspect::dump(&dump),
    });
    done.unwrap_or_else(|failure| {
        message(&failure.sentence);
        failure.code
    })
}

fn run(config: &brownout_host::LaunchConfig) -> Result<u8, Failure> {
    signals::leave_to_program()
        .map_err(|error| Failure::cannot_run(format!("cannot set up signals: {error}")))?;
    let outcome = brownout_host::run(config)?;
    // Notes tell what a recording misses; here nothing is recorded.
    Ok(exit::of_program(&outcome.status))
}

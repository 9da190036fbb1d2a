//! `cargo xtask COMMAND`: what a developer or CI runs.
//!
//! ```text
//!  setup ─▶ build ─┬▶ demo
//!                  ├▶ test (= ci)      fmt, clippy, rustdoc, dependencies, every test of the workspace
//!                  ├▶ bench            engine, check or explore, beside native, as a table
//!                  └▶ sweep            large test suites of others, natively and under `brownout run`
//! ```
//!
//! Every command says what it lacks and exits non-zero; nothing is skipped silently.

// A command-line tool prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod apart;
mod bench;
mod build;
mod comments;
mod demo;
mod dependencies;
mod examples;
mod graph;
mod package;
mod release;
mod screenshots;
mod selection;
mod setup;
mod shell;
mod sweep;
mod test;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  demo            find real bugs in real programs, while you watch
  test [NAME]     everything that must hold: packages, format, lints, all tests (or those whose name contains NAME)
  test --fast     what tells most in a minute: format, the crates' own tests, a few whole programs;
                  -p CRATE tests that crate alone, with its lints
  ci              the same as test
  graph           who depends on whom; fails on circles between crates or modules; --bless writes the table of crates
  bless           accept the output of golden tests as it is now
  screenshots     the page in a browser, into target/screenshots, and those of docs/report.md
  bench [engine]  speed against native: --rounds N (default 5), --only NAME, --json FILE
  bench check     the same for `brownout check`; --quick does less, --memory measures the checker's memory
  bench explore   what `brownout explore` has to run and how long that takes; --quick does less
  bench fuzz      how many executions a second `brownout fuzz` makes, and what campaigns reach; --quick does less;
                  --part NAME, again for more: speed (executions a second, beside native launches and AFL++),
                  growth (the same as a campaign gets older), known (how long known bugs take to find), reach (PM paths
                  beside other ways and AFL++); those four without --part; clean (the maps and the right builds of
                  tests/fuzz, 10 minutes each, or --time TIME: fails on correctness findings but the known ones),
                  storage (an hour of btree, or --time TIME: its size; tree, repro and export on all that it has kept)
  bench jobs      what a second job gains `brownout explore`, for programs that must be alone; --quick does less
  bench mutants   how long `brownout fuzz` takes to find what edits have broken in libpmemobj's examples; --only NAME
  bench race      how long `brownout race` takes to find what is wrong in tests/race, what it says of the right
                  builds, and what one run costs under a schedule; --quick does less, --only NAME
  bench session   how many runs a second a kept process is forked into, against launches; --quick does less
  bench symex     how long `brownout symex` takes to find from blanks what is wrong in tests/symex, by strategy, and how many
                  paths a second it runs of libpmemobj's maps; --quick does less, --only NAME, --strategy NAME, --time TIME;
                  --part found or mapcli does half of it, --part whole runs Debian's programs, --part clean programs without a
                  bug (and fails if one is found), --part speed what does not touch the input
  sweep cpython   CPython's test modules natively and under `brownout run`; fails on what passes natively only;
                  --modules N (spread over all), --jobs N, --only NAME
  sweep stress-ng the same for stress-ng's stressors of signals, processes, memory and pipes
  release         whether a release can be made: changelog, oldest Rust, stripped binary
  package         a Debian package, tried out in an empty root; --binary FILE packages a tool that is built already
  comments        which comments are too wide; --wrap [FILE…] wraps them
  dependencies    licences, doubled versions, oldest Rust of what we depend on (a part of test)
  oldest-rust     compile everything with the oldest Rust that Cargo.toml promises, and the annotations with theirs
  setup           install the Debian packages that the tests need (or name those missing)
  build           build the tool, the test programs and the libpmemobj examples

Environment: BROWNOUT_BIN=FILE uses another tool binary; BROWNOUT_KEEP=1 keeps the folders of tests.";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<ExitCode> {
    match words {
        ["demo"] => demo::demo()?,
        ["test" | "ci", rest @ ..] => return test::test(rest),
        ["graph"] => graph::graph()?,
        ["graph", "--bless"] => graph::bless()?,
        ["bless"] => test::bless()?,
        ["screenshots"] => screenshots::screenshots()?,
        ["bench", rest @ ..] => bench::bench(rest)?,
        ["sweep", rest @ ..] => return sweep::sweep(rest),
        ["release"] => release::release()?,
        ["package", rest @ ..] => package::package(rest)?,
        ["comments", rest @ ..] => comments::comments(rest)?,
        ["dependencies"] => dependencies::check()?,
        ["oldest-rust"] => release::oldest_rust()?,
        ["setup"] => setup::setup()?,
        ["build"] => {
            setup::setup()?;
            build::build()?;
        }
        ["help" | "--help" | "-h"] => println!("{USAGE}"),
        [] => bail!("no command\n{USAGE}"),
        [other, ..] => bail!("no such command, or wrong arguments: {other}\n{USAGE}"),
    }
    Ok(ExitCode::SUCCESS)
}

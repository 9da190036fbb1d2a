//! `cargo xtask bench`: what running under the tool costs, as ratios to native.
//!
//! ```text
//!  bench.rs
//!  ├─ common.rs  rounds, medians, options    ◀── shared
//!  ├─ engine.rs  `bench engine`: brownout run and record
//!  ├─ check.rs   `bench check`: brownout check, its memory too
//!  ├─ explore.rs `bench explore`: brownout explore, and one recovery under it
//!  ├─ fuzz.rs    `bench fuzz`: executions a second, and what campaigns reach
//!  │  ├─ afl.rs  the same by Debian's AFL++
//!  │  ├─ known.rs    how long known bugs take to find
//!  │  ├─ clean.rs    whether anything is found in programs that are right
//!  │  └─ storage.rs  what a campaign leaves on the disk, and whether it can be used
//!  ├─ jobs.rs    `bench jobs`: brownout explore with one job and with all, for programs that must be alone
//!  ├─ mutants.rs `bench mutants`: how long campaigns take to find planted bugs
//!  ├─ race.rs    `bench race`: brownout race, on programs that are wrong and right, and one run under a schedule
//!  ├─ session.rs `bench session`: runs forked from a kept process, against launches
//!  ├─ symex.rs   `bench symex`: brownout symex, from blanks, by strategy; libpmemobj's maps, whole programs, clean ones
//!  ├─ campaigns.rs  campaigns of `brownout fuzz`   ◀── shared by fuzz.rs and mutants.rs
//!  ├─ places.rs  folders for pools and reports
//!  └─ redis.rs   a server and its client, for `bench check`
//! ```
//!
//! Each round runs every case once, native and tool in turn, so that a machine that gets slower or
//! faster meanwhile does so for both. Medians are of wall-clock time. Nothing is pinned: the
//! numbers are those of an ordinary user. Output is a markdown table; `--json FILE` writes the raw
//! times too. Goals are printed beside what was measured; missing one is no failure, because
//! machines differ.

mod afl;
mod campaigns;
mod check;
mod clean;
mod common;
mod engine;
mod explore;
mod fuzz;
mod jobs;
mod known;
mod mutants;
mod places;
mod race;
mod redis;
mod session;
mod storage;
mod symex;

use anyhow::Result;

use crate::{build, examples, setup};
use common::Options;

/// Runs the benchmark that is asked for.
pub fn bench(words: &[&str]) -> Result<()> {
    let (benchmark, words): (fn(&Options) -> Result<()>, _) = match words {
        ["engine", rest @ ..] => (engine::bench, rest),
        ["check", rest @ ..] => (check::bench, rest),
        ["explore", rest @ ..] => (explore::bench, rest),
        ["fuzz", rest @ ..] => (fuzz::bench, rest),
        ["jobs", rest @ ..] => (jobs::bench, rest),
        ["mutants", rest @ ..] => (mutants::bench, rest),
        ["race", rest @ ..] => (race::bench, rest),
        ["session", rest @ ..] => (session::bench, rest),
        ["symex", rest @ ..] => (symex::bench, rest),
        rest => (engine::bench, rest),
    };
    let options = Options::parse(words)?;
    setup::setup()?;
    build::tool()?;
    build::own_programs()?;
    examples::build()?;
    benchmark(&options)
}

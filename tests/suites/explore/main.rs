//! `brownout explore` on programs whose crash states are known.
//!
//! | trials | what |
//! |---|---|
//! | `seeded::` | planted bugs are found where they are, and nothing else is |
//! | `maps::` | libpmemobj's maps survive every crash, but for two known bugs |
//! | `lmdb::` | LMDB's default mode survives every crash, its writable mapping has one known bug |
//! | `reads::` | however recovery reads the pool, that is seen |
//! | `synced::` | what `O_DSYNC` makes durable is certain |
//! | `replay::` | tokens and commands of findings show them again |
//! | `operations::` | `--oracle ops`: what a whole operation is, what was acknowledged, what differs |
//! | `nested::` | after two crashes, what the first recovery has not read counts |
//! | `cli::` | options, forms of the report, exit codes, endings; the user's files stay as they are |
//! | `coverage::` | what was not looked at is said, and is no success |
//! | `resume::` | an interrupted exploration goes on, and takes over nothing that has changed |
//! | `confirm::` | `check --confirm` settles what one run suspects |
//! | `worlds::` | what programs do to other files, ports and processes reaches neither the user nor another recovery |
//! | `unsteady::` | reads whose length depends on the content, threads and chance in recovery keep nothing from being explored |
//! | `schedule::` | `--schedule` decides what the recorded run does, and whether store buffers matter |
//! | `strings::` | string instructions are stores of their elements, in their direction |
//! | `generated::` | on random small programs it finds exactly the outcomes that brute force finds |
//! | `mutants::` | libpmemobj's examples, broken on purpose: what matters is found where it is, the rest stays silent |
//! | `library::` | what other analyses take from the crate: beginnings that are on no disk, crash images, recordings of forked runs |
//!
//! To add a group, add a module with `pub fn trials() -> Vec<Trial>`, its line above and its line
//! in [`GROUPS`].

mod cli;
mod confirm;
mod coverage;
mod generated;
mod library;
mod lmdb;
mod maps;
mod mutants;
mod nested;
mod operations;
mod reads;
mod replay;
mod resume;
mod schedule;
mod seeded;
mod strings;
mod synced;
mod unsteady;
mod worlds;

use brownout_tests::trial;
use libtest_mimic::{Arguments, Trial};

/// The trials of each module.
const GROUPS: &[fn() -> Vec<Trial>] = &[
    generated::trials,
    mutants::trials,
    seeded::trials,
    maps::trials,
    lmdb::trials,
    reads::trials,
    synced::trials,
    replay::trials,
    nested::trials,
    operations::trials,
    cli::trials,
    confirm::trials,
    worlds::trials,
    coverage::trials,
    resume::trials,
    strings::trials,
    unsteady::trials,
    schedule::trials,
    library::trials,
];

fn main() {
    let arguments = Arguments::from_args();
    let trials = GROUPS.iter().flat_map(|trials| trials()).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

//! `brownout check` on real programs, and its surface from end to end.
//!
//! | trials | what |
//! |---|---|
//! | `known::` | what is known to be wrong with libpmemobj's examples and with libpmemobj is found where it is |
//! | `clean::` | the examples lose no data, and nothing says that they do |
//! | `modules::` | sites and files keep their own names, however linked, unloaded, replaced or deleted |
//! | `mappings::` | what a mapping leaves behind may be made persistent later |
//! | `paths::` | findings name the calling path of the store |
//! | `threads::` | `--threads`: what threads could read of each other too early |
//! | `pmtest::`, `pmrace::` | programs annotated for PMTest, and for PMRace |
//! | `surface::` | options, forms of the report, exit codes |
//! | `recorded::` | recordings, whole and damaged, say what the run said |
//! | `ending::` | signals, Ctrl-C, children |
//! | `replay::` | tokens show their findings again |
//! | `words::` | headlines and suggestions, as the author of the program would read them |
//! | `large::` | a report of ten thousand findings |
//!
//! Programs are judged by their reports in JSON. What they do to the program's own behaviour is the
//! business of the transparency suite; here only its exit status and, where it is repeatable, its
//! output must be the native one.

#[path = "check/annotated.rs"]
mod annotated;
#[path = "check/clean.rs"]
mod clean;
#[path = "check/known.rs"]
mod known;
#[path = "check/large.rs"]
mod large;
#[path = "check/mappings.rs"]
mod mappings;
#[path = "check/modules.rs"]
mod modules;
#[path = "check/paths.rs"]
mod paths;
#[path = "check/replay.rs"]
mod replay;
#[path = "check/surface.rs"]
mod surface;
#[path = "check/threads.rs"]
mod threads;
#[path = "check/words.rs"]
mod words;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use brownout_tests::{Invocation, Scratch, layout, trial};
use libtest_mimic::Arguments;

const TIMEOUT: Duration = Duration::from_secs(60);

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = known::trials();
    trials.extend(clean::trials());
    trials.extend(modules::trials());
    trials.extend(mappings::trials());
    trials.extend(paths::trials());
    trials.extend(threads::trials());
    trials.extend(annotated::trials());
    trials.extend(surface::trials());
    trials.extend(replay::trials());
    trials.extend(large::trials());
    trials.extend(words::trials());
    libtest_mimic::run(&arguments, trials).exit();
}

/// One of our programs, as it was built.
fn own_program(name: &str) -> Result<PathBuf> {
    let path = layout::programs().join(name);
    ensure!(
        path.is_file(),
        "{} is missing: run `cargo xtask build`",
        path.display()
    );
    Ok(path)
}

/// `check_modes pool MODE` in the scratch folder; `--pm pool` makes its pool persistent memory.
fn modes(mode: &str, scratch: &Scratch) -> Result<Invocation> {
    let argv = [
        own_program("check_modes")?.into_os_string(),
        "pool".into(),
        mode.into(),
    ];
    Ok(Invocation::new(argv, scratch.path()).timeout(TIMEOUT))
}

//! `brownout explore` on what a run does to files besides storing to them: names, sizes, folders,
//! ordinary files.
//!
//! | trials | what |
//! |---|---|
//! | `programs::` | the usual ways to publish something, each with its bug and its fixed twin |
//! | `generated::` | on random scripts of file operations it finds exactly the outcomes that brute force finds |
//!
//! The programs are in `tests/names`; they are compiled here.

mod generated;
mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use brownout_tests::trial;
use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = programs::trials();
    trials.extend(generated::trials());
    libtest_mimic::run(&arguments, trials).exit();
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("names/{name}.c"))
}

/// Compiles a program of `tests/names` into a folder.
fn compile(name: &str, options: &[&str], folder: &Path) -> Result<PathBuf> {
    let program = folder.join(name);
    let status = Command::new("cc")
        .args(["-g", "-O1", "-Wall", "-Wextra", "-o"])
        .arg(&program)
        .args(options)
        .arg(source(name))
        .status()
        .context("there is no C compiler")?;
    ensure!(status.success(), "{name}.c does not compile");
    Ok(program)
}

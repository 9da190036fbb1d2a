//! Builds what the suites run: the tool, our test programs, libpmemobj's examples.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use brownout_tests::layout;
use brownout_tests::programs::{self, Build, Program};

use crate::{examples, shell};

/// Warnings are errors, but these programs do on purpose what some warnings are about.
const C_FLAGS: &[&str] = &[
    "-g",
    "-O2",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-array-bounds",
    "-Wno-clobbered",
    "-Wno-infinite-recursion",
];

/// Builds everything.
pub fn build() -> Result<()> {
    tool()?;
    own_programs()?;
    examples::build()
}

/// The tool, unless another binary is to be used.
pub fn tool() -> Result<()> {
    if std::env::var_os("BROWNOUT_BIN").is_some() {
        return Ok(());
    }
    shell::run(shell::cargo().args(["build", "--release", "--quiet", "--package", "brownout"]))
}

/// The programs in `tests/programs`, those that changed.
pub fn own_programs() -> Result<()> {
    let folder = layout::programs();
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let headers = headers()?;
    let mut waiting = Vec::new();
    for program in programs::discover()? {
        for build in program.builds.clone() {
            let mut inputs = vec![program.source.as_path()];
            inputs.extend(headers.iter().map(PathBuf::as_path));
            if !shell::is_fresh(&program.binary(build), &inputs) {
                waiting.push((program.clone(), build));
            }
        }
    }
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let queue = std::sync::Mutex::new(waiting.into_iter());
    std::thread::scope(|scope| {
        let compile_all = || -> Result<()> {
            loop {
                let next = queue.lock().expect("no worker panics").next();
                match next {
                    Some((program, build)) => compile(&program, build)?,
                    None => return Ok(()),
                }
            }
        };
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(compile_all)).collect();
        handles
            .into_iter()
            .try_for_each(|handle| handle.join().expect("no worker panics"))
    })
}

fn headers() -> Result<Vec<PathBuf>> {
    let mut headers = Vec::new();
    for entry in fs::read_dir(layout::program_sources())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "h") {
            headers.push(path);
        }
    }
    Ok(headers)
}

fn compile(program: &Program, build: Build) -> Result<()> {
    let binary = program.binary(build);
    // Made beside and renamed, so that an interrupted build leaves no half program.
    let unfinished = binary.with_extension("unfinished");
    let mut command = Command::new(if program.is_cpp() { "g++" } else { "gcc" });
    command
        .args(C_FLAGS)
        .args(build.flags())
        .args(&program.flags)
        .arg("-o")
        .arg(&unfinished)
        .arg(&program.source)
        .args(&program.libs);
    shell::run_quiet(&mut command)?;
    fs::rename(&unfinished, &binary)?;
    Ok(())
}

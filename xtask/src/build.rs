//! Builds what the suites run: the tool, our test programs, libpmemobj's examples.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use brownout_tests::programs::{self, Build, Program};
use brownout_tests::{fuzz, layout, litmus, race, seeded, symex};

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

/// Builds what people run: the tool and the programs.
pub fn build() -> Result<()> {
    tool()?;
    programs()
}

/// The same and all tests, in one go.
pub fn with_tests() -> Result<()> {
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--quiet",
        "--workspace",
        "--bins",
        "--tests",
    ]))?;
    programs()
}

fn programs() -> Result<()> {
    own_programs()?;
    seeded_programs()?;
    fuzz_programs()?;
    race_programs()?;
    symex_programs()?;
    examples::build()
}

/// A test that is compiled in a moment and uses nothing but its own crate.
const SMALL_TEST: &str = "contract";

/// The tool, unless another binary is to be used.
///
/// It is built with the features that tests ask for, so that neither this nor [`with_tests`]
/// compiles again what the other has compiled. Cargo takes those features into account as soon as
/// it builds one test, whichever that is.
pub fn tool() -> Result<()> {
    if std::env::var_os("BROWNOUT_BIN").is_some() {
        return Ok(());
    }
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--quiet",
        "--workspace",
        "--bin",
        "brownout",
        "--test",
        SMALL_TEST,
    ]))
}

/// The programs in `tests/programs`, those that changed.
pub fn own_programs() -> Result<()> {
    let headers = headers()?;
    let mut waiting = Vec::new();
    for program in programs::discover()? {
        for build in &program.builds {
            let binary = program.binary(*build);
            if !is_fresh(&binary, &program.source, &headers) {
                waiting.push((compiler(&program, *build), binary));
            }
        }
    }
    compile_all(layout::programs(), waiting)
}

/// The programs in `tests/seeded`, those that changed.
pub fn seeded_programs() -> Result<()> {
    let headers = seeded::headers()?;
    let mut waiting = Vec::new();
    for program in seeded::discover()? {
        for build in program.builds() {
            let binary = program.binary(build);
            if !is_fresh(&binary, &program.source, &headers) {
                waiting.push((program.compiler(build), binary));
            }
        }
    }
    compile_all(layout::seeded(), waiting)
}

/// The programs in `tests/fuzz`, those that changed.
pub fn fuzz_programs() -> Result<()> {
    let headers = fuzz::headers()?;
    let mut waiting = Vec::new();
    for program in fuzz::discover()? {
        for build in program.builds() {
            let binary = program.binary(build);
            if !is_fresh(&binary, &program.source, &headers) {
                waiting.push((program.compiler(build), binary));
            }
        }
    }
    compile_all(layout::fuzz_programs(), waiting)
}

/// The programs in `tests/race` and below, those that changed.
pub fn race_programs() -> Result<()> {
    let headers = race::headers()?;
    let mut waiting = Vec::new();
    for program in race::discover()? {
        for build in program.builds() {
            let binary = program.binary(build);
            if !is_fresh(&binary, &program.source, &headers) {
                waiting.push((program.compiler(build), binary));
            }
        }
    }
    for program in race::discover_replay()? {
        let binary = program.binary();
        if !is_fresh(&binary, &program.source, &headers) {
            waiting.push((program.compiler(), binary));
        }
    }
    if !is_fresh(&litmus::runner(), &litmus::runner_source(), &headers) {
        waiting.push((litmus::runner_compiler(), litmus::runner()));
    }
    compile_all(layout::race_programs(), waiting)
}

/// The programs in `tests/symex`, those that changed.
pub fn symex_programs() -> Result<()> {
    let headers = symex::headers()?;
    let mut waiting = Vec::new();
    for program in symex::discover()? {
        for build in symex::Build::ALL {
            let binary = program.binary(build);
            if !is_fresh(&binary, &program.source, &headers) {
                waiting.push((program.compiler(build), binary));
            }
        }
    }
    compile_all(layout::symex_programs(), waiting)
}

fn is_fresh(binary: &Path, source: &Path, headers: &[PathBuf]) -> bool {
    let mut inputs = vec![source];
    inputs.extend(headers.iter().map(PathBuf::as_path));
    shell::is_fresh(binary, &inputs)
}

/// Runs compilers, one a processor. Each is told last where its result goes.
fn compile_all(folder: PathBuf, waiting: Vec<(Command, PathBuf)>) -> Result<()> {
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let queue = std::sync::Mutex::new(waiting.into_iter());
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let next = queue.lock().expect("no worker panics").next();
                match next {
                    Some((command, binary)) => compile(command, &binary)?,
                    None => return Ok(()),
                }
            }
        };
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
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

fn compiler(program: &Program, build: Build) -> Command {
    let mut command = Command::new(if program.is_cpp() { "g++" } else { "gcc" });
    command
        .args(C_FLAGS)
        .args(build.flags())
        .args(&program.flags)
        .arg(&program.source)
        .args(&program.libs);
    command
}

fn compile(mut command: Command, binary: &Path) -> Result<()> {
    // Made beside and renamed, so that an interrupted build leaves no half program.
    let unfinished = binary.with_extension("unfinished");
    shell::run_quiet(command.arg("-o").arg(&unfinished))?;
    fs::rename(&unfinished, binary)?;
    Ok(())
}

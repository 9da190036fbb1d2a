//! A program under `brownout run` is indistinguishable from the same program natively.
//!
//! Four tables, one test a row: commands from Debian's packages (`command::`), our own
//! self-checking programs in all their builds (`program::`), and parts of CPython's regression
//! tests (`cpython::`), of which every test case that passes natively must pass under the tool, and
//! the compiler's sanitizers (`sanitizer::`), under every command.
//!
//! Does not check: speed, what the programs do to persistent memory (see `completeness`).

mod commands;

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brownout_tests::programs::{self, Build, Program};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, Scratch, cpython, exec, layout, tool, trial};
use libtest_mimic::Arguments;

use crate::commands::Row;

/// Natively most take a second at most; this only ends hangs.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(240);
const CPYTHON_TIMEOUT: Duration = Duration::from_secs(900);

/// Exit code for what the tool does not support.
const UNSUPPORTED: i32 = 3;

/// Modules of Debian's libpython3-testsuite, chosen for what they stress: signals, threads,
/// processes, memory mappings, foreign calls, system calls that restart, generated code, vector
/// libraries.
const CPYTHON: &[&str] = &[
    "test_signal",
    "test_threading",
    "test_subprocess",
    "test_mmap",
    "test_ctypes",
    "test_fork1",
    "test_threadsignals",
    "test_thread",
    "test_faulthandler",
    "test_posix",
    "test_os",
    "test_select",
    "test_selectors",
    "test_eintr",
    "test_epoll",
    "test_wait3",
    "test_wait4",
    "test_popen",
    "test_pty",
    "test_fcntl",
    "test_resource",
    "test_exceptions",
    "test_generators",
    "test_gc",
    "test_sys_settrace",
    "test_struct",
    "test_array",
    "test_float",
    "test_math",
    "test_re",
    "test_json",
    "test_zlib",
    "test_hashlib",
];

/// One of the compiler's sanitizers, and a mistake that it reports.
struct Sanitizer {
    name: &'static str,
    mistake: &'static str,
    report: &'static str,
}

const SANITIZERS: &[Sanitizer] = &[
    Sanitizer {
        name: "address",
        mistake: "overflow",
        report: "heap-buffer-overflow",
    },
    Sanitizer {
        name: "leak",
        mistake: "leak",
        report: "detected memory leaks",
    },
    Sanitizer {
        name: "thread",
        mistake: "race",
        report: "data race",
    },
    Sanitizer {
        name: "undefined",
        mistake: "undefined",
        report: "signed integer overflow",
    },
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for row in commands::ROWS {
        trials.push(trial(format!("command::{}", row.name), move || {
            run_command(row)
        }));
    }
    match programs::discover() {
        Ok(found) => {
            for program in found {
                for build in program.builds.clone() {
                    if build != Build::Shared {
                        let name = format!("program::{}{}", program.name, build.suffix());
                        let missing = !programs::processor_has(&program.requires);
                        let program = program.clone();
                        trials.push(
                            trial(name, move || run_program(&program, build))
                                .with_ignored_flag(missing),
                        );
                    }
                }
            }
        }
        Err(error) => {
            trials.push(broken("program::discover", &error));
        }
    }
    for module in CPYTHON {
        trials.push(trial(format!("cpython::{module}"), move || {
            run_cpython(module)
        }));
    }
    for sanitizer in SANITIZERS {
        for flags in [&["-fPIE", "-pie"][..], &["-fno-pie", "-no-pie"]] {
            let name = format!("sanitizer::{}{}", sanitizer.name, flags[1]);
            trials.push(trial(name, move || run_sanitizer(sanitizer, flags)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn run_command(row: &Row) -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let mut outcomes = Vec::new();
    for side in ["n", "t"] {
        // Names of equal length: some outputs contain the folder's name in a length.
        let folder = scratch.folder(side)?;
        for (name, text) in row.files {
            fs::write(folder.join(name), text)?;
        }
        let native = Invocation::shell(row.command, &folder).timeout(COMMAND_TIMEOUT);
        let invocation = if side == "n" {
            native
        } else {
            tool::run(&native)
        };
        outcomes.push(invocation.run()?);
    }
    exec::compare(&outcomes[0], &outcomes[1], row.stderr)
}

fn run_program(program: &Program, build: Build) -> Result<()> {
    tool::expect_built()?;
    let binary = program.binary(build);
    ensure!(
        binary.is_file(),
        "{} is missing: run `cargo xtask build`",
        binary.display()
    );
    let scratch = Scratch::new()?;
    let mut outcomes = Vec::new();
    for side in ["n", "t"] {
        let folder = scratch.folder(side)?;
        let mut argv = vec![binary.clone().into_os_string()];
        for arg in &program.args {
            argv.push(if arg == "POOL" {
                "pool".into()
            } else {
                arg.into()
            });
        }
        let native = Invocation::new(argv, &folder).timeout(COMMAND_TIMEOUT);
        let invocation = if side == "n" {
            native
        } else {
            tool::run(&native)
        };
        outcomes.push(invocation.run()?);
    }
    let native = outcomes[0]
        .clone()
        .expect_success("natively, where it must succeed")?;
    match &program.refused {
        None => exec::compare(&native, &outcomes[1], true),
        Some(words) => {
            let message = outcomes[1].stderr_text();
            ensure!(
                outcomes[1].status == UNSUPPORTED
                    && message.contains("not supported")
                    && message.contains(words),
                "not refused as `{words}`: exit status {}\n{}",
                outcomes[1].status,
                outcomes[1].describe()
            );
            Ok(())
        }
    }
}

/// A sanitizer divides the address space up for itself, so it starts only where the engine leaves
/// it room. What it reports of the program must be the same; and persistent memory is seen through
/// it.
fn run_sanitizer(sanitizer: &Sanitizer, flags: &[&str]) -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let folder = scratch.folder("n")?;
    let program = folder.join("sanitized");
    let source = layout::program_sources().join("sanitized.c");
    let status = Command::new("gcc")
        .args(["-g", "-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .arg(format!("-fsanitize={}", sanitizer.name))
        .args(flags)
        .status()
        .context("gcc cannot be started")?;
    ensure!(
        status.success(),
        "gcc cannot build with -fsanitize={}",
        sanitizer.name
    );
    for mistake in ["", sanitizer.mistake] {
        let argv = [program.as_os_str(), "pool".as_ref(), mistake.as_ref()];
        let plain = Invocation::new(argv, &folder).timeout(COMMAND_TIMEOUT);
        // ThreadSanitizer does not start natively where addresses are more random than it knows.
        let mut fixed = plain.clone();
        fixed.argv = [vec!["setarch".into(), "-R".into()], fixed.argv].concat();
        let native = fixed.run()?;
        let trace = folder.join("trace");
        let pm = ["--pm", "pool"];
        let under = [
            tool::run(&plain),
            tool::record(&plain, &trace, &[&pm[..], &["--verify"]].concat()),
            tool::record(
                &plain,
                &trace,
                &[&pm[..], &["--loads", "--verify", "--deterministic"]].concat(),
            ),
            tool::check(&plain, &pm),
        ];
        for invocation in under {
            let outcome = invocation.run()?;
            let reports = outcome.stderr_text().contains(sanitizer.report);
            let is_check = invocation.argv.iter().any(|word| word == "check");
            ensure!(
                reports != mistake.is_empty()
                    && (outcome.status == native.status || is_check)
                    && outcome.stdout == native.stdout
                    && !outcome.stderr_text().contains("no persistent memory"),
                "with `{mistake}`, {:?}: not as natively\n{}\n{}",
                invocation.argv,
                native.describe(),
                outcome.describe()
            );
        }
    }
    Ok(())
}

fn run_cpython(module: &str) -> Result<()> {
    tool::expect_built()?;
    let native = cpython::native(module, CPYTHON_TIMEOUT)?.passed;
    ensure!(
        !native.is_empty(),
        "no test case of {module} passes natively"
    );
    let scratch = Scratch::new()?;
    let outcome = tool::run(&cpython::invocation(
        module,
        scratch.path(),
        CPYTHON_TIMEOUT,
    ))
    .run()?;
    let passed = cpython::verdict(&outcome, scratch.path())?.passed;
    let lost: Vec<&String> = native.difference(&passed).collect();
    if !lost.is_empty() {
        bail!(
            "{} of {} test cases pass natively but not under the tool: {lost:?}\n{}",
            lost.len(),
            native.len(),
            outcome.describe()
        );
    }
    Ok(())
}

//! The programs in `tests/race` are what their headers say, before anything decides how their
//! threads run.
//!
//! | trials | what |
//! |---|---|
//! | `run::` | undisturbed runs end well, on a new pool and on an old one; recovery and what follows it do, too |
//! | `show::` | the power fails where it hurts, natively, and recovery or the workload after it fails or hangs, as the verdict says |
//! | `check::` | `brownout check` reports what the header says of the wrong build, and nothing but what it allows of the right one |
//! | `replay::` | what a native run prints is in the set of the header |
//! | `litmus` | native runs of every litmus file end as it says |
//!
//! A wrong build that can hang natively is not run here. `canary` shows that `show::` can fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Finding, Severity};
use brownout_tests::litmus::{self, Buffers};
use brownout_tests::race::{self, Build, Expectation, RaceProgram, ReplayProgram};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, Outcome, Scratch, check, trial};
use libtest_mimic::Arguments;

const TIMEOUT: Duration = Duration::from_secs(60);
/// After this long, what takes milliseconds counts as hanging.
const HANGS_AFTER: &str = "3";
/// What `timeout` ends with when it had to kill.
const KILLED: i32 = 137;
/// What a program ends with when the power fails.
const POWER_FAILED: i32 = 99;
/// How often the power fails in one run of `show::`, at most, each time on a new pool.
const WINDOWS: u32 = 12;
/// How often all of them are tried: whether the others come in time is up to the machine.
const ROUNDS: u32 = 5;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let programs = race::discover().unwrap_or_else(|error| {
        trials.push(broken("headers", &error));
        Vec::new()
    });
    for program in programs {
        let mut add = |kind: &str, build: Build, test: fn(&RaceProgram, Build) -> Result<()>| {
            let name = format!("{kind}::{}::{}", program.name, build.name());
            let program = program.clone();
            trials.push(trial(name, move || test(&program, build)));
        };
        add("run", Build::Fixed, undisturbed);
        add("check", Build::Fixed, checked);
        if !program.clean && !program.hangs {
            add("run", Build::Bug, undisturbed);
            add("check", Build::Bug, checked);
        }
        if program.shows() {
            add("show", Build::Show, shown);
        }
    }
    let programs = race::discover_replay().unwrap_or_else(|error| {
        trials.push(broken("replay_headers", &error));
        Vec::new()
    });
    for program in programs {
        trials.push(trial(format!("replay::{}", program.name), move || {
            printed(&program)
        }));
    }
    trials.push(trial("litmus", litmus_files));
    trials.push(trial("canary", canary));
    libtest_mimic::run(&arguments, trials).exit();
}

fn expect_built(path: PathBuf) -> Result<PathBuf> {
    ensure!(
        path.is_file(),
        "{} is missing: run `cargo xtask build`",
        path.display()
    );
    Ok(path)
}

/// `PROG POOL [MODE]`.
fn invocation(
    program: &RaceProgram,
    build: Build,
    mode: &str,
    scratch: &Scratch,
) -> Result<Invocation> {
    let mut argv = vec![
        expect_built(program.binary(build))?.into_os_string(),
        scratch.join("pool").into(),
    ];
    if !mode.is_empty() {
        argv.push(mode.into());
    }
    Ok(Invocation::new(argv, scratch.path()).timeout(TIMEOUT))
}

fn undisturbed(program: &RaceProgram, build: Build) -> Result<()> {
    for _ in 0..3 {
        let scratch = Scratch::new()?;
        let setup = program.setup.then_some("create");
        let modes = ["", "recover", "", "recover", "continue", "recover"];
        for mode in setup.into_iter().chain(modes) {
            let outcome = invocation(program, build, mode, &scratch)?.run()?;
            outcome.expect_success(&format!("`{mode}`"))?;
        }
    }
    Ok(())
}

/// Whether a command fails, or does not end.
fn fails(invocation: Invocation) -> Result<bool> {
    let mut argv = vec!["timeout".into(), "--signal=KILL".into(), HANGS_AFTER.into()];
    argv.extend(invocation.argv.iter().cloned());
    let outcome = Invocation { argv, ..invocation }.run()?;
    match outcome.status {
        0 => Ok(false),
        1 | KILLED => Ok(true),
        _ => bail!("{}", outcome.describe()),
    }
}

fn shown(program: &RaceProgram, build: Build) -> Result<()> {
    let mut failures = 0;
    for round in 0..ROUNDS {
        for window in 1..=WINDOWS {
            let scratch = Scratch::new()?;
            let run = invocation(program, build, "", &scratch)?;
            let outcome: Outcome = run.env("SHOW_AT", &window.to_string()).run()?;
            if outcome.status != POWER_FAILED {
                outcome.expect_success("the workload")?;
                break;
            }
            failures += 1;
            // What comes after the crash runs on an ordinary machine.
            let recovery = fails(invocation(program, Build::Bug, "recover", &scratch)?)?;
            if !program.continues {
                if recovery {
                    return Ok(());
                }
                continue;
            }
            ensure!(!recovery, "recovery fails; only what follows it should");
            if fails(invocation(program, Build::Bug, "continue", &scratch)?)? {
                return Ok(());
            }
        }
        ensure!(failures > 0, "the power never failed in round {round}");
    }
    bail!("after none of {failures} power failures something was wrong")
}

fn checked(program: &RaceProgram, build: Build) -> Result<()> {
    let scratch = Scratch::new()?;
    if program.setup {
        let setup = invocation(program, build, "create", &scratch)?.run()?;
        setup.expect_success("`create`")?;
    }
    let pool = scratch.join("pool");
    let options = ["--fail-on", "never", "--pm", &pool.to_string_lossy()];
    let checked = check::run(&invocation(program, build, "", &scratch)?, &options)?;
    let report = &checked.report;
    ensure!(
        report.verdict != brownout_findings::Verdict::NothingChecked,
        "no persistent memory was seen"
    );
    let file = program.source.file_name().context("a file")?;
    let file = file.to_string_lossy();
    let is = |finding: &Finding, expected: &Expectation| {
        let mut lines = expected.lines.iter();
        finding.rule == expected.rule
            && finding
                .events
                .first()
                .is_some_and(|event| lines.any(|line| check::is_at_line(event, &file, *line)))
    };
    let expected: &[Expectation] = match build {
        Build::Fixed => &[],
        Build::Bug | Build::Show => &program.checks,
    };
    for expected in expected {
        ensure!(
            report.findings.iter().any(|finding| is(finding, expected)),
            "no {} at {:?}\n{}",
            expected.rule,
            expected.lines,
            check::show(report)
        );
    }
    let known = |finding: &Finding| {
        let mut all = expected.iter().chain(&program.allows);
        all.any(|known| is(finding, known))
    };
    for finding in &report.findings {
        ensure!(
            finding.severity != Severity::Correctness || known(finding),
            "{}: {}\n{}",
            finding.rule,
            finding.message,
            check::show(report)
        );
    }
    Ok(())
}

fn printed(program: &ReplayProgram) -> Result<()> {
    let scratch = Scratch::new()?;
    for _ in 0..5 {
        let argv = [expect_built(program.binary())?, scratch.join("notes")];
        let run = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
        let printed = run.run()?.expect_success(&program.name)?.stdout_text();
        ensure!(
            program.may_print(&printed),
            "{printed:?} is none of {:?}",
            program.prints
        );
    }
    Ok(())
}

fn litmus_files() -> Result<()> {
    let runner = expect_built(litmus::runner())?;
    let run = |file: &Path, mode: Option<&str>, scratch: &Scratch| -> Result<String> {
        let mut argv = vec![
            runner.clone().into_os_string(),
            scratch.join("pool").into(),
            file.into(),
        ];
        argv.extend(mode.map(Into::into));
        let outcome = Invocation::new(argv, scratch.path())
            .timeout(TIMEOUT)
            .run()?;
        let text = outcome.expect_success(&file.to_string_lossy())?;
        Ok(text.stdout_text().trim_end().to_owned())
    };
    for file in litmus::discover()? {
        for _ in 0..3 {
            let scratch = Scratch::new()?;
            let name = &file.name;
            let end = run(&file.path, None, &scratch)?;
            ensure!(
                file.outcomes(Buffers::Tso).contains(&end),
                "{name} cannot end with {end}"
            );
            let left = run(&file.path, Some("recover"), &scratch)?;
            ensure!(
                file.survives(Buffers::Tso).contains(&left),
                "{name} cannot leave {left}"
            );
            fs::remove_file(scratch.join("pool"))?;
        }
    }
    Ok(())
}

/// A build on which the power never fails shows nothing.
fn canary() -> Result<()> {
    let program = race::find("counter_value")?;
    let result = shown(&program, Build::Bug);
    ensure!(result.is_err(), "a bug is shown without a power failure");
    Ok(())
}

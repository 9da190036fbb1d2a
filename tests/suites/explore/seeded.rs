//! The seeded programs (`tests/seeded`): what is planted is found, with the right rule and at the
//! right line, and seen natively; what is not planted is not found.
//!
//! A wrong build is explored with the oracle that its header's `explored:` asks for. Each finding
//! must begin at one of the marked lines: with the lost store, or with the crash if no store need
//! be lost. Everything else (fixed twins, clean programs, bugs that no crash shows) is explored to
//! the end without a finding, by the default oracles and with `--oracle ops`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Frame};
use brownout_tests::check::show;
use brownout_tests::explore::{self, Explored, blamed};
use brownout_tests::seeded::{self, Build, Expectation, Seeded};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, Scratch};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(120);

/// What the help of some finding must say: each of these causes has another remedy.
const HELP: &[(&str, &str)] = &[
    (
        "correctness/ack_before_durable",
        "before this is acknowledged",
    ),
    (
        "correctness/creation_not_retried",
        "create it anew if the mark is not there",
    ),
    (
        "correctness/data_never_flushed",
        "write back and fence what is stored at data_never_flushed.c",
    ),
    (
        "correctness/flag_before_data",
        "comes too early: store it when what is stored at flag_before_data.c",
    ),
    (
        "correctness/flag_without_fence",
        "before the store at flag_without_fence.c",
    ),
    (
        "correctness/lock_still_held",
        "set locks free when the file is opened",
    ),
    (
        "correctness/nt_without_fence",
        "fence after the non-temporal store at",
    ),
    (
        "correctness/pointer_to_dram",
        "must not hold an address of the last run",
    ),
    (
        "correctness/recovery_not_idempotent",
        "must come to the same end when it runs again",
    ),
    (
        "correctness/undo_truncated_early",
        "before the store at undo_truncated_early.c",
    ),
];

pub fn trials() -> Vec<Trial> {
    let programs = match seeded::discover() {
        Ok(programs) => programs,
        Err(error) => {
            return vec![broken("seeded::headers", &error)];
        }
    };
    let mut trials = vec![trial("seeded::canary", canary)];
    for program in programs {
        let name = format!("seeded::{}", program.name.replace('/', "::"));
        for build in [Build::Fixed, Build::Bug] {
            if !program.builds().contains(&build) {
                continue;
            }
            let label = format!("{name}::{}", build.name());
            let program = program.clone();
            let lacks_bug = build.has_bug() && program.lacks_bug();
            let trial = match build.has_bug() && program.explore {
                true => trial(label, move || found(&program)),
                false => trial(label, move || silent(&program, build)),
            };
            trials.push(trial.with_ignored_flag(lacks_bug));
        }
    }
    trials
}

/// A build of a seeded program.
fn binary(program: &Seeded, build: Build) -> Result<PathBuf> {
    let path = program.binary(build);
    ensure!(
        path.is_file(),
        "{} is missing: run `cargo xtask build`",
        path.display()
    );
    Ok(path)
}

/// Explores `run pool`, in the folder, with `check pool` as recovery.
fn explored(program: &Seeded, build: Build, oracle: &[&str], folder: &Path) -> Result<Explored> {
    let binary = binary(program, build)?;
    let recover = format!("{} check pool", binary.display());
    // Some programs store in two threads, one after the other. What orders them is not looked at.
    let mut options = vec!["--pm", "pool", "--recover", &recover];
    options.extend(["--accept", "interleaving"]);
    if let Some(domain) = &program.domain {
        options.extend(["--domain", domain]);
    }
    options.extend(oracle);
    let native = Invocation::new(
        [binary.as_os_str(), "run".as_ref(), "pool".as_ref()],
        folder,
    )
    .timeout(TIMEOUT);
    explore::run(&native, &options)
}

/// The options for the oracle that a rule needs.
fn oracle(rule: &str, binary: &Path) -> Vec<String> {
    match rule {
        "not-atomic" => vec!["--oracle".into(), "ops".into()],
        "checker-failed" => vec![
            "--oracle".into(),
            format!("cmd:{} verify", binary.display()),
        ],
        _ => Vec::new(),
    }
}

/// Explores the wrong build as its header wants it, in the folder.
pub fn explore_bug(program: &Seeded, folder: &Path) -> Result<Explored> {
    explore_expected(program, Build::Bug, folder)
}

fn explore_expected(program: &Seeded, build: Build, folder: &Path) -> Result<Explored> {
    let expected = program.explored.first().context("nothing is `explored:`")?;
    let words = oracle(&expected.rule, &binary(program, build)?);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    explored(program, build, &words, folder)
}

fn found(program: &Seeded) -> Result<()> {
    let scratch = Scratch::new()?;
    let explored = explore_bug(program, scratch.path())?;
    explored.expect_findings()?;
    judge(program, &explored, &program.explored)?;
    helps(program, &explored)?;
    ensure!(
        !scratch.join("pool").exists(),
        "a pool is left that was not there before"
    );
    let depth = explored.number("depth")?;
    ensure!(depth >= u64::from(program.crashes), "only {depth} crashes");
    if program.crashes > 1 {
        one_crash_shows_nothing(program)?;
    }
    Ok(())
}

/// The remedy fits the cause.
fn helps(program: &Seeded, explored: &Explored) -> Result<()> {
    let Some((_, words)) = HELP.iter().find(|(name, _)| *name == program.name) else {
        return Ok(());
    };
    let help: Vec<&str> = explored
        .report
        .findings
        .iter()
        .flat_map(|finding| finding.help.iter().map(String::as_str))
        .collect();
    ensure!(
        help.iter().any(|help| help.contains(words)),
        "no help says {words:?}: {help:#?}"
    );
    Ok(())
}

/// The header says that it takes more than one crash.
fn one_crash_shows_nothing(program: &Seeded) -> Result<()> {
    let scratch = Scratch::new()?;
    explored(program, Build::Bug, &["--depth", "1"], scratch.path())?.expect_clean()
}

/// There are findings for all that is expected, and each finding is one of those.
fn judge(program: &Seeded, explored: &Explored, expected: &[Expectation]) -> Result<()> {
    for expectation in expected {
        let mut fitting = explored.report.findings.iter();
        ensure!(
            fitting.any(|finding| fits(program, finding, expectation)),
            "no {} at lines {:?}\n{}",
            expectation.rule,
            program.lines(expectation),
            show(&explored.report)
        );
    }
    for finding in &explored.report.findings {
        ensure!(
            expected.iter().any(|e| fits(program, finding, e)),
            "unexpected: {} {}\n{}",
            finding.rule,
            finding.message,
            show(&explored.report)
        );
    }
    Ok(())
}

/// The rule, with one of the marked lines on the stack of what it blames.
fn fits(program: &Seeded, finding: &Finding, expectation: &Expectation) -> bool {
    let lines = program.lines(expectation);
    let is_marked = |frame: &Frame| {
        let file = frame.file.as_ref().map(Path::new).and_then(Path::file_name);
        file == program.source.file_name() && frame.line.is_some_and(|line| lines.contains(&line))
    };
    finding.rule == expectation.rule
        && blamed(finding).is_ok_and(|event| event.stack.iter().any(is_marked))
}

fn silent(program: &Seeded, build: Build) -> Result<()> {
    let scratch = Scratch::new()?;
    for oracle in [&[][..], &["--oracle", "ops"]] {
        explored(program, build, oracle, scratch.path())?
            .expect_clean()
            .with_context(|| format!("with {oracle:?}"))?;
    }
    let asks_checker = |e: &Expectation| e.rule == "checker-failed";
    if program.explored.iter().any(asks_checker) {
        explore_expected(program, build, scratch.path())?
            .expect_clean()
            .context("with the checker")?;
    }
    Ok(())
}

/// The judgement can fail: it misses what is not there, and notices what nobody announced or what
/// lies elsewhere.
fn canary() -> Result<()> {
    let programs = seeded::discover()?;
    let program = programs
        .iter()
        .find(|program| program.name == "correctness/data_never_flushed")
        .context("the program is gone")?;
    let scratch = Scratch::new()?;
    let bug = explore_bug(program, scratch.path())?;
    judge(program, &bug, &program.explored)?;
    ensure!(bug.expect_clean().is_err());
    ensure!(judge(program, &bug, &[]).is_err());
    let elsewhere = Expectation {
        markers: vec!["no-such-marker".to_owned()],
        ..program.explored[0].clone()
    };
    ensure!(judge(program, &bug, &[elsewhere]).is_err());
    let other_rule = Expectation {
        rule: "recovery-crash".to_owned(),
        ..program.explored[0].clone()
    };
    ensure!(judge(program, &bug, &[other_rule]).is_err());
    let fixed = explored(program, Build::Fixed, &[], scratch.path())?;
    ensure!(judge(program, &fixed, &program.explored).is_err());
    ensure!(fixed.expect_findings().is_err());
    Ok(())
}

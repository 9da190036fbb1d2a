//! A finding's token shows the finding again, and says so if it is gone.
//!
//! A token holds the command, not the files. So the pool is removed before a replay, as it was
//! before the first run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Severity};
use brownout_random::Random;
use brownout_tests::check;
use brownout_tests::examples;
use brownout_tests::{Invocation, Scratch, layout};
use libtest_mimic::Trial;

use crate::{TIMEOUT, modes, trial};

/// `BROWNOUT_SEED` sets another.
const SEED: u64 = 1;

const REPLAYED: usize = 5;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("replay::five_at_random", five_at_random),
        trial("replay::of_a_recording", of_a_recording),
        trial("replay::fixed_meanwhile", fixed_meanwhile),
        trial("replay::no_token", no_token),
    ]
}

/// What a program is replayed for: its folder, and one of its findings.
type Candidate = (PathBuf, Finding);

fn candidates(scratch: &Scratch) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    let mut add = |native: &Invocation, options: &[&str]| -> Result<()> {
        let checked = check::run(native, options)?;
        let findings = checked.report.findings.into_iter();
        all.extend(findings.map(|finding| (native.folder.clone(), finding)));
        Ok(())
    };
    for (number, mode) in ["forget_too_clean", "early_fork", "forget_early_clean"]
        .into_iter()
        .enumerate()
    {
        let folder = scratch.folder(&format!("modes{number}"))?;
        let native = Invocation {
            folder,
            ..modes(mode, scratch)?
        };
        add(&native, &["--pm", "pool"])?;
    }
    for map in ["rbtree", "hashmap_atomic"] {
        let folder = scratch.folder(map)?;
        fs::write(folder.join("commands"), "i 10\ni 5\ni 7\nr 5\nq\n")?;
        let argv = [
            examples::binary("mapcli")?.into_os_string(),
            map.into(),
            "pool".into(),
        ];
        let native = Invocation::new(argv, &folder).timeout(TIMEOUT);
        add(&native, &["--stdin", "commands"])?;
    }
    Ok(all)
}

fn five_at_random() -> Result<()> {
    let seed = match std::env::var("BROWNOUT_SEED") {
        Ok(text) => text.parse().context("BROWNOUT_SEED")?,
        Err(_) => SEED,
    };
    let scratch = Scratch::new()?;
    let mut all = candidates(&scratch)?;
    let mut random = Random::new(seed);
    // Of either severity: there are far more findings about performance.
    let mut chosen = Vec::new();
    for number in 0..REPLAYED {
        let wanted = match number {
            0 | 1 => Severity::Correctness,
            _ => Severity::Performance,
        };
        let fitting: Vec<usize> = (0..all.len())
            .filter(|at| all[*at].1.severity == wanted)
            .collect();
        ensure!(!fitting.is_empty(), "nothing of {wanted:?} is found");
        let pick = fitting[random.below(fitting.len() as u64) as usize];
        chosen.push(all.swap_remove(pick));
    }
    for (folder, finding) in &chosen {
        shows_again(folder, finding).with_context(|| {
            format!("BROWNOUT_SEED={seed}: {} {}", finding.rule, finding.message)
        })?;
    }
    Ok(())
}

fn token(finding: &Finding) -> Result<&str> {
    let replay = finding.replay.as_ref().context("no token")?;
    ensure!(replay.command == format!("brownout replay {}", replay.token));
    Ok(&replay.token)
}

fn of_a_recording() -> Result<()> {
    let scratch = Scratch::new()?;
    let native = modes("forget_clean", &scratch)?;
    check::run(&native, &["--pm", "pool", "--save-trace", "run.bwt"])?;
    let checked = check::run_recorded(&["--trace", "run.bwt"], scratch.path())?;
    checked.expect_places(&[("clean-flush", "flush_clean"), ("missing-flush", "forget")])?;
    for finding in &checked.report.findings {
        shows_again(scratch.path(), finding)?;
    }
    Ok(())
}

/// As before the first run.
fn remove_pool(folder: &Path) -> Result<()> {
    match fs::remove_file(folder.join("pool")) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn shows_again(folder: &Path, finding: &Finding) -> Result<()> {
    remove_pool(folder)?;
    let before = fs::read(folder.join("report.json"))?;
    // From another folder: the token knows where the run was.
    let elsewhere = Scratch::new()?;
    let outcome = check::replay(token(finding)?, elsewhere.path()).run()?;
    let text = outcome.stderr_text();
    let shown: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("= fingerprint: "))
        .collect();
    ensure!(
        shown == [finding.fingerprint.as_str()],
        "{}",
        outcome.describe()
    );
    ensure!(
        text.contains(&format!("finding {} shows again", finding.fingerprint)),
        "{text}"
    );
    let status = i32::from(finding.severity == Severity::Correctness);
    ensure!(outcome.status == status, "exit status {}", outcome.status);
    ensure!(
        fs::read(folder.join("report.json"))? == before,
        "the first report was overwritten"
    );
    Ok(())
}

/// Once the program is mended, the token says so and ends as the program does.
fn fixed_meanwhile() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = layout::program_sources().join("check_modes.c");
    let program = scratch.join("program");
    check::compile(&source, program.clone(), &["-O2"])?;
    let argv = [
        program.clone().into_os_string(),
        "pool".into(),
        "forget_seven".into(),
    ];
    let native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
    let checked = check::run(&native, &["--pm", "pool"])?;
    checked.expect_places(&[("missing-flush", "forget")])?;
    let finding = &checked.report.findings[0];

    check::compile(&source, program, &["-O2", "-DFIXED"])?;
    let outcome = check::replay(token(finding)?, scratch.path()).run()?;
    ensure!(
        outcome.stderr_text().contains(&format!(
            "finding {} did not show again",
            finding.fingerprint
        )),
        "{}",
        outcome.describe()
    );
    ensure!(outcome.status == 7, "exit status {}", outcome.status);
    Ok(())
}

fn no_token() -> Result<()> {
    let scratch = Scratch::new()?;
    for text in ["", "hello", "bo1-", "bo1-KLUv_SB_", "bo9-KLUv"] {
        let outcome = check::replay(text, scratch.path()).run()?;
        ensure!(outcome.status == 2, "{text:?}: {}", outcome.describe());
        let said = outcome.stderr_text();
        ensure!(said.starts_with("brownout: "), "{text:?}: {said}");
    }
    Ok(())
}

//! A finding's token shows its symptom again, and so does its command, without Brownout.
//!
//! `BROWNOUT_SEED` chooses other findings.

use std::env;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::Finding;
use brownout_tests::examples::SplitMix64;
use brownout_tests::explore::{Explored, reproduction};
use brownout_tests::seeded::{self, Seeded};
use brownout_tests::{Invocation, Scratch, check};
use libtest_mimic::Trial;

use crate::{maps, seeded as seeded_suite, trial};

const SEED: u64 = 1;

/// Findings of seeded programs; there is one of a map in addition.
const SEEDED: usize = 4;

/// A native recovery that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(3);

pub fn trials() -> Vec<Trial> {
    vec![trial("replay::five_at_random", five_at_random)]
}

fn five_at_random() -> Result<()> {
    let seed = match env::var("BROWNOUT_SEED") {
        // The trials of generated programs also take ranges.
        Ok(text) => text.split("..").next().unwrap_or(&text).parse()?,
        Err(_) => SEED,
    };
    let mut random = SplitMix64(seed);
    let mut programs: Vec<Seeded> = seeded::discover()?;
    programs.retain(|program| program.explore);
    for _ in 0..SEEDED {
        let program = programs.swap_remove(random.below(programs.len() as u64) as usize);
        let scratch = Scratch::new()?;
        let explored = seeded_suite::explore_bug(&program, scratch.path())?;
        shows_again(one_of(&explored, &mut random)?, scratch.path())
            .with_context(|| format!("BROWNOUT_SEED={seed}: {}", program.name))?;
    }
    let scratch = Scratch::new()?;
    let (name, explored) = match random.below(2) {
        0 => ("creation", maps::explore_creation(scratch.path())?),
        _ => ("hashmap_atomic", maps::explore_rebuild(scratch.path())?),
    };
    shows_again(one_of(&explored, &mut random)?, scratch.path())
        .with_context(|| format!("BROWNOUT_SEED={seed}: {name}"))
}

fn one_of<'e>(explored: &'e Explored, random: &mut SplitMix64) -> Result<&'e Finding> {
    explored.expect_findings()?;
    let findings = &explored.report.findings;
    Ok(&findings[random.below(findings.len() as u64) as usize])
}

fn shows_again(finding: &Finding, folder: &Path) -> Result<()> {
    by_token(finding, folder).with_context(|| finding.message.clone())?;
    by_command(finding, folder).with_context(|| finding.message.clone())
}

fn by_token(finding: &Finding, folder: &Path) -> Result<()> {
    let expected = reproduction(finding)?;
    let replay = finding.replay.as_ref().context("no token")?;
    ensure!(replay.command == format!("brownout replay {}", replay.token));
    let (pool, report) = (folder.join("pool"), fs::read(folder.join("report.json"))?);
    let before = fs::read(&pool).ok();
    // From another folder: the token knows where the run was.
    let elsewhere = Scratch::new()?;
    let outcome = check::replay(&replay.token, elsewhere.path()).run()?;
    let text = outcome.stderr_text();
    for words in [
        format!(
            "finding {}: recovery ends with {} under Brownout",
            finding.fingerprint, expected.status
        ),
        format!("natively it ends with {}", expected.status),
    ] {
        ensure!(text.contains(&words), "no {words:?}\n{text}");
    }
    ensure!(outcome.status == 1, "exit status {}", outcome.status);
    // What a set-up creates is created anew.
    if before.is_none() {
        ensure!(!pool.exists(), "a pool is left");
    }
    ensure!(
        fs::read(folder.join("report.json"))? == report,
        "the first report was overwritten"
    );
    Ok(())
}

fn by_command(finding: &Finding, folder: &Path) -> Result<()> {
    let expected = reproduction(finding)?;
    let invocation = Invocation::shell(&expected.command, folder);
    if expected.status == "hang" {
        let ended = invocation.timeout(PATIENCE).run();
        ensure!(
            ended.is_err_and(|error| error.to_string().contains("no end after")),
            "it ends"
        );
        return Ok(());
    }
    let outcome = invocation.run()?;
    // A shell says 128 + n for signal n.
    let status = match outcome.status {
        code if code > 128 => format!("signal {}", code - 128),
        code => format!("exit code {code}"),
    };
    ensure!(
        status == expected.status && outcome.stdout_text() == expected.stdout,
        "{status} instead of {}, {:?}\n{}",
        expected.status,
        expected.stdout,
        outcome.describe()
    );
    Ok(())
}

//! libpmemobj's examples, broken on purpose: what matters is found where it is, and what does not
//! stays silent.
//!
//! The same commands on the example as it is installed must be silent (`as_installed`).
//!
//! See [`brownout_tests::mutants`] for how an example is edited, and which edits there are.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Limit, Report, Severity};
use brownout_tests::explore::{self, Explored};
use brownout_tests::mutants::Expectation::{Found, Harmless};
use brownout_tests::mutants::Scenario::{self, Map, Steps};
use brownout_tests::mutants::{self, Mutant};
use brownout_tests::{Invocation, Scratch, check, examples};
use libtest_mimic::Trial;

use crate::trial;

const UPSTREAM: &str = "1.12.1";

const TIMEOUT: Duration = Duration::from_secs(300);

pub fn trials() -> Vec<Trial> {
    let tried = tried();
    let mut trials: Vec<Trial> = tried
        .iter()
        .map(|mutant| {
            let mutant = *mutant;
            trial(format!("mutants::{}", mutant.name), || try_one(mutant))
        })
        .collect();
    let mut seen: Vec<Scenario> = Vec::new();
    for mutant in tried {
        let scenario = mutant.scenario;
        if !seen.contains(&scenario) {
            seen.push(scenario);
            let name = format!(
                "mutants::as_installed::{:02}_{}",
                seen.len(),
                scenario.program()
            );
            trials.push(trial(name, move || silent_as_installed(scenario)));
        }
    }
    trials.push(trial("mutants::judge_can_fail", judge_can_fail));
    trials
}

/// Of each example's source, the first edit that matters and the first that does not; all, if
/// `BROWNOUT_MUTANTS` is `all`, which takes four times as long.
fn tried() -> Vec<&'static Mutant> {
    if std::env::var_os("BROWNOUT_MUTANTS").is_some_and(|which| which == "all") {
        return mutants::ALL.iter().collect();
    }
    let mut seen = HashSet::new();
    let is_first = |mutant: &&Mutant| {
        let matters = matches!(mutant.expectation, Found { .. });
        seen.insert((mutant.file, matters))
    };
    mutants::ALL.iter().filter(is_first).collect()
}

/// The canary: a report that says the wrong thing is noticed.
fn judge_can_fail() -> Result<()> {
    let example = |name: &str| {
        let mutant = mutants::ALL.iter().find(|mutant| mutant.name == name);
        mutant.with_context(|| format!("no mutant {name}"))
    };
    let found = example("queue_third_handle_not_logged")?;
    let harmless = example("queue_first_handle_not_logged")?;
    let scratch = Scratch::new()?;
    let explored = explore(
        found.scenario,
        &found.build(scratch.path())?,
        scratch.path(),
    )?;
    let report = explored.report;
    judge(found, &report)?;
    ensure!(judge(harmless, &report).is_err(), "a finding too many");
    let elsewhere = Mutant {
        expectation: Found {
            blamed: "queue_dequeue",
        },
        ..*found
    };
    ensure!(judge(&elsewhere, &report).is_err(), "another place");
    let mut silent = report.clone();
    silent.findings.clear();
    ensure!(judge(found, &silent).is_err(), "silence");
    judge(harmless, &silent)?;
    silent.coverage.limit(Limit::Time, "the time was up");
    ensure!(judge(harmless, &silent).is_err(), "cut short");
    let mut unseen = report;
    for finding in &mut unseen.findings {
        finding.reproduction = None;
    }
    ensure!(judge(found, &unseen).is_err(), "not seen natively");
    Ok(())
}

fn try_one(mutant: &Mutant) -> Result<()> {
    examples::expect_version("libpmemobj-dev", UPSTREAM)?;
    let scratch = Scratch::new()?;
    let binary = mutant.build(scratch.path())?;
    let explored = explore(mutant.scenario, &binary, scratch.path())?;
    judge(mutant, &explored.report).with_context(|| {
        format!(
            "{}\n{}",
            explored.outcome.describe(),
            check::show(&explored.report)
        )
    })
}

/// Without an edit there is nothing to find, so that what is found comes of the edit.
fn silent_as_installed(scenario: Scenario) -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = examples::binary(scenario.program())?;
    explore(scenario, &binary, scratch.path())?
        .expect_clean()
        .with_context(|| format!("{scenario:?}"))
}

fn explore(scenario: Scenario, binary: &Path, folder: &Path) -> Result<Explored> {
    // One recovery at a time: trials run side by side.
    let mut options = vec!["--depth", "1", "--jobs", "1", "--oracle", "ops"];
    let program = binary.to_string_lossy();
    match scenario {
        Map {
            map,
            before,
            commands,
            after,
        } => {
            let files = [
                ("before", before.unwrap_or_default()),
                ("commands", commands),
                ("after", after),
            ];
            for (file, content) in files {
                fs::write(folder.join(file), content.replace(',', "\n") + "\n")?;
            }
            let mut setup = format!("{} pool map", examples::binary("@mkpool")?.display());
            if before.is_some() {
                setup += &format!(" && {program} {map} pool 1 < before");
            }
            options.extend([
                "--setup",
                &setup,
                "--stdin",
                "commands",
                "--recover-stdin",
                "after",
            ]);
            // The seed makes hashes and levels the same on every run.
            let native = Invocation::new([&*program, map, "pool", "1"], folder);
            explore::run(&native.timeout(TIMEOUT), &options)
        }
        Steps {
            before,
            command,
            after,
        } => {
            let words = |line: &str| -> Result<Vec<PathBuf>> {
                line.split(' ')
                    .enumerate()
                    .map(|(at, word)| match (at, word) {
                        (0, word) if word == scenario.program() => Ok(binary.to_path_buf()),
                        (0, word) => examples::binary(word),
                        (_, "P") => Ok("pool".into()),
                        (_, word) => Ok(word.into()),
                    })
                    .collect()
            };
            for step in before {
                Invocation::new(words(step)?, folder)
                    .run()?
                    .expect_success(step)?;
            }
            let recover = Invocation::new(words(after)?, folder).line();
            options.extend(["--recover", &recover]);
            let native = Invocation::new(words(command)?, folder);
            explore::run(&native.timeout(TIMEOUT), &options)
        }
    }
}

/// Whether a report says of a mutant what it must.
fn judge(mutant: &Mutant, report: &Report) -> Result<()> {
    let wrong: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Correctness)
        .collect();
    match mutant.expectation {
        Harmless { why } => {
            ensure!(wrong.is_empty(), "this is harmless, because {why}");
            // Silence is worth nothing if something was left out that is looked at unasked.
            ensure!(
                report.coverage.open().is_empty(),
                "not all was explored: {:?}",
                report.coverage
            );
        }
        Found { blamed } => {
            let fitting: Vec<&&Finding> = wrong
                .iter()
                .filter(|finding| {
                    finding
                        .events
                        .iter()
                        .any(|event| mutants::is_in(mutant.file, blamed, event))
                })
                .collect();
            ensure!(
                !fitting.is_empty(),
                "nothing in {blamed}() of {} is blamed",
                mutant.file
            );
            ensure!(
                fitting
                    .iter()
                    .any(|finding| finding.reproduction.as_ref().is_some_and(|r| r.confirmed)),
                "not seen natively: {:?}",
                fitting[0].reproduction
            );
        }
    }
    Ok(())
}

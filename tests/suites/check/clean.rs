//! libpmemobj's examples lose no data in any crash that the rules know of; nothing may say
//! otherwise.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Severity, Verdict};
use brownout_tests::check::{self, Checked};
use brownout_tests::examples::{self, DATA_STORES, MAPS, USES, Use};
use brownout_tests::{Invocation, Outcome, Scratch, exec};
use libtest_mimic::Trial;

use crate::{TIMEOUT, trial};

const COMMANDS: usize = 1000;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for map in MAPS {
        trials.push(trial(format!("clean::mapcli_{map}"), move || mapcli(map)));
    }
    for map in DATA_STORES {
        // Natively the second run of the hash maps ends with an error; so it must here.
        trials.push(trial(format!("clean::data_store_{map}"), move || {
            steps(
                &[
                    &format!("data_store {map} P 100"),
                    &format!("data_store {map} P 30"),
                ],
                "",
                true,
            )
        }));
    }
    for Use {
        name,
        steps: commands,
        stdin,
        repeatable,
    } in USES
    {
        trials.push(trial(format!("clean::{name}"), move || {
            steps(commands, stdin, *repeatable)
        }));
    }
    trials
}

/// A thousand random commands, on a new pool and then again on the same.
fn mapcli(map: &str) -> Result<()> {
    for seed in [1, 2] {
        let scratch = Scratch::new()?;
        let (natively, under_tool) = (scratch.folder("n")?, scratch.folder("t")?);
        for (seed, count) in [(seed, COMMANDS), (seed + 100, COMMANDS / 4)] {
            let commands = scratch.join("commands");
            fs::write(&commands, examples::random_commands(seed, count))?;
            // The last word seeds its own random numbers, which it prints.
            let words = ["mapcli", map, "pool", "42"].map(str::to_owned);
            step(&words, &commands, &natively, &under_tool, true)
                .with_context(|| format!("seed of the commands: {seed}"))?;
        }
    }
    Ok(())
}

fn steps(commands: &[&str], stdin: &str, repeatable: bool) -> Result<()> {
    let scratch = Scratch::new()?;
    let input = scratch.join("input");
    fs::write(&input, stdin)?;
    let (natively, under_tool) = (scratch.folder("n")?, scratch.folder("t")?);
    for command in commands {
        let words = command.split_whitespace().map(|word| match word {
            "P" => "pool".to_owned(),
            word => word.to_owned(),
        });
        let words: Vec<String> = words.collect();
        step(&words, &input, &natively, &under_tool, repeatable)
            .with_context(|| (*command).to_owned())?;
    }
    Ok(())
}

/// One command natively and, on a pool of its own, under check.
fn step(
    words: &[String],
    input: &Path,
    natively: &Path,
    under_tool: &Path,
    repeatable: bool,
) -> Result<()> {
    let mut argv = vec![examples::binary(&words[0])?.into_os_string()];
    argv.extend(words[1..].iter().map(Into::into));
    let native = Invocation::new(argv.clone(), natively)
        .stdin(input)
        .timeout(TIMEOUT)
        // Otherwise libpmem natively calls msync for every persist on an ordinary file.
        .env("PMEM_IS_PMEM_FORCE", "1")
        .run()?;
    // Some seed their random numbers by the time, and a failure shall be there again.
    let input = input.to_string_lossy();
    let options = ["--deterministic", "--fail-on", "never", "--stdin", &input];
    let checked = check::run(
        &Invocation::new(argv, under_tool).timeout(TIMEOUT),
        &options,
    )?;
    match repeatable {
        true => exec::compare(&native, &checked.outcome, false)?,
        false => same_status(&native, &checked.outcome)?,
    }
    ensure!(
        matches!(checked.report.verdict, Verdict::Clean | Verdict::Findings),
        "the verdict is {:?}",
        checked.report.verdict
    );
    expect_clean(&checked)
}

fn same_status(native: &Outcome, checked: &Outcome) -> Result<()> {
    ensure!(
        native.status == checked.status,
        "exit status {} natively, {} under check\n{}",
        native.status,
        checked.status,
        checked.describe()
    );
    Ok(())
}

fn expect_clean(checked: &Checked) -> Result<()> {
    for finding in &checked.report.findings {
        if finding.severity == Severity::Correctness {
            bail!(
                "{} is reported\n{}",
                finding.rule,
                check::show(&checked.report)
            );
        }
    }
    Ok(())
}

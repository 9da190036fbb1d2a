//! `brownout explore` against brute force: exactly the same recovery outcomes, for 200 generated
//! programs.
//!
//! Compared are the outcomes wherever the crash falls, and those of each of the tool's failure
//! points with those of a crash at that place of the program. See [`brownout_tests::generated`] for
//! what brute force does.
//!
//! `BROWNOUT_SEED=17` runs one program only, `BROWNOUT_SEED=1000..3000` many others.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;

use anyhow::{Context, Result, anyhow, bail, ensure};
use brownout_findings::{Coverage, Limit};
use brownout_model::{Config, Domain};
use brownout_tests::generated::{Ending, Litmus, Truth, generate};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, layout, programs, tool};
use libtest_mimic::Trial;
use serde::Deserialize;

use crate::trial;

/// The programs of an ordinary run.
const SEEDS: Range<u64> = 0..200;

/// Programs in a trial.
const CHUNK: usize = 10;

/// Chooses other programs.
/// Scripts that are tried under eADR, too.
const EADR_SEEDS: u64 = 40;
const SEED_VARIABLE: &str = "BROWNOUT_SEED";

pub fn trials() -> Vec<Trial> {
    let seeds = match chosen() {
        Ok(seeds) => seeds.unwrap_or(SEEDS),
        Err(error) => {
            return vec![broken("generated::seeds", &error)];
        }
    };
    // `litmus_vm` has 32-byte stores.
    let missing = !programs::processor_has(&["avx".to_owned()]);
    let mut trials: Vec<Trial> = seeds
        .clone()
        .step_by(CHUNK)
        .map(|from| {
            let chunk = from..(from + CHUNK as u64).min(seeds.end);
            let name = format!("generated::seeds_{:03}_{:03}", chunk.start, chunk.end - 1);
            trial(name, move || compare_all(chunk, Domain::X86)).with_ignored_flag(missing)
        })
        .collect();
    // Where caches survive, a crash can fall inside a store, and nowhere else is anything lost.
    let few = seeds.start..seeds.end.min(seeds.start + EADR_SEEDS);
    trials.push(
        trial("generated::eadr", move || compare_all(few, Domain::Eadr)).with_ignored_flag(missing),
    );
    trials.push(trial("generated::comparison_can_fail", comparison_can_fail));
    trials
}

/// What the variable asks for, if it is set.
fn chosen() -> Result<Option<Range<u64>>> {
    let Ok(text) = env::var(SEED_VARIABLE) else {
        return Ok(None);
    };
    let number = |text: &str| {
        text.parse::<u64>()
            .with_context(|| format!("{SEED_VARIABLE} is a number, or FROM..TO, not {text:?}"))
    };
    Ok(Some(match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => number(&text)?..number(&text)? + 1,
    }))
}

/// All of a chunk are tried, so that one failure does not hide another.
fn compare_all(seeds: Range<u64>, domain: Domain) -> Result<()> {
    tool::expect_built()?;
    let mut failures = String::new();
    for seed in seeds {
        if let Err(error) = compare_one(seed, domain) {
            let _ = writeln!(
                failures,
                "seed {seed} ({SEED_VARIABLE}={seed} runs it alone): {error:#}"
            );
        }
    }
    ensure!(failures.is_empty(), "{failures}");
    Ok(())
}

fn compare_one(seed: u64, domain: Domain) -> Result<()> {
    let litmus = Litmus::new(generate(seed))?;
    litmus.verify_recording()?;
    let config = Config {
        domain,
        ..Config::default()
    };
    let truth = litmus.brute_force(config)?;
    let explored = explore(&litmus, domain)?;
    compare(&truth, &explored).map_err(|error| {
        let script = litmus.script();
        let pool = match script.initial {
            Some(_) => "a pool with content",
            None => "a new pool",
        };
        anyhow!(
            "{error:#}\non {pool}, with {} memories:\n{script}",
            truth.images
        )
    })
}

/// What the tool found.
struct Explored {
    /// Outcomes of each failure point, in the order of the program.
    by_failure_point: BTreeMap<u64, BTreeSet<Ending>>,
    statistics: Statistics,
}

/// The part of the report that says what was done.
#[derive(Deserialize)]
struct Report {
    statistics: Statistics,
    coverage: Coverage,
}

#[derive(Clone, Debug, Deserialize)]
struct Statistics {
    failure_points: usize,
    /// Nothing was left out, as far as a script goes.
    complete: bool,
    /// For messages.
    #[serde(flatten)]
    _rest: BTreeMap<String, serde_json::Value>,
}

/// A line of the file that `--outcomes` names.
#[derive(Deserialize)]
struct OutcomeLine {
    failure_point: u64,
    /// The first event that does not happen any more, unless it is the end.
    event: Option<u64>,
    status: String,
    stdout: String,
}

fn explore(litmus: &Litmus, domain: Domain) -> Result<Explored> {
    litmus.reset()?;
    let native = litmus.program();
    let recovery = litmus.recovery_command();
    let options = [
        "--format",
        "json",
        "-o",
        "report.json",
        "--outcomes",
        "outcomes.jsonl",
        "--fail-on",
        "never",
        "--depth",
        "1",
        "--exhaustive",
        "--domain",
        domain.name(),
        "--pm",
        "pool",
        "--recover",
        &recovery,
        "--",
    ];
    let mut argv: Vec<OsString> = vec![layout::brownout().into(), "explore".into()];
    argv.extend(options.iter().map(OsString::from));
    argv.extend(native.argv.iter().cloned());
    let outcome = Invocation { argv, ..native }.run()?;
    // 3: recovery ends with an error even if nothing is lost, so that there is no verdict. The
    // outcomes are what counts here.
    ensure!(
        matches!(outcome.status, 0 | 3),
        "explore failed\n{}",
        outcome.describe()
    );
    let read = |name: &str| {
        fs::read_to_string(litmus.folder().join(name))
            .with_context(|| format!("explore wrote no {name}\n{}", outcome.describe()))
    };
    let mut report: Report = serde_json::from_str(&read("report.json")?).context("report.json")?;
    // A script says which thread is next, so that there is one interleaving only; and how a
    // recovery ends is compared, not judged.
    let is_meant = |limit: &Limit| matches!(limit, Limit::Interleaving | Limit::Unjudged);
    report.statistics.complete = report.coverage.open().iter().all(is_meant);
    let mut by_failure_point: BTreeMap<u64, BTreeSet<Ending>> = BTreeMap::new();
    let mut events: BTreeMap<u64, u64> = BTreeMap::new();
    for line in read("outcomes.jsonl")?.lines() {
        let line: OutcomeLine =
            serde_json::from_str(line).with_context(|| format!("outcomes.jsonl: {line}"))?;
        let ending = Ending {
            status: line.status,
            stdout: line.stdout,
        };
        let is_new = by_failure_point
            .entry(line.failure_point)
            .or_default()
            .insert(ending);
        ensure!(is_new, "an outcome is listed twice");
        events.insert(line.failure_point, line.event.unwrap_or(u64::MAX));
    }
    ensure!(
        events.values().is_sorted(),
        "failure points are not in the order of the run: {events:?}"
    );
    Ok(Explored {
        by_failure_point,
        statistics: report.statistics,
    })
}

fn compare(truth: &Truth, explored: &Explored) -> Result<()> {
    let statistics = &explored.statistics;
    ensure!(
        statistics.complete,
        "the exploration is not complete: {statistics:?}"
    );
    ensure!(
        statistics.failure_points == explored.by_failure_point.len(),
        "outcomes of {} failure points, not of all: {statistics:?}",
        explored.by_failure_point.len()
    );
    let expected = truth.union();
    let found: BTreeSet<Ending> = explored
        .by_failure_point
        .values()
        .flatten()
        .cloned()
        .collect();
    if expected != found {
        let mut message = String::from("outcomes differ\n");
        for (what, endings) in [
            ("missing", expected.difference(&found)),
            ("extra", found.difference(&expected)),
        ] {
            for ending in endings {
                let positions: Vec<usize> = positions_with(truth, ending);
                let _ = writeln!(
                    message,
                    "  {what}: {}, {:?}, possible after steps {positions:?}",
                    ending.status, ending.stdout
                );
            }
        }
        bail!("{message}{statistics:?}");
    }
    // Where a failure point lies is the tool's choice, but there must be a place of the program
    // with just these outcomes, and places must be in order.
    let mut from = 0;
    for (failure_point, endings) in &explored.by_failure_point {
        let Some(at) =
            (from..truth.by_position.len()).find(|at| truth.by_position[*at] == *endings)
        else {
            bail!(
                "failure point {failure_point} is no place after step {from}: {endings:#?}\n{statistics:?}"
            );
        };
        from = at;
    }
    Ok(())
}

fn positions_with(truth: &Truth, ending: &Ending) -> Vec<usize> {
    (0..truth.by_position.len())
        .filter(|at| truth.by_position[*at].contains(ending))
        .collect()
}

/// The canary: outcomes that are missing, invented or at the wrong place are noticed.
fn comparison_can_fail() -> Result<()> {
    let ending = |status: &str| Ending {
        status: status.to_owned(),
        stdout: String::new(),
    };
    let (first, second) = (ending("exit code 0"), ending("signal 11"));
    let truth = Truth {
        by_position: vec![
            BTreeSet::from([first.clone()]),
            BTreeSet::from([first.clone(), second.clone()]),
            BTreeSet::from([second.clone()]),
        ],
        images: 2,
    };
    let judged = |points: &[&[&Ending]], complete| {
        let by_failure_point = (0..)
            .zip(points)
            .map(|(number, endings)| (number, endings.iter().copied().cloned().collect()))
            .collect();
        let statistics = Statistics {
            failure_points: points.len(),
            complete,
            _rest: BTreeMap::new(),
        };
        let explored = Explored {
            by_failure_point,
            statistics,
        };
        compare(&truth, &explored)
    };
    judged(&[&[&first, &second], &[&second]], true)?;
    judged(&[&[&first], &[&first, &second]], true)?;
    ensure!(
        judged(&[&[&first], &[&second]], false).is_err(),
        "cut short"
    );
    ensure!(judged(&[&[&first]], true).is_err(), "missing");
    let third = ending("exit code 1");
    ensure!(
        judged(&[&[&first, &second], &[&third]], true).is_err(),
        "extra"
    );
    ensure!(
        judged(&[&[&second], &[&first, &second]], true).is_err(),
        "order"
    );
    Ok(())
}

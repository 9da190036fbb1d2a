//! `cargo xtask bench mutants`: how long `brownout fuzz` takes to find what an edit has broken in
//! libpmemobj's examples.
//!
//! `explore`'s tests are told the commands that reach the edited code. Here a campaign has to find
//! them, from two commands on a pool that was made beforehand. A mutant is found when a correctness
//! finding blames the function that it is known to show in.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Severity};
use brownout_tests::mutants::{self, Expectation, Mutant, Scenario};
use brownout_tests::{examples, layout};
use serde_json::Value;

use super::Options;
use super::places::Places;
use crate::shell;

/// A campaign that takes longer has not found it.
const GOAL: Duration = Duration::from_secs(180);
/// What to begin with: these show few of the mutants.
const MAP_SEED: &str = "i 1\nr 1\n";
/// What recovery does with a map: it goes on working, and looks.
const MAP_AFTER: &str = "i 100\nc 1\nc 2\nc 3\nc 4\nc 5\nc 6\nc 7\nc 8\n";
const QUEUE_LOOP: &str = "while read -r line; do \"$0\" pool $line || exit 1; done";
const QUEUE_SEED: &str = "enqueue one\nshow\n";

pub fn bench(options: &Options) -> Result<()> {
    let harmful = |mutant: &&Mutant| matches!(mutant.expectation, Expectation::Found { .. });
    let all: Vec<&Mutant> = mutants::ALL.iter().filter(harmful).collect();
    let names = all.iter().map(|mutant| mutant.name.to_owned()).collect();
    let wanted = options.select(names, |name| name)?;
    let limit = if options.quick { GOAL / 6 } else { GOAL };
    println!("| mutant | found after | by | seed shows it |\n|---|---:|---|---|");
    let mut times: Vec<f64> = Vec::new();
    let mut count = 0;
    for mutant in all {
        if !wanted.iter().any(|name| name == mutant.name) {
            continue;
        }
        count += 1;
        match hunt(mutant, limit).with_context(|| mutant.name.to_owned())? {
            Some(found) => {
                let seconds = found.after.as_secs_f64();
                times.push(seconds);
                let by_seed = if found.by_seed { "yes" } else { "no" };
                println!(
                    "| {} | {seconds:.1} s | {} | {by_seed} |",
                    mutant.name, found.rule
                );
            }
            None => println!("| {} | not in {} s | | |", mutant.name, limit.as_secs()),
        }
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
    println!(
        "\n{} of {count} found, the median after {median:.1} s (goal: all but two, the median below 60 s)",
        times.len()
    );
    Ok(())
}

pub(super) struct Found {
    pub after: Duration,
    pub rule: String,
    pub by_seed: bool,
}

/// Ends a campaign that is no longer needed.
pub(super) struct Campaign(pub Child);

impl Drop for Campaign {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hunt(mutant: &Mutant, limit: Duration) -> Result<Option<Found>> {
    let Expectation::Found { blamed } = mutant.expectation else {
        return Ok(None);
    };
    let places = Places::new()?;
    let folder = places.pools.join("");
    let binary = mutant.build(places.scratch.path())?;
    let program = binary.to_string_lossy();
    let text = shell::quoted(&program);
    let maker = examples::binary("@mkpool")?;
    let maker = maker.to_string_lossy();
    let make = shell::quoted(&maker);
    let (seed, setup, recover, words) = match mutant.scenario {
        // Where it matters, the map is not made beforehand. The seed of the hash functions is the
        // same on every run.
        Scenario::Map { map, before, .. } => (
            MAP_SEED,
            match before {
                Some(_) => format!("{make} pool map && {text} {map} pool 1 < /dev/null"),
                None => format!("{make} pool map"),
            },
            format!("{text} {map} pool 1 < after"),
            [&*program, map, "pool", "1"].map(str::to_owned),
        ),
        Scenario::Steps { .. } => (
            QUEUE_SEED,
            format!("{make} pool queue && {text} pool new 20"),
            format!("{text} pool show"),
            // It has a command in its arguments, one at a time.
            ["sh", "-c", QUEUE_LOOP, &program].map(str::to_owned),
        ),
    };
    fs::write(folder.join("seed"), seed)?;
    // `p` shows the count of some; of a radix tree it shows inner nodes, too, which are nobody's
    // business.
    let print = match mutant.scenario {
        Scenario::Map { map: "rtree", .. } => "",
        _ => "p\n",
    };
    fs::write(folder.join("after"), format!("{MAP_AFTER}{print}"))?;
    let child = Command::new(layout::brownout())
        .current_dir(&folder)
        .args(["fuzz", "--out", "out", "--seeds", "seed", "--pm", "pool"])
        .args([
            "--setup",
            &setup,
            "--recover",
            &recover,
            "--time",
            &format!("{}s", limit.as_secs()),
        ])
        .arg("--")
        .args(words)
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("log"))?)
        .spawn()
        .context("cannot run brownout")?;
    Campaign(child).hunt(&folder, |finding| {
        let is_it = |event| mutants::is_in(mutant.file, blamed, event);
        finding.severity == Severity::Correctness && finding.events.iter().any(is_it)
    })
}

impl Campaign {
    /// Waits until a campaign in `out` has found it, or has ended. What it prints is in `log`.
    pub(super) fn hunt(
        &mut self,
        folder: &Path,
        is_it: impl Fn(&Finding) -> bool,
    ) -> Result<Option<Found>> {
        let begun = Instant::now();
        loop {
            // Whatever it has found, it has written before it ends.
            let ended = self.0.try_wait()?;
            if let Some(mut found) = look(&folder.join("out/findings"), &is_it)? {
                found.after = begun.elapsed();
                return Ok(Some(found));
            }
            if let Some(status) = ended {
                let log = fs::read_to_string(folder.join("log"))?;
                ensure!(matches!(status.code(), Some(0 | 1)), "{log}");
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The finding that is wanted, if it is there.
fn look(findings: &Path, is_it: &impl Fn(&Finding) -> bool) -> Result<Option<Found>> {
    let Ok(entries) = fs::read_dir(findings) else {
        return Ok(None);
    };
    for entry in entries {
        let text = fs::read(entry?.path())?;
        // It may be half written.
        let Ok(value) = serde_json::from_slice::<Value>(&text) else {
            continue;
        };
        let finding: Finding = serde_json::from_value(value["finding"].clone())?;
        if is_it(&finding) {
            return Ok(Some(Found {
                after: Duration::ZERO,
                rule: finding.rule.as_str().to_owned(),
                by_seed: value["by_seed"] == true,
            }));
        }
    }
    Ok(None)
}

//! `cargo xtask bench mutants`: how long `brownout fuzz` takes to find what an edit has broken in
//! libpmemobj's examples.
//!
//! `explore`'s tests are told the commands that reach the edited code. Here a campaign has to find
//! them, from two commands on a pool that was made beforehand. A mutant is found when a correctness
//! finding blames the function that it is known to show in. What is found after the deadline does
//! not count, nor what the two commands show by themselves, or a crash of them.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use brownout_findings::Severity;
use brownout_tests::mutants::{self, Expectation, Mutant, Scenario};
use brownout_tests::{examples, layout};

use super::Options;
use super::campaigns::{Campaign, Found, SEED};
use super::places::Places;
use crate::shell;

/// A campaign that takes longer has not found it.
const GOAL: Duration = Duration::from_secs(180);
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
    let (mut count, mut by_seed) = (0, 0);
    for mutant in all {
        if !wanted.iter().any(|name| name == mutant.name) {
            continue;
        }
        count += 1;
        match hunt(mutant, limit).with_context(|| mutant.name.to_owned())? {
            Some(found) => {
                let seconds = found.after.as_secs_f64();
                if found.counts(limit) {
                    times.push(seconds);
                }
                by_seed += u32::from(found.by_seed);
                println!(
                    "| {} | {seconds:.1} s | {} | {} |",
                    mutant.name,
                    found.rule,
                    found.by_seed()
                );
            }
            None => println!("| {} | not in {} s | | |", mutant.name, limit.as_secs()),
        }
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
    println!(
        "\n{} of {count} found in time, and not by the seed, the median after {median:.1} s (goal: all but two, the median below 60 s); the seed shows {by_seed}",
        times.len()
    );
    Ok(())
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
            SEED,
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

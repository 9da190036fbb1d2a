//! `cargo xtask bench fuzz`: how many executions a second, and what campaigns reach.
//!
//! - **Speed**: one test case of ten commands on an existing pool, again and again, with all
//!   detectors on, against native launches (`crates/fuzz/examples/speed.rs`), on one processor.
//! - **Reach**: campaigns of equal time on each map, from the same two commands: as they are, with
//!   edges alone and no images, with images whose bytes are flipped, and by AFL++ (`afl.rs`). What
//!   counts is PM paths: pairs of PM operations that follow each other, in runs and in recoveries.
//! - **Growth**: executions a second in each tenth of a campaign, beside how many PM paths it had
//!   reached by then.
//! - **Known bugs** of libpmemobj's examples that commands trigger, from seeds that show none of
//!   them: how long until each is found.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use brownout_findings::Finding;
use brownout_tests::check::is_at_line;
use brownout_tests::layout;
use serde_json::Value;

use super::Options;
use super::afl;
use super::mutants::Campaign;
use super::places::Places;
use crate::shell;

/// Ten commands of `mapcli`.
const COMMANDS: &str = "i 21\ni 26\ni 5\ni 7\ni 4\nr 7\nc 26\nr 4\ni 16\nr 26\n";
const SEED: &str = "i 1\nr 1\n";
const MAPS: [&str; 7] = [
    "btree",
    "rbtree",
    "rtree",
    "skiplist",
    "hashmap_tx",
    "hashmap_atomic",
    "hashmap_rp",
];
/// What is compared: a name, and the options.
const WAYS: [(&str, &[&str]); 3] = [
    ("as it is", &[]),
    (
        "edges, no images",
        &["--feedback", "edges", "--images", "none"],
    ),
    ("flipped images", &["--images", "mutate"]),
];

/// What AFL++ is called in the table.
const AFL: &str = "AFL++";

pub fn bench(options: &Options) -> Result<()> {
    let maps = options.select(MAPS.map(str::to_owned).to_vec(), |map| map)?;
    let afl = afl::Program::build()?;
    speed(options)?;
    growth(options)?;
    known(options)?;
    let (seconds, rounds) = match options.quick {
        true => (10, 1),
        false => (60, 3),
    };
    println!(
        "\n| map | way | PM paths | half, 90 %, all after | executions a second |\n|---|---|---:|---:|---:|"
    );
    let ways = WAYS.iter().map(|(name, _)| *name).chain([AFL]);
    let mut ratios: Vec<(&str, Vec<f64>)> = ways.map(|name| (name, Vec::new())).collect();
    for map in &maps {
        let mut first = 0.0;
        for (name, ratios) in &mut ratios {
            let words = WAYS.iter().find(|(way, _)| way == name);
            let mut all = Vec::new();
            for round in 0..rounds {
                all.push(match words {
                    Some((_, words)) => campaign(map, words, seconds, round)?,
                    None => by_afl(&afl, map, seconds)?,
                });
            }
            all.sort_by(|one, other| one.paths.total_cmp(&other.paths));
            let median = &all[all.len() / 2];
            println!(
                "| {map} | {name} | {} | {} | {:.0} |",
                median.paths, median.times, median.speed
            );
            match *name == WAYS[0].0 {
                true => first = median.paths,
                false => ratios.push(first / median.paths.max(1.0)),
            }
        }
    }
    println!();
    for (name, ratios) in ratios.iter().skip(1) {
        let product: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        let mean = (product / ratios.len().max(1) as f64).exp();
        println!("PM paths against {name}: {mean:.2} times (geometric mean)");
    }
    println!("The goal is 5 times against edges without images.");
    Ok(())
}

/// A bug of libpmemobj's examples that commands trigger.
struct Bug {
    map: &'static str,
    /// Commands that do not show it.
    seed: &'static str,
    rule: &'static str,
    file: &'static str,
    line: u32,
}

/// Of `btree` and `rbtree` the seed inserts nothing, or one key.
const KNOWN: [Bug; 7] = [
    bug("btree", SEED, "duplicate-log", "btree_map.c", 249),
    bug("btree", SEED, "duplicate-log", "btree_map.c", 309),
    bug("btree", SEED, "duplicate-log", "btree_map.c", 359),
    bug("rbtree", "c 1\n", "fresh-log", "rbtree_map.c", 200),
    bug("rbtree", "c 1\n", "fresh-log", "rbtree_map.c", 255),
    bug("rbtree", SEED, "duplicate-log", "rbtree_map.c", 226),
    bug(
        "hashmap_atomic",
        "i 1\nc 1\n",
        "recovery-crash",
        "hashmap_atomic.c",
        169,
    ),
];

const fn bug(
    map: &'static str,
    seed: &'static str,
    rule: &'static str,
    file: &'static str,
    line: u32,
) -> Bug {
    Bug {
        map,
        seed,
        rule,
        file,
        line,
    }
}

/// How long it takes to find each known bug. A campaign that takes longer than 90 seconds has not
/// found it.
fn known(options: &Options) -> Result<()> {
    let limit = if options.quick { 20 } else { 90 };
    println!("\n| known bug | found after | seed shows it |\n|---|---:|---|");
    let mut found = 0;
    for bug in &KNOWN {
        let places = Places::new()?;
        let folder = places.pools.join("");
        fs::write(folder.join("seed"), bug.seed)?;
        let mut command = campaign_of(bug.map, &folder);
        command
            .args(["--seeds", "seed", "--time", &format!("{limit}s"), "--"])
            .args([layout::examples().join("mapcli").as_os_str()])
            .args([bug.map, "pool"])
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log"))?);
        let child = command.spawn().context("cannot run brownout")?;
        let is_it = |finding: &Finding| {
            let is_there = |event| is_at_line(event, bug.file, bug.line);
            finding.rule.as_str() == bug.rule && finding.events.iter().any(is_there)
        };
        let name = format!("{}:{} {}", bug.file, bug.line, bug.rule);
        match Campaign(child).hunt(&folder, is_it)? {
            Some(by) => {
                found += 1;
                let by_seed = if by.by_seed { "yes" } else { "no" };
                println!("| {name} | {:.1} s | {by_seed} |", by.after.as_secs_f64());
            }
            None => println!("| {name} | not in {limit} s | |"),
        }
    }
    println!(
        "\n{found} of {} found (goal: each within 90 s)",
        KNOWN.len()
    );
    Ok(())
}

/// Whether executions become slower as the corpus grows.
fn growth(options: &Options) -> Result<()> {
    let seconds = if options.quick { 20 } else { 120 };
    let places = Places::new()?;
    let folder = places.pools.join("");
    fs::write(folder.join("seed"), SEED)?;
    statistics(
        "btree",
        &folder,
        &["--seeds", "seed", "--time", &format!("{seconds}s")],
    )?;
    let course = fs::read_to_string(folder.join("out/course"))?;
    let moments = course.lines().filter_map(|line| {
        let moment: Value = serde_json::from_str(line).ok()?;
        let paths = moment["coverage"].as_array()?.first()?[1].as_u64()?;
        let executions = moment["executions"].as_f64()?;
        Some((moment["seconds"].as_f64()?, executions, paths))
    });
    let moments: Vec<_> = moments.collect();
    println!("\n| after | PM paths | executions a second since the row above |\n|---:|---:|---:|");
    let mut last = (0.0, 0.0);
    for tenth in 1..=10 {
        let until = f64::from(tenth * seconds) / 10.0;
        let moment = moments.iter().rfind(|(time, ..)| *time <= until);
        let Some((time, executions, paths)) = moment.filter(|(time, ..)| *time > last.0) else {
            continue;
        };
        let rate = (executions - last.1) / (time - last.0);
        println!("| {time:.0} s | {paths} | {rate:.0} |");
        last = (*time, *executions);
    }
    Ok(())
}

/// What a campaign came to.
struct Reached {
    paths: f64,
    /// When half, nine tenths and all of its paths were reached.
    times: String,
    speed: f64,
}

impl Reached {
    fn of(statistics: &Value, seconds: u32) -> Reached {
        let figure = |name: &str| statistics["figures"][name].as_f64().unwrap_or(0.0);
        let paths = figure("paths") + figure("openings");
        let reached = statistics["reached"].as_array();
        let reached = reached.map_or(&[][..], Vec::as_slice);
        let time_of = |share: f64| {
            let enough = |point: &&Value| point[1].as_f64() >= Some(share * paths);
            let point = reached.iter().find(enough);
            let at = point.and_then(|point| point[0].as_f64());
            at.map_or("?".to_owned(), |at| format!("{at:.0} s"))
        };
        let executions = statistics["executions"].as_f64().unwrap_or(0.0);
        Reached {
            paths,
            times: [0.5, 0.9, 1.0].map(time_of).join(", "),
            speed: executions / f64::from(seconds),
        }
    }
}

fn speed(options: &Options) -> Result<()> {
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--quiet",
        // With the features that tests have, so that dependencies are not built once more.
        "--workspace",
        "--example",
        "speed",
    ]))?;
    let places = Places::new()?;
    let mapcli = layout::examples().join("mapcli");
    let commands = places.scratch.join("commands");
    fs::write(&commands, COMMANDS)?;
    let pool = places.pools.join("btree.pool");
    let made = Command::new(&mapcli)
        .args(["btree".as_ref(), pool.as_os_str()])
        .stdin(Stdio::null())
        .output()
        .context("cannot run mapcli")?;
    ensure!(made.status.success(), "mapcli cannot make a pool");
    let runs = if options.quick { "200" } else { "2000" };
    // One processor: what two workers get, each has.
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0"])
        .arg(layout::target().join("release/examples/speed"))
        .args([runs.as_ref(), pool.as_os_str(), commands.as_os_str()])
        .args([mapcli.as_os_str(), "btree".as_ref(), pool.as_os_str()]);
    shell::run(&mut command)
}

/// A campaign of the tool.
fn campaign(map: &str, words: &[&str], seconds: u32, round: u32) -> Result<Reached> {
    let places = Places::new()?;
    let folder = places.pools.join("");
    fs::write(folder.join("seed"), SEED)?;
    let (time, seed) = (format!("{seconds}s"), round.to_string());
    let words = [
        &["--seeds", "seed", "--time", &time, "--seed", &seed],
        words,
    ]
    .concat();
    Ok(Reached::of(&statistics(map, &folder, &words)?, seconds))
}

/// A campaign of AFL++, and its queue counted by the tool.
fn by_afl(afl: &afl::Program, map: &str, seconds: u32) -> Result<Reached> {
    let places = Places::new()?;
    let folder = places.pools.join("");
    fs::write(folder.join("seed"), SEED)?;
    let pool = folder.join("from.pool");
    let made = Command::new(layout::examples().join("mapcli"))
        .args([map.as_ref(), pool.as_os_str()])
        .stdin(Stdio::null())
        .output()
        .context("cannot run mapcli")?;
    ensure!(made.status.success(), "mapcli cannot make a pool");
    let campaign = afl.fuzz(map, &pool, &folder, seconds)?;
    let count = campaign.count.to_string();
    let inputs = campaign.inputs.to_string_lossy();
    let words = [
        "--seeds",
        &inputs,
        "--executions",
        &count,
        "--jobs",
        "1",
        "--images",
        "none",
    ];
    let reached = Reached::of(&statistics(map, &folder, &words)?, seconds);
    Ok(Reached {
        speed: 2.0 * campaign.speed,
        times: String::new(),
        ..reached
    })
}

/// The statistics of a campaign.
fn statistics(map: &str, folder: &Path, words: &[&str]) -> Result<Value> {
    let mapcli = layout::examples().join("mapcli");
    let mut command = campaign_of(map, folder);
    command
        .args([
            "--fail-on",
            "never",
            "--format",
            "json",
            "-o",
            "report.json",
        ])
        .args(words)
        .arg("--")
        .arg(&mapcli)
        .args([map, "pool"]);
    let ran = command.output().context("cannot run brownout")?;
    ensure!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let report: Value = serde_json::from_slice(&fs::read(folder.join("report.json"))?)?;
    Ok(report["statistics"].clone())
}

/// The beginning of a campaign on a map in a folder, whose pool is there already.
fn campaign_of(map: &str, folder: &Path) -> Command {
    let mapcli = layout::examples().join("mapcli");
    let text = mapcli.to_string_lossy();
    let create = format!("{} {map} pool < /dev/null", shell::quoted(&text));
    let mut command = Command::new(layout::brownout());
    command
        .current_dir(folder)
        .args(["fuzz", "--out", "out"])
        .args(["--setup", &create, "--pm", "pool"]);
    command
}

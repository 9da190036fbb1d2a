//! `cargo xtask bench fuzz`: how many executions a second, and what campaigns reach.
//!
//! - **Speed**: one test case of ten commands on an existing pool, again and again, with all
//!   detectors on, against native launches (`crates/fuzz/examples/speed.rs`) and against AFL++'s
//!   fork server (`afl.rs`), on one processor.
//! - **Reach**: campaigns of equal time on each map, from the same two commands: as they are, with
//!   edges alone and no images, with images whose bytes are flipped, and by AFL++ (`afl.rs`). What
//!   counts is PM paths: pairs of PM operations that follow each other, in runs and in recoveries.
//! - **Growth**: executions a second in each tenth of a campaign, beside how many PM paths it had
//!   reached by then.
//! - **Known bugs** of libpmemobj's examples that commands trigger, from seeds that show none of
//!   them: how long until each is found (`known.rs`).
//! - **Clean**: programs that are right. A correctness finding is a failure (`clean.rs`).
//! - **Storage**: what a long campaign leaves on the disk, and whether all of it can be used
//!   (`storage.rs`).
//!
//! `--part NAME` selects one of them, and can be given several times; the last two, which take
//! hours, have to be asked for. `--only NAME` selects programs in those parts that have several.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::Report;
use brownout_tests::layout;
use serde_json::Value;

use super::Options;
use super::campaigns::{SEED, report_of_map};
use super::places::Places;
use super::{afl, clean, known, storage};
use crate::shell;

/// Ten commands of `mapcli`.
const COMMANDS: &str = "i 21\ni 26\ni 5\ni 7\ni 4\nr 7\nc 26\nr 4\ni 16\nr 26\n";
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

/// What can be asked for.
const PARTS: [&str; 6] = ["speed", "growth", "known", "reach", "clean", "storage"];
/// The others take hours.
const DEFAULT: [&str; 4] = ["speed", "growth", "known", "reach"];

pub fn bench(options: &Options) -> Result<()> {
    let parts = options.select_parts(&PARTS, &DEFAULT)?;
    let all = MAPS.map(str::to_owned).to_vec();
    let is_wanted = |name: &str| {
        let only = options.only.as_ref();
        only.is_none_or(|only| name.contains(only.as_str()))
    };
    let maps: Vec<String> = all.into_iter().filter(|map| is_wanted(map)).collect();
    for part in parts {
        match part {
            "speed" => speed(options)?,
            "growth" => growth(options)?,
            "known" => known::bench(options)?,
            "reach" => reach(options, &maps)?,
            "clean" => clean::bench(options, &maps)?,
            "storage" => storage::bench(options)?,
            other => bail!("{other} is in no list"),
        }
    }
    Ok(())
}

/// What campaigns reach.
fn reach(options: &Options, maps: &[String]) -> Result<()> {
    ensure!(!maps.is_empty(), "no map has that in its name");
    let afl = afl::Program::build()?;
    let (seconds, rounds) = match options.quick {
        true => (10, 1),
        false => (60, 3),
    };
    println!(
        "\n| map | way | PM paths | half, 90 %, all after | executions a second |\n|---|---|---:|---:|---:|"
    );
    let ways = WAYS.iter().map(|(name, _)| *name).chain([AFL]);
    let mut ratios: Vec<(&str, Vec<f64>)> = ways.map(|name| (name, Vec::new())).collect();
    for map in maps {
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

/// Whether executions become slower as the corpus grows.
fn growth(options: &Options) -> Result<()> {
    let seconds = if options.quick { 20 } else { 120 };
    let places = Places::new()?;
    let folder = places.pools.join("");
    fs::write(folder.join("seed"), SEED)?;
    let words = ["--seeds", "seed", "--time", &format!("{seconds}s")];
    report_of_map("btree", &folder, &words)?;
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
    fn of(report: &Report, seconds: u32) -> Reached {
        let statistics = Value::from(report.statistics.clone());
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
    let runs = if options.quick { 200 } else { 2000 };
    // One processor: what two workers get, each has.
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0"])
        .arg(layout::target().join("release/examples/speed"))
        .args([runs.to_string().as_ref(), pool.as_os_str()])
        .args([commands.as_os_str(), mapcli.as_os_str()])
        .args(["btree".as_ref(), pool.as_os_str()]);
    shell::run(&mut command)?;
    let afl = afl::Program::build()?;
    let each = afl.run_seconds("btree", &pool, COMMANDS, runs)?;
    println!(
        "{AFL}'s fork server, with a fresh pool each time: {:.0} a second ({:.2} ms each).",
        1.0 / each,
        each * 1e3
    );
    println!(
        "The goal is 300 a second, 4 times as many as launched natively, and no fewer than {AFL}."
    );
    Ok(())
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
    Ok(Reached::of(&report_of_map(map, &folder, &words)?, seconds))
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
    let reached = Reached::of(&report_of_map(map, &folder, &words)?, seconds);
    Ok(Reached {
        speed: 2.0 * campaign.speed,
        times: String::new(),
        ..reached
    })
}

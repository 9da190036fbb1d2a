//! `cargo xtask bench fuzz`: how many executions a second, and what campaigns reach.
//!
//! - **Speed**: one test case of ten commands on an existing pool, again and again, with all
//!   detectors on, against native launches (`crates/fuzz/examples/speed.rs`), on one processor.
//! - **Reach**: campaigns of equal time on each map, from the same two commands: as they are, with
//!   edges alone and no images, and with images whose bytes are flipped. What counts is PM paths: pairs of
//!   PM operations that follow each other, in runs and in recoveries.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use brownout_tests::layout;
use serde_json::Value;

use super::Options;
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

pub fn bench(options: &Options) -> Result<()> {
    let maps = options.select(MAPS.map(str::to_owned).to_vec(), |map| map)?;
    speed(options)?;
    let (seconds, rounds) = match options.quick {
        true => (10, 1),
        false => (60, 3),
    };
    println!("\n| map | way | PM paths | situations | executions |\n|---|---|---:|---:|---:|");
    let mut ratios: Vec<f64> = Vec::new();
    for map in &maps {
        let mut first = 0.0;
        for (name, words) in WAYS {
            let mut paths = Vec::new();
            let mut last = Value::Null;
            for round in 0..rounds {
                let statistics = campaign(map, words, seconds, round)?;
                let figure = |name: &str| statistics["figures"][name].as_f64().unwrap_or(0.0);
                paths.push(figure("paths") + figure("openings"));
                last = statistics;
            }
            paths.sort_by(f64::total_cmp);
            let median = paths[paths.len() / 2];
            println!(
                "| {map} | {name} | {median} | {} | {} |",
                last["figures"]["situations"], last["executions"]
            );
            match name {
                "as it is" => first = median,
                "edges, no images" if median > 0.0 => ratios.push(first / median),
                _ => {}
            }
        }
    }
    let product: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let mean = (product / ratios.len().max(1) as f64).exp();
    println!("\nPM paths against edges without images: {mean:.2} times (geometric mean; goal 5)");
    Ok(())
}

fn speed(options: &Options) -> Result<()> {
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "brownout-fuzz",
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

/// The statistics of a campaign.
fn campaign(map: &str, words: &[&str], seconds: u32, round: u32) -> Result<Value> {
    let places = Places::new()?;
    let folder = places.pools.join("");
    fs::write(folder.join("seed"), SEED)?;
    let mapcli = layout::examples().join("mapcli");
    let text = mapcli.to_string_lossy();
    let create = format!("{} {map} pool < /dev/null", shell::quoted(&text));
    let mut command = Command::new(layout::brownout());
    command
        .current_dir(&folder)
        .args(["fuzz", "--out", "out", "--seeds", "seed"])
        .args(["--setup", &create, "--pm", "pool"])
        .args([
            "--time",
            &format!("{seconds}s"),
            "--seed",
            &round.to_string(),
        ])
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

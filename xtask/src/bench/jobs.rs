//! `cargo xtask bench jobs`: what a second job gains `brownout explore`, for programs that must be
//! alone.
//!
//! ```text
//!  alone.c ─▶ (explore --jobs 1, explore) × N ─▶ seconds, processor seconds, how many times as fast
//! ```
//!
//! Each program is explored with a recovery that does little and with one that does much. With one
//! job the program, its events and the search still overlap, so that one job keeps more than one
//! processor busy. Two processors can then make an exploration at most as many times as fast as
//! they have time for: twice its seconds by its processor seconds. That bound is printed beside
//! what was reached.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brownout_tests::layout;
use serde_json::json;

use super::common::{Options, Side, expect_success, median, seconds, set_surroundings};
use super::places::Places;

const SOURCE: &str = include_str!("alone.c");
/// How many records are stored: two failure points each.
const RECORDS: &str = "300";
const RECORDS_QUICK: &str = "100";
/// Thousands of steps after looking at the records, each some nanosecond: hardly anything, and
/// about ten milliseconds.
const LITTLE: &str = "0";
const MUCH: &str = "10000";
/// Free on most machines; each recovery has a network of its own.
const PORT: &str = "47113";
const POOL_BYTES: u64 = 64 * 4097;

struct Case {
    name: String,
    alone_by: &'static str,
    work: &'static str,
}

#[derive(Default)]
struct Measured {
    walls: [Vec<Duration>; 2],
    processor: [Vec<Duration>; 2],
}

/// Runs it and prints the table.
pub fn bench(options: &Options) -> Result<()> {
    let cases = options.select(cases(), |case| &case.name)?;
    let places = Places::new()?;
    let source = places.scratch.join("alone.c");
    fs::write(&source, SOURCE)?;
    let program = places.scratch.join("alone");
    let compiled = Command::new("gcc")
        .args(["-O2", "-g", "-o"])
        .args([&program, &source])
        .output()
        .context("cannot run gcc")?;
    expect_success("gcc", Side::Native, &compiled)?;
    let pool = places.pools.join("pool");
    fs::write(&pool, vec![0; POOL_BYTES as usize])?;
    let records = if options.quick {
        RECORDS_QUICK
    } else {
        RECORDS
    };

    let mut measured: Vec<Measured> = cases.iter().map(|_| Measured::default()).collect();
    for round in 0..=options.rounds() {
        for (case, measured) in cases.iter().zip(&mut measured) {
            for (index, jobs) in [Some("1"), None].into_iter().enumerate() {
                let recover = format!(
                    "{} {} {} recover {}",
                    program.display(),
                    case.alone_by,
                    pool.display(),
                    case.work
                );
                let mut command = Command::new(layout::brownout());
                set_surroundings(&mut command, places.scratch.path());
                command.args(["explore", "--pm"]).arg(&pool);
                command.args(["--recover", &recover]);
                command.args(jobs.iter().flat_map(|jobs| ["--jobs", jobs]));
                command.arg("--").arg(&program).arg(case.alone_by);
                command.arg(&pool).args(["store", records]);
                let (before, begun) = (processor_time()?, Instant::now());
                let output = command.output().context("cannot run brownout")?;
                let (wall, after) = (begun.elapsed(), processor_time()?);
                expect_success(&case.name, Side::Tool, &output)?;
                if round > 0 {
                    measured.walls[index].push(wall);
                    measured.processor[index].push(after - before);
                }
            }
        }
        eprintln!("round {round} of {} done", options.rounds());
    }

    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "\nMedians of {} rounds, {processors} processors; nothing was found in any of them:\n",
        options.rounds()
    );
    println!(
        "| program | one job, s | processor, s | default jobs, s | processor, s | times as fast | at most |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let mut rows = Vec::new();
    for (case, Measured { walls, processor }) in cases.iter().zip(&measured) {
        let [one, all] = [0, 1].map(|index| median(&walls[index]));
        let [one_busy, all_busy] = [0, 1].map(|index| median(&processor[index]));
        println!(
            "| {} | {one:.2} | {one_busy:.2} | {all:.2} | {all_busy:.2} | {:.2} | {:.2} |",
            case.name,
            one / all,
            one * processors as f64 / one_busy
        );
        rows.push(json!({
            "name": case.name,
            "one_job_s": seconds(&walls[0]),
            "default_jobs_s": seconds(&walls[1]),
            "one_job_processor_s": seconds(&processor[0]),
            "default_jobs_processor_s": seconds(&processor[1]),
        }));
    }
    options.write_rows(rows)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (what, alone_by) in [("lock file", "lock"), ("port", PORT)] {
        for (how, work) in [("light", LITTLE), ("heavy", MUCH)] {
            cases.push(Case {
                name: format!("{what}, {how} recovery"),
                alone_by,
                work,
            });
        }
    }
    cases
}

/// What all children that have ended have used of the processors, with all that they had started.
fn processor_time() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may have spaces in it: the state is field 3, so these are fields 16
    // and 17.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(|number| number.parse::<u64>().context("/proc/self/stat"))
        .sum::<Result<u64>>()?;
    ensure!(behind.len() > 20, "/proc/self/stat is short");
    // A hundred ticks a second, on every x86-64 kernel there is.
    Ok(Duration::from_millis(10 * ticks))
}

//! `cargo xtask bench symex`: how long `brownout symex` takes to find, from blanks, what is wrong
//! with the programs in `tests/symex`, by strategy; and how many paths a second it runs of
//! libpmemobj's maps.
//!
//! ```text
//!  wrong builds × strategies × seeds ─▶ symex, until found ─▶ seconds, paths, divergence
//!  mapcli × types                    ─▶ symex, for a while ─▶ paths a second, divergence, where the time went
//! ```
//!
//! The maps' pool is made by the set-up; the program then reads blanks, as many as three commands
//! need. One run of each is made: a seed decides what is left to chance, but what fits into the
//! time differs from run to run.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use brownout_tests::layout;
use brownout_tests::symex::{self, Build};
use serde_json::{Value, json};

use super::common::{Options, median_of};
use super::places::Places;
use crate::{build, shell};

/// What a search may take.
const HUNT: Duration = Duration::from_secs(60);
const HUNT_QUICK: Duration = Duration::from_secs(20);
const MAPS: Duration = Duration::from_secs(20);
const MAPS_QUICK: Duration = Duration::from_secs(5);

const STRATEGIES: [&str; 4] = ["pm", "coverage", "depth-first", "random"];
/// The same for all strategies, since chance decides much.
const SEEDS: [u32; 3] = [0, 1, 2];
const SEEDS_QUICK: [u32; 1] = [0];
/// Those of the programs that read commands from their standard input, and the build with a bug
/// that can be found. (The others get their input in other ways.)
const HUNTED: [(&str, Build); 8] = [
    ("fields", Build::Bug),
    ("lines", Build::Bug),
    ("numbers", Build::Bug),
    ("order", Build::BugAfterOne),
    ("records", Build::Bug),
    ("scan", Build::Bug),
    ("tokens", Build::Bug),
    ("words", Build::Bug),
];
/// So many blanks are enough for three commands of each program.
const BYTES: &str = "36";
const MAP_BYTES: &str = "18";
const MAP_TYPES: [&str; 8] = [
    "ctree",
    "btree",
    "rbtree",
    "rtree",
    "skiplist",
    "hashmap_tx",
    "hashmap_atomic",
    "hashmap_rp",
];
const PATHS_GOAL: f64 = 50.0;

/// A program whose paths are counted, or of which a build is searched for its bug.
struct Case {
    name: String,
    build: Option<Build>,
}

/// Runs it and prints the tables.
pub fn bench(options: &Options) -> Result<()> {
    build::symex_programs()?;
    let programs = HUNTED.map(|(name, build)| Case {
        name: name.to_owned(),
        build: Some(build),
    });
    let maps = MAP_TYPES.map(|name| Case {
        name: format!("mapcli {name}"),
        build: None,
    });
    let cases: Vec<Case> = programs.into_iter().chain(maps).collect();
    let (programs, maps): (Vec<Case>, Vec<Case>) = options
        .select(cases, |case| &case.name)?
        .into_iter()
        .partition(|case| case.build.is_some());
    let mut rows = found(&programs, options.quick)?;
    rows.extend(speed(&maps, options.quick)?);
    options.write_rows(rows)
}

/// What came of one search.
struct Search {
    report: Value,
}

impl Search {
    fn number(&self, name: &str) -> f64 {
        self.report["statistics"][name].as_f64().unwrap_or_default()
    }

    /// Seconds until an error was found.
    fn found_s(&self) -> Option<f64> {
        self.report["statistics"]["first_error_seconds"].as_f64()
    }

    /// Of runs that were solved for, how many went elsewhere, in percent.
    fn diverged(&self) -> f64 {
        100.0 * self.number("diverged") / self.number("turned").max(1.0)
    }

    fn paths_a_second(&self) -> f64 {
        self.number("paths") / self.number("seconds").max(0.001)
    }

    /// In percent of all.
    fn share(&self, name: &str) -> f64 {
        100.0 * self.number(name) / self.number("seconds").max(0.001)
    }
}

/// The wrong builds: one row for each strategy and seed.
fn found(programs: &[Case], quick: bool) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    if programs.is_empty() {
        return Ok(rows);
    }
    let (time, seeds) = match quick {
        true => (HUNT_QUICK, &SEEDS_QUICK[..]),
        false => (HUNT, &SEEDS[..]),
    };
    let mut table = format!(
        "Until found from {BYTES} blanks, at most {} s:\n\n\
         | program | strategy | seed | s | paths | paths/s | diverged % | running % | following % | solving % |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        time.as_secs()
    );
    let mut times: Vec<(&str, Vec<Option<f64>>)> =
        STRATEGIES.map(|name| (name, Vec::new())).to_vec();
    for program in programs {
        for (strategy, times) in &mut times {
            for seed in seeds {
                eprintln!("searching {} ({strategy}, seed {seed}) …", program.name);
                let build = program.build.unwrap_or(Build::Bug);
                let binary = symex::binary(&program.name, build);
                let mut command = symex_command(time);
                command
                    .args(["--stdin-symbolic", BYTES, "--until-found"])
                    .args(["--strategy", *strategy, "--seed", &seed.to_string()])
                    .arg("--")
                    .arg(binary)
                    .arg("bench.pool");
                let search = run(command, &program.name)?;
                writeln!(
                    table,
                    "| {} | {strategy} | {seed} | {} | {} | {:.0} | {:.1} | {:.0} | {:.0} | {:.0} |",
                    program.name,
                    search
                        .found_s()
                        .map_or_else(|| "no".to_owned(), |seconds| format!("{seconds:.1}")),
                    search.number("paths"),
                    search.paths_a_second(),
                    search.diverged(),
                    search.share("running_seconds"),
                    search.share("learning_seconds"),
                    search.share("solving_seconds"),
                )?;
                rows.push(json!({
                    "name": program.name, "strategy": strategy, "seed": seed, "found_s": search.found_s(), "statistics": search.report["statistics"],
                }));
                times.push(search.found_s());
            }
        }
    }
    println!("{table}");
    for (name, times) in &times {
        let known: Vec<f64> = times.iter().flatten().copied().collect();
        let median = match known.is_empty() {
            true => String::new(),
            false => format!(", the median of those after {:.1} s", median_of(&known)),
        };
        println!("{name}: {} of {} found{median}", known.len(), times.len());
    }
    println!("(goal: all found by pm; opening is part of running and following)\n");
    Ok(rows)
}

/// The maps: how fast paths are run.
fn speed(maps: &[Case], quick: bool) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    if maps.is_empty() {
        return Ok(rows);
    }
    let time = match quick {
        true => MAPS_QUICK,
        false => MAPS,
    };
    println!(
        "Maps of libpmemobj, {MAP_BYTES} blanks, {} s each (goal: {PATHS_GOAL:.0} paths/s, less than 2 % diverged):\n\n\
         | program | paths | paths/s | diverged % | PM paths | runs | launches | followed | running % | following % | opening % | solving % | findings |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        time.as_secs()
    );
    let mapcli = layout::examples().join("mapcli");
    for map in maps {
        eprintln!("searching {} …", map.name);
        let kind = map.name.trim_start_matches("mapcli ");
        let word = mapcli.to_string_lossy();
        let word = shell::quoted(&word);
        let mut command = symex_command(time);
        command
            .args(["--stdin-symbolic", MAP_BYTES])
            .args(["--setup", &format!("{word} {kind} bench.pool </dev/null")])
            .arg("--")
            .arg(&mapcli)
            .args([kind, "bench.pool"]);
        let search = run(command, &map.name)?;
        let findings = search.report["findings"].as_array().map_or(0, Vec::len);
        println!(
            "| {} | {} | {:.0} | {:.1} | {} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {findings} |",
            map.name,
            search.number("paths"),
            search.paths_a_second(),
            search.diverged(),
            search.number("pm_paths"),
            search.number("runs"),
            search.number("launches"),
            search.number("learned"),
            search.share("running_seconds"),
            search.share("learning_seconds"),
            search.share("opening_seconds"),
            search.share("solving_seconds"),
        );
        rows.push(json!({
            "name": map.name, "findings": findings, "statistics": search.report["statistics"],
        }));
    }
    println!();
    Ok(rows)
}

/// `brownout symex`, with all that is the same for all cases.
fn symex_command(time: Duration) -> Command {
    let mut command = Command::new(layout::brownout());
    command
        .args(["symex", "--no-config", "--pm", "*.pool"])
        .args(["--time", &format!("{}s", time.as_secs())])
        .args(["--format", "json", "-o", "report.json"]);
    command
}

/// Runs a search in a folder of its own.
fn run(mut command: Command, name: &str) -> Result<Search> {
    let places = Places::new()?;
    let folder = places.scratch.path();
    let log = folder.join("log");
    let status = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?)
        .status()
        .context("cannot run brownout")?;
    let text = fs::read(places.report()).with_context(|| {
        let log = fs::read_to_string(&log).unwrap_or_default();
        format!("the search of {name} left no report ({status}): {log}")
    })?;
    Ok(Search {
        report: serde_json::from_slice(&text)?,
    })
}

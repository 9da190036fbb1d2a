//! `cargo xtask bench symex`: how long `brownout symex` takes to find, from blanks, what is wrong
//! with the programs in `tests/symex`, by strategy; how many paths a second it runs of libpmemobj's
//! maps; and what becomes of programs that nobody wrote for it.
//!
//! ```text
//!  --part    what is searched                        what is told
//!  found     wrong builds × strategies × seeds       seconds until found, paths, divergence
//!  mapcli    mapcli × types                          paths a second, divergence, where the time went, commands
//!  whole     Debian's programs                       paths a second, divergence, what was concretised
//!  clean     fixed builds                            what was not covered; fails if anything is found
//!  speed     a stretch that does not touch the input seconds, against `run --deterministic`
//! ```
//!
//! Without `--part`, the first two are run. The maps' pool is made by the set-up; the program then
//! reads blanks, as many as three commands need. One run of each is made: a seed decides what is
//! left to chance, but what fits into the time differs from run to run.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use brownout_tests::symex::{self, Build};
use brownout_tests::{Scratch, layout};
use serde_json::{Value, json};

use super::common::{Options, median_of, verdict};
use super::places::Places;
use crate::{build, shell};

/// What a search may take; with `--quick`.
const HUNT: [u64; 2] = [60, 20];
const MAPS: [u64; 2] = [20, 5];
const WHOLE: [u64; 2] = [60, 20];
const CLEAN: [u64; 2] = [60, 10];

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

/// A part of the benchmark.
type Part = fn(&Options) -> Result<Vec<Value>>;

const PARTS: [(&str, Part); 5] = [
    ("found", found),
    ("mapcli", maps),
    ("whole", whole),
    ("clean", clean),
    ("speed", speed),
];
/// Those that are run if none is named.
const USUAL: usize = 2;

/// Runs it and prints the tables.
pub fn bench(options: &Options) -> Result<()> {
    if let Some(strategy) = &options.strategy {
        let names = STRATEGIES.join(", ");
        ensure!(
            STRATEGIES.contains(&&**strategy),
            "no strategy is called {strategy}: there are {names}"
        );
    }
    let all = PARTS.map(|(name, _)| name);
    let wanted = options.select_parts(&all, &all[..USUAL])?;
    let parts = PARTS.iter().filter(|(name, _)| wanted.contains(name));
    build::symex_programs()?;
    let mut rows = Vec::new();
    let mut none = true;
    for (_, part) in parts {
        let made = part(options)?;
        none &= made.is_empty();
        rows.extend(made);
    }
    ensure!(!none, "no case has such a name");
    options.write_rows(rows)
}

/// Whether a case is asked for.
fn is_wanted(options: &Options, name: &str) -> bool {
    let only = options.only.as_ref();
    only.is_none_or(|only| name.contains(only.as_str()))
}

/// For how long each search goes on.
fn time(options: &Options, usual: [u64; 2]) -> String {
    let [whole, quick] = usual;
    let seconds = options.time_or(if options.quick { quick } else { whole });
    format!("{seconds}s")
}

/// What came of one search.
struct Search {
    report: Value,
    /// The inputs that it has kept.
    kept: Vec<Vec<u8>>,
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

    fn is_correctness(finding: &Value) -> bool {
        finding["severity"] == "correctness"
    }

    /// Texts that a member of the report has.
    fn texts<'s>(&'s self, list: &'s Value) -> impl Iterator<Item = &'s str> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(|one| one.as_str().or_else(|| one["text"].as_str()))
    }

    /// What was taken to be what it was.
    fn concretised(&self) -> Vec<&str> {
        let notes = self.texts(&self.report["notes"]);
        notes
            .filter(|note| note.contains("taken to be what"))
            .collect()
    }

    /// In percent of all.
    fn share(&self, name: &str) -> f64 {
        100.0 * self.number(name) / self.number("seconds").max(0.001)
    }
}

/// The wrong builds: one row for each strategy and seed.
fn found(options: &Options) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    let programs = HUNTED.iter().filter(|(name, _)| is_wanted(options, name));
    let programs: Vec<_> = programs.collect();
    if programs.is_empty() {
        return Ok(rows);
    }
    let time = &time(options, HUNT);
    let seeds = match options.quick {
        true => &SEEDS_QUICK[..],
        false => &SEEDS[..],
    };
    let mut table = format!(
        "Until found from {BYTES} blanks, at most {time}:\n\n\
         | program | strategy | seed | s | paths | paths/s | diverged % | running % | following % | solving % |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let strategies = STRATEGIES.into_iter().filter(|name| {
        let only = options.strategy.as_deref();
        only.is_none_or(|only| only == *name)
    });
    let mut times: Vec<(&str, Vec<Option<f64>>)> =
        strategies.map(|name| (name, Vec::new())).collect();
    for (name, build) in programs {
        for (strategy, times) in &mut times {
            for seed in seeds {
                eprintln!("searching {name} ({strategy}, seed {seed}) …");
                let mut command = symex_command(time);
                command
                    .args(["--stdin-symbolic", BYTES, "--until-found"])
                    .args(["--strategy", *strategy, "--seed", &seed.to_string()])
                    .arg("--")
                    .arg(symex::binary(name, *build))
                    .arg("bench.pool");
                let search = run(command, name)?;
                writeln!(
                    table,
                    "| {name} | {strategy} | {seed} | {} | {} | {:.0} | {:.1} | {:.0} | {:.0} | {:.0} |",
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
                    "name": name, "strategy": strategy, "seed": seed, "found_s": search.found_s(), "statistics": search.report["statistics"],
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

/// The commands of mapcli that the inputs which were kept hold: what it makes of a line is said by
/// its first letter, and but for printing there has to be a number behind it.
fn commands(inputs: &[Vec<u8>]) -> Vec<&'static str> {
    const COMMANDS: [(u8, bool, &str); 4] = [
        (b'i', true, "insert"),
        (b'r', true, "remove"),
        (b'c', true, "lookup"),
        (b'p', false, "print"),
    ];
    let lines = inputs.iter().flat_map(|input| input.split(|b| *b == b'\n'));
    let lines: Vec<&[u8]> = lines.collect();
    let is_number = |rest: &[u8]| {
        let rest = rest.trim_ascii_start();
        let rest = rest
            .strip_prefix(b"-")
            .or(rest.strip_prefix(b"+"))
            .unwrap_or(rest);
        rest.first().is_some_and(u8::is_ascii_digit)
    };
    let is_there = |(letter, has_number, _): &&(u8, bool, &str)| {
        let mut lines = lines
            .iter()
            .filter_map(|line| line.strip_prefix(&[*letter]));
        lines.any(|rest| !has_number || is_number(rest))
    };
    let there = COMMANDS.iter().filter(is_there);
    there.map(|(_, _, name)| *name).collect()
}

/// The maps: how fast paths are run, and which commands were found.
fn maps(options: &Options) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    let maps = MAP_TYPES.map(|kind| (kind, format!("mapcli {kind}")));
    let maps = maps.iter().filter(|(_, name)| is_wanted(options, name));
    let maps: Vec<_> = maps.collect();
    if maps.is_empty() {
        return Ok(rows);
    }
    let time = &time(options, MAPS);
    println!(
        "Maps of libpmemobj, {MAP_BYTES} blanks, {time} each (goal: {PATHS_GOAL:.0} paths/s, less than 2 % diverged, all of insert, remove, lookup, print):\n\n\
         | program | paths | paths/s | diverged % | PM paths | kept inputs | commands in them | runs | launches | followed | running % | following % | opening % | solving % | findings |\n\
         |---|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    );
    let mapcli = layout::examples().join("mapcli");
    for (kind, name) in maps {
        eprintln!("searching {name} …");
        let word = mapcli.to_string_lossy();
        let word = shell::quoted(&word);
        let mut command = symex_command(time);
        command
            .args(["--stdin-symbolic", MAP_BYTES, "--out", KEPT])
            .args(["--strategy", options.strategy.as_deref().unwrap_or("pm")])
            .args(["--setup", &format!("{word} {kind} bench.pool </dev/null")])
            .arg("--")
            .arg(&mapcli)
            .args([kind, "bench.pool"]);
        let search = run(command, name)?;
        let findings = search.report["findings"].as_array().map_or(0, Vec::len);
        let commands = commands(&search.kept);
        println!(
            "| {name} | {} | {:.0} | {:.1} | {} | {} | {} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {findings} |",
            search.number("paths"),
            search.paths_a_second(),
            search.diverged(),
            search.number("pm_paths"),
            search.kept.len(),
            commands.join(", "),
            search.number("runs"),
            search.number("launches"),
            search.number("learned"),
            search.share("running_seconds"),
            search.share("learning_seconds"),
            search.share("opening_seconds"),
            search.share("solving_seconds"),
        );
        rows.push(json!({
            "name": name, "findings": findings, "commands": commands, "statistics": search.report["statistics"],
        }));
    }
    println!();
    Ok(rows)
}

/// A program that nobody wrote for this: options that say what is solved for, an input or a
/// template if there is one, and the command line.
struct Whole {
    name: &'static str,
    options: &'static [&'static str],
    template: Option<&'static str>,
    argv: &'static [&'static str],
}

/// Python's own parser gets a line.
const COMPILES: &str = "import os
try: compile(os.read(0, 8), 'line', 'exec')
except Exception: pass";

/// Servers get only their keys from the solver.
const PROGRAMS: [Whole; 5] = [
    Whole {
        name: "sqlite3",
        options: &["--stdin-symbolic", "12"],
        template: None,
        argv: &["sqlite3"],
    },
    Whole {
        name: "gzip -t",
        options: &["--stdin-symbolic", "24"],
        template: None,
        argv: &["gzip", "-t"],
    },
    Whole {
        name: "python3 -c",
        options: &["--stdin-symbolic", "8"],
        template: None,
        argv: &["python3", "-I", "-S", "-c", COMPILES],
    },
    Whole {
        name: "memcached",
        options: &["--socket", "tcp:7777"],
        template: Some("@separator \\r\\n\nset {key:8} 0 0 {n:2}\\r\\n{data:11}\nget {key:8}\n"),
        argv: &[
            "memcached",
            "-p",
            "7777",
            "-U",
            "0",
            "-u",
            "root",
            "-t",
            "1",
        ],
    },
    Whole {
        name: "redis-server",
        options: &["--socket", "tcp:7777"],
        template: Some("@separator \\r\\n\nset {key:8} {value:4}\nget {key:8}\n"),
        argv: &[
            "redis-server",
            "--save",
            "",
            "--appendonly",
            "no",
            "--port",
            "7777",
        ],
    },
];

/// Debian's programs: whether new paths are made, and what was taken to be what it was.
fn whole(options: &Options) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    let time = &time(options, WHOLE);
    println!(
        "Whole programs, {time} each (goal: less than 5 % diverged):\n\n\
         | program | paths | paths/s | turned | diverged % | edges | decisions | running % | following % | opening % | solving % |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    );
    let mut concretised = String::new();
    for program in PROGRAMS.iter().filter(|it| is_wanted(options, it.name)) {
        eprintln!("searching {} …", program.name);
        let mut command = symex_command(time);
        command
            .args(program.options)
            .args(["--strategy", options.strategy.as_deref().unwrap_or("pm")]);
        if program.template.is_some() {
            command.args(["--template", TEMPLATE]);
        }
        command.arg("--").args(program.argv);
        let search = run_with(command, program.name, program.template)?;
        println!(
            "| {} | {} | {:.1} | {} | {:.1} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} |",
            program.name,
            search.number("paths"),
            search.paths_a_second(),
            search.number("turned"),
            search.diverged(),
            search.number("edges"),
            search.number("decisions"),
            search.share("running_seconds"),
            search.share("learning_seconds"),
            search.share("opening_seconds"),
            search.share("solving_seconds"),
        );
        let said = search.concretised();
        writeln!(concretised, "{}:", program.name)?;
        match said[..] {
            [] => writeln!(concretised, "- nothing was concretised")?,
            _ => said
                .iter()
                .try_for_each(|note| writeln!(concretised, "- {note}"))?,
        }
        rows.push(json!({
            "name": program.name, "concretised": said, "statistics": search.report["statistics"],
        }));
    }
    println!("\n{concretised}");
    Ok(rows)
}

/// Programs without their bug: nothing may be found.
fn clean(options: &Options) -> Result<Vec<Value>> {
    const CLEAN_PROGRAMS: [&str; 5] = ["numbers", "order", "records", "tokens", "words"];
    let mut rows = Vec::new();
    let time = &time(options, CLEAN);
    println!(
        "Fixed builds, {BYTES} blanks, {time} each (nothing may be found):\n\n\
         | program | paths | paths/s | diverged % | PM paths | edges | findings |\n\
         |---|---:|---:|---:|---:|---:|---:|"
    );
    let mut uncovered = String::new();
    let mut wrong = Vec::new();
    for name in CLEAN_PROGRAMS
        .into_iter()
        .filter(|it| is_wanted(options, it))
    {
        eprintln!("searching {name} …");
        let mut command = symex_command(time);
        command
            .args(["--stdin-symbolic", BYTES])
            .args(["--strategy", options.strategy.as_deref().unwrap_or("pm")])
            .arg("--")
            .arg(symex::binary(name, Build::Fixed))
            .arg("bench.pool");
        let search = run(command, name)?;
        let findings = search.report["findings"].as_array();
        let findings = findings.map(Vec::as_slice).unwrap_or_default();
        println!(
            "| {name} | {} | {:.0} | {:.1} | {} | {} | {} |",
            search.number("paths"),
            search.paths_a_second(),
            search.diverged(),
            search.number("pm_paths"),
            search.number("edges"),
            findings.len(),
        );
        let errors = findings.iter().filter(|it| Search::is_correctness(it));
        wrong.extend(errors.map(|finding| format!("{name}: {}", finding["message"])));
        writeln!(uncovered, "{name}:")?;
        for text in search.texts(&search.report["coverage"]["limitations"]) {
            writeln!(uncovered, "- {text}")?;
        }
        rows.push(json!({
            "name": name, "findings": findings.len(), "statistics": search.report["statistics"],
        }));
    }
    println!("\nWhat was not covered:\n\n{uncovered}");
    ensure!(
        wrong.is_empty(),
        "nothing is wrong with these programs, but it was found:\n{}",
        wrong.join("\n")
    );
    Ok(rows)
}

/// A stretch of so many rounds in which the input has no part, behind which it is looked at.
const STRETCH: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
static uint64_t table[1024];
int main(int argc, char **argv)
{
    char input[4];
    long rounds = argc > 1 ? atol(argv[1]) : 0;
    uint64_t x = 1;
    if (read(0, input, sizeof input) != sizeof input)
        return 1;
    for (long n = 0; n < rounds; n++) {
        x = (x ^ x >> 13) * 6364136223846793005u + 1442695040888963407u;
        if (x >> 60 == 7)
            table[x >> 20 & 1023] += x;
        else
            x += table[n & 1023];
    }
    for (unsigned n = 0; n < sizeof input; n++)
        if (input[n] == (char)('a' + n))
            table[0]++;
    return (int)((table[0] + x) & 1);
}
"#;
const STRETCH_ROUNDS: [&str; 2] = ["0", "20000000"];

/// What does not touch the input, against the same without a search. The difference between many
/// rounds and none is what counts: launches and forks are not what is compared.
fn speed(options: &Options) -> Result<Vec<Value>> {
    let name = "stretch";
    if !is_wanted(options, name) {
        return Ok(Vec::new());
    }
    let scratch = Scratch::new()?;
    let folder = scratch.path();
    fs::write(folder.join("stretch.c"), STRETCH)?;
    let compiled = Command::new("gcc")
        .args(["-O1", "-o", "stretch", "stretch.c"])
        .current_dir(folder)
        .status()
        .context("cannot run gcc")?;
    ensure!(compiled.success(), "gcc: {compiled}");
    fs::write(folder.join("input"), "    ")?;
    let program = folder.join("stretch");
    let mut deterministic = [0.0; 2];
    let mut searched = [0.0; 2];
    for (at, rounds) in STRETCH_ROUNDS.iter().enumerate() {
        let mut all = Vec::new();
        for round in 0..=options.rounds() {
            let begun = Instant::now();
            let status = Command::new(layout::brownout())
                .args(["run", "--deterministic", "--"])
                .arg(&program)
                .arg(rounds)
                .current_dir(folder)
                .stdin(File::open(folder.join("input"))?)
                .status()
                .context("cannot run brownout")?;
            ensure!(status.code().is_some_and(|code| code < 2), "{status}");
            if round > 0 {
                all.push(begun.elapsed().as_secs_f64());
            }
        }
        deterministic[at] = median_of(&all);
        eprintln!("searching {name} of {rounds} rounds …");
        // Its four branches have sixteen paths.
        let mut command = symex_command("10m");
        command
            .args(["--stdin-symbolic", "4", "--paths", "16", "--"])
            .arg(&program)
            .arg(rounds);
        let search = run(command, name)?;
        let running = search.number("running_seconds") - search.number("opening_seconds");
        searched[at] = running / search.number("runs").max(1.0);
    }
    let (plain, ours) = (
        deterministic[1] - deterministic[0],
        searched[1] - searched[0],
    );
    let more = 100.0 * (ours / plain - 1.0);
    println!(
        "A stretch of {} rounds that does not touch the input: {plain:.3} s by run --deterministic, {ours:.3} s in a search: {more:+.1} % (goal: at most 10 %, {})\n",
        STRETCH_ROUNDS[1],
        verdict(more <= 10.0)
    );
    Ok(vec![json!({
        "name": name, "deterministic_s": plain, "searched_s": ours,
    })])
}

/// `brownout symex`, with all that is the same for all cases.
fn symex_command(time: &str) -> Command {
    let mut command = Command::new(layout::brownout());
    command
        .args(["symex", "--no-config", "--pm", "*.pool"])
        .args(["--time", time])
        .args(["--format", "json", "-o", "report.json"]);
    command
}

/// Where a search finds its template, and keeps what it keeps.
const TEMPLATE: &str = "operations";
const KEPT: &str = "kept";

/// Runs a search in a folder of its own.
fn run(command: Command, name: &str) -> Result<Search> {
    run_with(command, name, None)
}

/// The same with a template.
fn run_with(mut command: Command, name: &str, template: Option<&str>) -> Result<Search> {
    let places = Places::new()?;
    let folder = places.scratch.path();
    if let Some(template) = template {
        fs::write(folder.join(TEMPLATE), template)?;
    }
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
    let mut kept = Vec::new();
    if let Ok(tests) = fs::read_dir(folder.join(KEPT).join("tests")) {
        for test in tests {
            kept.push(fs::read(test?.path())?);
        }
    }
    Ok(Search {
        report: serde_json::from_slice(&text)?,
        kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_what_mapcli_takes_for_some() {
        let inputs = |texts: &[&str]| -> Vec<Vec<u8>> {
            texts.iter().map(|text| text.as_bytes().to_vec()).collect()
        };
        let all = inputs(&["i 1\nr-2\n", "   \nc  3", "p"]);
        assert_eq!(commands(&all), ["insert", "remove", "lookup", "print"]);
        assert!(commands(&inputs(&["i\nrx\n i 1", ""])).is_empty());
    }

    #[test]
    fn parts_and_times_are_as_asked_for() {
        let options = Options::parse(&["--part", "whole", "--time", "10m", "--strategy", "pm"]);
        let options = options.expect("all are known");
        assert_eq!(time(&options, HUNT), "600s");
        assert_eq!(time(&Options::default(), HUNT), "60s");
        for words in [["--part", "no-such"], ["--strategy", "no-such"]] {
            let options = Options::parse(&words).expect("any name will do for others");
            assert!(bench(&options).is_err(), "{words:?}");
        }
    }
}

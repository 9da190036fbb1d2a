//! `cargo xtask bench race`: how long `brownout race` takes to find what is wrong with the programs
//! in `tests/race`, what it says of those that are right, and what runs cost under a schedule.
//!
//! ```text
//!  wrong builds ─┬─▶ race, strategies in turn   ─▶ seconds until found, candidates, inconsistencies, verdicts
//!                └─▶ race, delays only          ─▶ the same, beside it
//!  right builds ───▶ race                       ─▶ findings (none), schedules a second
//!  three programs ─▶ (native on one processor, one thread at a time, data flow followed) × N ─▶ slowdown
//! ```
//!
//! A program counts as found when the report has a finding of the rule that its header names;
//! whether the finding names the right lines is a matter of the test suite. Where the header
//! expects an error, that is what the time is measured to; a warning of the rule does not count.
//! The search's journal is watched for the moment at which it is there, and then the search is
//! ended: with `--until-found`, an error of another rule would end it.
//!
//! One run of each is made: the same seed gives other schedules with two jobs, and times differ
//! from run to run.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brownout_tests::layout;
use brownout_tests::race::{self, Build, RaceProgram, Verdict};
use serde_json::{Value, json};

use super::common::{Options, Side, expect_success, median, median_of, set_surroundings, text_of};
use super::places::{Places, remove_if_there};
use crate::{build, shell};

/// What a search for a bug may take, and what one may take that is to find nothing.
const HUNT: Duration = Duration::from_secs(60);
const HUNT_QUICK: Duration = Duration::from_secs(8);
const SILENCE: Duration = Duration::from_secs(5);
const SILENCE_QUICK: Duration = Duration::from_secs(2);
/// A search is given this much longer to report, before it counts as stuck.
const GRACE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

const JOBS: &str = "2";
const POOL: &str = "store.pool";
const MEDIAN_GOAL_S: f64 = 10.0;

/// Runs it and prints the tables.
pub fn bench(options: &Options) -> Result<()> {
    build::race_programs()?;
    let programs = options.select(race::discover()?, |program| &program.name)?;
    let (hunt, silence) = match options.quick {
        true => (HUNT_QUICK, SILENCE_QUICK),
        false => (HUNT, SILENCE),
    };
    let mut rows = found(&programs, hunt)?;
    rows.extend(silent(&programs, silence)?);
    if options.only.is_none() {
        rows.extend(cost(options)?);
    }
    options.write_rows(rows)
}

/// What came of one search.
struct Search {
    /// Seconds until the rule that is wanted was found.
    found_s: Option<f64>,
    findings: usize,
    report: Value,
}

impl Search {
    fn number(&self, name: &str) -> u64 {
        self.report["statistics"][name].as_u64().unwrap_or_default()
    }

    fn seconds(&self) -> f64 {
        self.report["statistics"]["seconds"]
            .as_f64()
            .unwrap_or_default()
    }

    fn found(&self) -> String {
        self.found_s
            .map_or_else(|| "no".to_owned(), |seconds| format!("{seconds:.1}"))
    }
}

/// The wrong builds, by all strategies and by delays.
fn found(programs: &[RaceProgram], time: Duration) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    let mut table = format!(
        "Until found, at most {} s, {JOBS} jobs:\n\n\
         | program | rule | s | schedules | inter | intra | inconsistencies | validated | confirmed | delays: s | delays: schedules |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        time.as_secs()
    );
    let (mut ours, mut delays) = (Vec::new(), Vec::new());
    let mut sums = [0; 5];
    for program in programs {
        let Some(rule) = &program.bug else {
            continue;
        };
        eprintln!("searching {} …", program.name);
        let all = search(program, Build::Bug, time, None)?;
        let delay = search(program, Build::Bug, time, Some("delay"))?;
        let columns = [
            "inter_candidates",
            "intra_candidates",
            "inconsistencies",
            "validated",
            "confirmed",
        ]
        .map(|name| all.number(name));
        for (sum, column) in sums.iter_mut().zip(columns) {
            *sum += column;
        }
        let [inter, intra, inconsistencies, validated, confirmed] = columns;
        let row = format!(
            "| {} | {rule} | {} | {} | {inter} | {intra} | {inconsistencies} | {validated} | {confirmed} | {} | {} |",
            program.name,
            all.found(),
            all.number("schedules"),
            delay.found(),
            delay.number("schedules"),
        );
        eprintln!("{row}");
        writeln!(table, "{row}")?;
        rows.push(json!({
            "name": program.name, "rule": rule, "found_s": all.found_s, "statistics": all.report["statistics"],
            "delay_found_s": delay.found_s, "delay_statistics": delay.report["statistics"],
        }));
        ours.push(all.found_s);
        delays.push(delay.found_s);
    }
    if ours.is_empty() {
        return Ok(rows);
    }
    let [inter, intra, inconsistencies, validated, confirmed] = sums;
    writeln!(
        table,
        "| **all** | | **{}** | | {inter} | {intra} | {inconsistencies} | {validated} | {confirmed} | **{}** | |\n",
        count(&ours),
        count(&delays)
    )?;
    print!("{table}");
    for (name, times) in [("all strategies in turn", &ours), ("delays", &delays)] {
        let known: Vec<f64> = times.iter().flatten().copied().collect();
        println!(
            "{name}: {} found, the median of those after {:.1} s, the last after {:.1} s",
            count(times),
            median_of(&known),
            known.iter().copied().fold(f64::NAN, f64::max),
        );
    }
    println!("(goal: all found, the median below {MEDIAN_GOAL_S} s)\n");
    Ok(rows)
}

fn count(times: &[Option<f64>]) -> String {
    format!("{} of {}", times.iter().flatten().count(), times.len())
}

/// The right builds, and the programs that have no wrong one.
fn silent(programs: &[RaceProgram], time: Duration) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    let (mut speeds, mut loud) = (Vec::new(), Vec::new());
    let mut schedules = 0;
    for program in programs {
        eprintln!("searching {} (right) …", program.name);
        let search = search(program, Build::Fixed, time, None)?;
        schedules += search.number("schedules");
        speeds.push(search.number("schedules") as f64 / search.seconds());
        if search.findings > 0 {
            loud.push(format!("{} ({})", program.name, search.findings));
        }
        rows.push(json!({
            "name": format!("{} (right)", program.name), "findings": search.findings, "statistics": search.report["statistics"],
        }));
    }
    println!(
        "Right builds and clean programs, {} s each: {} programs, {schedules} schedules, findings in {} of them{}{}",
        time.as_secs(),
        programs.len(),
        loud.len(),
        if loud.is_empty() { "" } else { ": " },
        loud.join(", ")
    );
    let least = speeds.iter().copied().fold(f64::NAN, f64::min);
    let most = speeds.iter().copied().fold(f64::NAN, f64::max);
    println!(
        "Schedules a second there, {JOBS} jobs, recoveries included: median {:.0}, {least:.0} to {most:.0}\n",
        median_of(&speeds)
    );
    Ok(rows)
}

/// Ends a search that is no longer needed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn search(
    program: &RaceProgram,
    build: Build,
    time: Duration,
    strategy: Option<&str>,
) -> Result<Search> {
    let places = Places::new()?;
    let folder = places.scratch.path();
    let binary = program.binary(build);
    let wanted = match build {
        Build::Fixed => None,
        _ => program.bug.as_deref(),
    };
    let is_error = program.verdict == Some(Verdict::Confirmed) || wanted == Some("deadlock");
    // How a finding of the rule begins in the journal.
    let words = wanted.map(|rule| match is_error {
        true => format!(r#""rule":"{rule}","severity":"correctness""#),
        false => format!(r#""rule":"{rule}""#),
    });
    let shell_word = binary.to_string_lossy();
    let word = shell::quoted(&shell_word);
    let mut command = Command::new(layout::brownout());
    command
        .current_dir(folder)
        .args(["race", "--no-config", "--pm", "*.pool", "--jobs", JOBS])
        .args(["--time", &format!("{}s", time.as_secs())])
        .args(["--out", "campaign", "--format", "json", "-o"])
        .arg(places.report())
        .args(["--recover", &format!("{word} {POOL} recover")]);
    if program.continues {
        command.args(["--continue", &format!("{word} {POOL} continue")]);
    }
    if program.setup {
        command.args(["--setup", &format!("{word} {POOL} create")]);
    }
    if let Some(strategy) = strategy {
        command.args(["--strategy", strategy]);
    }
    command
        .arg("--")
        .arg(&binary)
        .arg(POOL)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(folder.join("log"))?);
    let begun = Instant::now();
    let mut running = Running(command.spawn().context("cannot run brownout")?);
    let mut told_s = None;
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        if let Some(words) = &words
            && told_s.is_none()
            && is_in(&folder.join("campaign/journal"), words)
        {
            told_s = Some(begun.elapsed().as_secs_f64());
            // As Ctrl-C does: it reports what was found so far.
            shell::run(Command::new("kill").args(["-INT", &running.0.id().to_string()]))?;
        }
        ensure!(
            begun.elapsed() < time + GRACE,
            "the search of {} does not end",
            program.name
        );
        std::thread::sleep(POLL);
    };
    let text = fs::read(places.report());
    let text = text.with_context(|| {
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        format!("{} left no report ({status}): {log}", program.name)
    })?;
    let report: Value = serde_json::from_slice(&text)?;
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    let is_it =
        |finding: &&Value| finding["rule"].as_str() == wanted && is_error == is_error_of(finding);
    let found_s = match findings.iter().any(|finding| is_it(&finding)) {
        true => told_s.or(Some(begun.elapsed().as_secs_f64())),
        false => None,
    };
    Ok(Search {
        found_s: found_s.filter(|_| wanted.is_some()),
        findings: findings.len(),
        report,
    })
}

fn is_error_of(finding: &Value) -> bool {
    finding["severity"] == "correctness"
}

/// Whether these bytes are in a file that is still written.
fn is_in(file: &Path, text: &str) -> bool {
    let bytes = fs::read(file).unwrap_or_default();
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

/// A program whose runs are compared.
struct Case {
    name: &'static str,
    words: Vec<String>,
    pool: bool,
}

/// How a run is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Natively, on one processor.
    Native,
    /// One thread at a time, loads told.
    Serialised,
    /// And its data flow followed, from every load of persistent memory.
    Followed,
}

const WAYS: [Way; 3] = [Way::Native, Way::Serialised, Way::Followed];

/// What one run costs.
fn cost(options: &Options) -> Result<Vec<Value>> {
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "brownout-follow",
        "--example",
        "follow",
    ]))?;
    let places = Places::new()?;
    let (changes, accesses, bytes) = match options.quick {
        true => ("10000", "500000", 1 << 20),
        false => ("50000", "4000000", 8 << 20),
    };
    let pool = text_of(places.pools.join("bench.pool"));
    let data = places.scratch.join("data");
    fs::write(&data, super::engine::compressible(bytes))?;
    let own = |name: &str, size: &str| {
        let program = text_of(layout::programs().join(name));
        vec![program, pool.clone(), size.to_owned()]
    };
    let xz = ["xz", "-T4", "--block-size=256KiB", "-1", "-k", "-f"].map(str::to_owned);
    let cases = [
        Case {
            name: "two threads, all on PM",
            words: own("bench_threads", changes),
            pool: true,
        },
        Case {
            name: "mostly DRAM, 5 % PM",
            words: own("bench_dram", accesses),
            pool: true,
        },
        Case {
            name: "xz -T4, no PM",
            words: [xz.to_vec(), vec![text_of(data)]].concat(),
            pool: false,
        },
    ];
    let mut times: Vec<[Vec<Duration>; 3]> = cases.iter().map(|_| Default::default()).collect();
    for round in 0..=options.rounds() {
        for (case, times) in cases.iter().zip(&mut times) {
            for (way, times) in WAYS.into_iter().zip(times) {
                let took = time(case, way, &places)?;
                // The first round is for caches.
                if round > 0 {
                    times.push(took);
                }
            }
        }
        eprintln!("round {round} of {} done", options.rounds());
    }
    println!(
        "One run, medians of {} rounds:\n\n\
         | program | native, one processor, s | one thread at a time s | slowdown | data flow followed s | slowdown |\n\
         |---|---:|---:|---:|---:|---:|",
        options.rounds()
    );
    let mut rows = Vec::new();
    for (case, times) in cases.iter().zip(&times) {
        let [native, serialised, followed] = times.each_ref().map(|times| median(times));
        println!(
            "| {} | {native:.3} | {serialised:.3} | {:.1} | {followed:.3} | {:.0} |",
            case.name,
            serialised / native,
            followed / native
        );
        rows.push(json!({
            "name": case.name, "native_s": native, "serialised_s": serialised, "followed_s": followed,
        }));
    }
    Ok(rows)
}

fn time(case: &Case, way: Way, places: &Places) -> Result<Duration> {
    if case.pool {
        remove_if_there(Path::new(&case.words[1]))?;
    }
    let mut command = match way {
        Way::Native => {
            let mut command = Command::new("taskset");
            command.args(["-c", "0"]);
            command
        }
        _ => {
            let mut command = Command::new(layout::target().join("release/examples/follow"));
            command.args(["--pm", "**/*.pool"]);
            if way == Way::Serialised {
                command.arg("--plain");
            }
            command
        }
    };
    // The example launches what it is given, and asks no shell where that is.
    let program = match case.words[0].contains('/') {
        true => case.words[0].clone(),
        false => format!("/usr/bin/{}", case.words[0]),
    };
    command.arg(program).args(&case.words[1..]);
    set_surroundings(&mut command, places.scratch.path());
    let begun = Instant::now();
    let output: Output = command.output().context("cannot run a case")?;
    let took = begun.elapsed();
    let side = match way {
        Way::Native => Side::Native,
        _ => Side::Tool,
    };
    expect_success(case.name, side, &output)?;
    Ok(took)
}

//! `cargo xtask bench check`: what `brownout check` costs, in time and memory.
//!
//! A run under the tool writes its report as JSON, which says how many events there were and how
//! long the program waited for the checker. Creating the pool, and making the report, are part of
//! the time. Pools lie in memory (`/dev/shm`) where there is room, so that no disk is measured.
//!
//! The tool's memory is its own process's; the program is another process. The kernel's high-water
//! mark is gone when a process has ended, so it is read every [`PEAK_INTERVAL`], and growth in the
//! last interval is missed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brownout_findings::numbers::grouped;
use brownout_tests::layout;
use serde_json::Value;

use super::common::{Options, Side, Times, geometric_mean, median, median_of, text_of, verdict};
use super::places::{Places, remove_if_there};
use super::redis::Redis;

const PEAK_INTERVAL: Duration = Duration::from_millis(20);

const MAPS: [&str; 5] = ["ctree", "btree", "rbtree", "hashmap_tx", "hashmap_atomic"];
const VALUE_SIZES: [u64; 4] = [64, 256, 1024, 4096];
/// The size at which few inserts are compared with many.
const GROWTH_SIZE: u64 = VALUE_SIZES[0];

const MEMORY_LIMIT_MIB: f64 = 1024.0;

/// What a case shows, and so which goal it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// Inserts into a map; of the same size, few and many.
    Map {
        map: &'static str,
        size: u64,
        many: bool,
    },
    RawLoop,
    RawLoopBatched,
    MostlyDram,
    WithoutPm,
    TwoThreads,
    /// Few events between much other work, one thread.
    Sparse,
    /// One thread that does little else than PM.
    Dense,
    /// Two threads with transactions of libpmemobj.
    TwoThreadsTx,
}

/// What is run.
enum Work {
    /// A program and its arguments, of which `POOL` stands for a fresh file.
    Program(Vec<String>),
    /// A server; the time is its client's.
    Redis { requests: u64 },
}

struct Case {
    name: String,
    subject: Subject,
    work: Work,
}

/// What the runs under the tool told beside their times.
#[derive(Default)]
struct Observed {
    events: u64,
    waited_shares: Vec<f64>,
    peak_kib: u64,
}

/// What one run under the tool told.
struct ToolRun {
    events: u64,
    waited_share: f64,
    peak_kib: u64,
}

/// Runs it and prints the tables.
pub fn bench(options: &Options) -> Result<()> {
    let places = Places::new()?;
    match options.memory {
        true => memory(options, &places),
        false => speed(options, &places),
    }
}

// ---------------------------------------------------------------------- speed

fn speed(options: &Options, places: &Places) -> Result<()> {
    let cases = options.select(cases(options.quick), |case| &case.name)?;
    let rounds = options.rounds();
    let mut observed: Vec<Observed> = cases.iter().map(|_| Observed::default()).collect();
    let times = super::common::interleave(cases.len(), rounds, |index, side| {
        let (time, told) = run(&cases[index], side, places)?;
        if let Some(told) = told {
            let observed = &mut observed[index];
            observed.events = told.events;
            observed.waited_shares.push(told.waited_share);
            observed.peak_kib = observed.peak_kib.max(told.peak_kib);
        }
        Ok(time)
    })?;
    let rows: Vec<Row> = cases
        .iter()
        .zip(&times)
        .zip(&observed)
        .map(|((case, times), observed)| Row::new(case, times, observed))
        .collect();
    println!("{}", table(&rows, rounds));
    println!("{}", growth(&rows));
    println!("{}", sustained(&rows));
    println!("{}", goals(&rows));
    options.write_json(cases.iter().map(|case| case.name.as_str()).zip(&times))
}

fn cases(quick: bool) -> Vec<Case> {
    let less = |full: u64| match quick {
        true => full / 10,
        false => full,
    };
    let (many, few) = (less(100_000), less(10_000));
    let own = |name: &str, arguments: &[String]| {
        let mut argv = vec![text_of(layout::programs().join(name)), "POOL".to_owned()];
        argv.extend_from_slice(arguments);
        Work::Program(argv)
    };
    let map = |map: &'static str, size: u64, is_many: bool| {
        let count = if is_many { many } else { few };
        let program = text_of(layout::examples().join("bench_map"));
        let argv = [program.as_str(), map, "POOL"];
        let mut argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        argv.extend([count.to_string(), size.to_string()]);
        Case {
            name: format!("{map}, {} inserts of {size} bytes", grouped(count)),
            subject: Subject::Map {
                map,
                size,
                many: is_many,
            },
            work: Work::Program(argv),
        }
    };
    let case = |name: String, subject, work| Case {
        name,
        subject,
        work,
    };

    let mut cases = Vec::new();
    for name in MAPS {
        cases.extend(VALUE_SIZES.map(|size| map(name, size, true)));
    }
    cases.extend(MAPS.map(|name| map(name, GROWTH_SIZE, false)));
    let stores = less(1_000_000);
    let (accesses, changes, requests) = (less(40_000_000), less(200_000), less(500_000));
    let (scattered, keys) = (less(20_000_000), less(2_000_000));
    let (flushes, transactions) = (less(4_000_000), less(100_000));
    cases.extend([
        case(
            format!("{} stores, each persisted", grouped(stores)),
            Subject::RawLoop,
            own("bench_persist", &[stores.to_string(), "1".to_owned()]),
        ),
        case(
            format!("{} stores, fenced by eights", grouped(stores)),
            Subject::RawLoopBatched,
            own("bench_persist", &[stores.to_string(), "8".to_owned()]),
        ),
        case(
            "mostly DRAM, 5 % PM".to_owned(),
            Subject::MostlyDram,
            own("bench_dram", &[accesses.to_string()]),
        ),
        case(
            "redis-server without PM".to_owned(),
            Subject::WithoutPm,
            Work::Redis { requests },
        ),
        case(
            "two threads".to_owned(),
            Subject::TwoThreads,
            own("bench_threads", &[changes.to_string()]),
        ),
        case(
            format!("{} accesses, 5 % scattered over PM", grouped(scattered)),
            Subject::Sparse,
            own("bench_scatter", &[scattered.to_string()]),
        ),
        case(
            format!("{} keys looked up and logged", grouped(keys)),
            Subject::Sparse,
            own("bench_keys", &[keys.to_string()]),
        ),
        case(
            format!(
                "{} stores flushed by libpmem, drained by eights",
                grouped(flushes)
            ),
            Subject::Dense,
            own("bench_flushes", &[flushes.to_string()]),
        ),
        case(
            "two threads, transactions of 256 bytes".to_owned(),
            Subject::TwoThreadsTx,
            own("bench_tx_threads", &[transactions.to_string()]),
        ),
    ]);
    cases
}

/// What one line of the table is made from.
struct Row<'a> {
    case: &'a Case,
    native_s: f64,
    check_s: f64,
    ratio: f64,
    events: u64,
    waited_share: f64,
    peak_mib: f64,
}

impl<'a> Row<'a> {
    fn new(case: &'a Case, times: &Times, observed: &Observed) -> Row<'a> {
        Row {
            case,
            native_s: median(&times.native),
            check_s: median(&times.tool),
            ratio: times.ratio(),
            events: observed.events,
            // Without the unmeasured round.
            waited_share: median_of(observed.waited_shares.get(1..).unwrap_or_default()),
            peak_mib: mib(observed.peak_kib),
        }
    }

    fn million_events_per_s(&self) -> f64 {
        self.events as f64 / self.check_s / 1e6
    }
}

fn table(rows: &[Row<'_>], rounds: usize) -> String {
    let mut text = format!(
        "Medians of {rounds} rounds, native and `brownout check` in turn; the peak is the highest of all.\n\n\
         | program | native s | check s | ratio | events | million events/s | waited | peak MiB |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {:.3} | {:.3} | {:.2} | {} | {:.1} | {:.0} % | {:.0} |",
            row.case.name,
            row.native_s,
            row.check_s,
            row.ratio,
            grouped(row.events),
            row.million_events_per_s(),
            row.waited_share * 100.0,
            row.peak_mib
        );
    }
    text
}

/// Few inserts beside many: a checker that remembers too much gets slower as the run gets longer.
fn growth(rows: &[Row<'_>]) -> String {
    let find = |wanted: Subject| rows.iter().find(|row| row.case.subject == wanted);
    let mut text = String::new();
    for map in MAPS {
        let inserts = |many| {
            find(Subject::Map {
                map,
                size: GROWTH_SIZE,
                many,
            })
        };
        if let (Some(few), Some(many)) = (inserts(false), inserts(true)) {
            let _ = writeln!(
                text,
                "| {map} | {:.2} | {:.2} | {:.2} | {:.2} |",
                few.ratio,
                many.ratio,
                few.million_events_per_s(),
                many.million_events_per_s()
            );
        }
    }
    match text.is_empty() {
        true => text,
        false => format!(
            "Growth: a tenth of the inserts beside all, {GROWTH_SIZE} bytes each.\n\n\
             | map | ratio, a tenth | ratio, all | million events/s, a tenth | million events/s, all |\n\
             |---|---:|---:|---:|---:|\n{text}"
        ),
    }
}

/// The program's waiting from which on the checker's speed is what is measured.
const WAITED_SHARE_MIN: f64 = 0.2;

/// How many events a second the checker takes, by the cases in which the program had to wait for
/// it.
fn sustained(rows: &[Row<'_>]) -> String {
    let mut busy: Vec<&Row<'_>> = rows
        .iter()
        .filter(|row| row.waited_share >= WAITED_SHARE_MIN)
        .collect();
    busy.sort_by(|a, b| {
        a.million_events_per_s()
            .total_cmp(&b.million_events_per_s())
    });
    let words = |row: &Row<'_>| format!("{:.1} ({})", row.million_events_per_s(), row.case.name);
    match (busy.first(), busy.last()) {
        (Some(slowest), Some(fastest)) => format!(
            "Where the program waits for it, the checker takes {} to {} million events a second.\n",
            words(slowest),
            words(fastest)
        ),
        _ => {
            "No program had to wait for the checker, so how many events a second it sustains does \
              not show.\n"
                .to_owned()
        }
    }
}

/// What the project promises, beside what was measured; without the promises that nothing was
/// measured for.
fn goals(rows: &[Row<'_>]) -> String {
    let of = |wanted: fn(Subject) -> bool| -> Vec<f64> {
        rows.iter()
            .filter(|row| wanted(row.case.subject))
            .map(|row| row.ratio)
            .collect()
    };
    let first = |ratios: Vec<f64>| ratios.first().copied();
    let worst_of = |ratios: Vec<f64>| ratios.into_iter().max_by(f64::total_cmp);
    let worst = rows.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let worst_name = worst.map_or(String::new(), |row| {
        format!("the worst of all ({})", row.case.name)
    });
    let goals = [
        (
            "geometric mean of the map inserts",
            geometric_mean(&of(|s| matches!(s, Subject::Map { many: true, .. }))),
            2.0,
        ),
        ("mostly DRAM", first(of(|s| s == Subject::MostlyDram)), 1.3),
        (
            "stores, each persisted",
            first(of(|s| s == Subject::RawLoop)),
            1.0,
        ),
        ("two threads", first(of(|s| s == Subject::TwoThreads)), 2.5),
        (
            "mostly DRAM, scattered or logged: the worse",
            worst_of(of(|s| s == Subject::Sparse)),
            1.5,
        ),
        (
            "one thread, PM only: the worst",
            worst_of(of(|s| {
                matches!(s, Subject::Dense | Subject::RawLoopBatched)
            })),
            2.0,
        ),
        (
            "two threads, libpmemobj",
            first(of(|s| s == Subject::TwoThreadsTx)),
            2.5,
        ),
        (&worst_name, worst.map(|row| row.ratio), 4.0),
    ];
    let mut text = String::new();
    for (what, ratio, limit) in goals {
        if let Some(ratio) = ratio {
            let _ = writeln!(
                text,
                "- {what}: {ratio:.2}, goal {limit:.1}: {}",
                verdict(ratio <= limit)
            );
        }
    }
    text
}

// ---------------------------------------------------------------------- memory

/// The checker's memory, over a run of many events and one of a tenth of them.
fn memory(options: &Options, places: &Places) -> Result<()> {
    let full: u64 = match options.quick {
        true => 10_000_000,
        false => 100_000_000,
    };
    let mut text = String::from("| events | s | peak MiB |\n|---:|---:|---:|\n");
    let mut peak_mib = 0.0;
    for events in [full / 10, full] {
        eprintln!("running {} events …", grouped(events));
        let argv = [
            text_of(layout::programs().join("bench_events")),
            "POOL".to_owned(),
            events.to_string(),
        ];
        let (time, told) = run_program("bench_events", &argv, Side::Tool, places)?;
        let told = told.context("a run under the tool tells what it saw")?;
        ensure!(
            told.events >= events,
            "the checker saw {} events of {events}",
            told.events
        );
        peak_mib = mib(told.peak_kib);
        let _ = writeln!(
            text,
            "| {} | {:.1} | {peak_mib:.0} |",
            grouped(told.events),
            time.as_secs_f64()
        );
    }
    println!("Memory of the checker, stores and write-backs at random places of 64 MiB.\n\n{text}");
    println!(
        "- peak: {peak_mib:.0} MiB, goal {MEMORY_LIMIT_MIB:.0}: {}",
        verdict(peak_mib <= MEMORY_LIMIT_MIB)
    );
    Ok(())
}

// ---------------------------------------------------------------------- running

fn run(case: &Case, side: Side, places: &Places) -> Result<(Duration, Option<ToolRun>)> {
    match &case.work {
        Work::Program(argv) => run_program(&case.name, argv, side, places),
        Work::Redis { requests } => {
            let (program, arguments) = Redis::command_line(places.scratch.path());
            let command = command(&program, &arguments, side, places)?;
            let server = Redis::start(command, places.scratch.path())?;
            let peak = (side == Side::Tool).then(|| Peak::watch(server.child()));
            let time = server.benchmark(*requests)?;
            let output = server.shut_down()?;
            super::common::expect_success(&case.name, side, &output)?;
            let told = peak.map(|peak| told(places, peak.stop())).transpose()?;
            Ok((time, told))
        }
    }
}

fn run_program(
    name: &str,
    argv: &[String],
    side: Side,
    places: &Places,
) -> Result<(Duration, Option<ToolRun>)> {
    let pool = places.pools.join("bench.pool");
    remove_if_there(&pool)?;
    let argv: Vec<String> = argv
        .iter()
        .map(|word| match word.as_str() {
            "POOL" => text_of(pool.clone()),
            _ => word.clone(),
        })
        .collect();
    let mut command = command(&argv[0], &argv[1..], side, places)?;
    let start = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("cannot run {}", argv[0]))?;
    let peak = (side == Side::Tool).then(|| Peak::watch(&child));
    let output: Output = child.wait_with_output()?;
    let time = start.elapsed();
    super::common::expect_success(name, side, &output)?;
    let told = peak.map(|peak| told(places, peak.stop())).transpose()?;
    remove_if_there(&pool)?;
    Ok((time, told))
}

/// The program, or the tool with it.
fn command(program: &str, arguments: &[String], side: Side, places: &Places) -> Result<Command> {
    let mut command = match side {
        Side::Native => Command::new(program),
        Side::Tool => {
            remove_if_there(&places.report())?;
            let mut command = Command::new(layout::brownout());
            command
                .args(["check", "--no-config", "--fail-on", "never"])
                // One of them has no persistent memory.
                .args(["--pm", "*.pool", "--accept", "unmatched"])
                .args(["--format", "json", "-o"])
                .arg(places.report())
                .args(["--", program]);
            command
        }
    };
    command.args(arguments);
    super::common::set_surroundings(&mut command, places.scratch.path());
    Ok(command)
}

/// What the report of the run that has just ended says.
fn told(places: &Places, peak_kib: u64) -> Result<ToolRun> {
    let report = fs::read(places.report()).context("the tool left no report")?;
    ToolRun::parse(&report, peak_kib)
}

impl ToolRun {
    fn parse(report: &[u8], peak_kib: u64) -> Result<ToolRun> {
        let report: Value = serde_json::from_slice(report).context("the report is no JSON")?;
        let statistics = &report["statistics"];
        let number = |name: &str| {
            statistics[name]
                .as_f64()
                .with_context(|| format!("the report has no statistics.{name}"))
        };
        Ok(ToolRun {
            events: number("events")? as u64,
            waited_share: number("target_waited_s")? / number("wall_s")?,
            peak_kib,
        })
    }
}

// ---------------------------------------------------------------------- the tool's memory

/// Reads a process's high-water mark while it runs.
struct Peak {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<u64>,
}

impl Peak {
    /// Of the child itself, not of what it starts. Stop it when the child has been waited for.
    fn watch(child: &Child) -> Peak {
        let status = PathBuf::from(format!("/proc/{}/status", child.id()));
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut peak_kib = 0;
            loop {
                // The mark never falls; that it cannot be read means that the process has ended.
                if let Some(kib) = high_water_kib(&status) {
                    peak_kib = peak_kib.max(kib);
                }
                if stopped.recv_timeout(PEAK_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return peak_kib;
                }
            }
        });
        Peak { stop, thread }
    }

    fn stop(self) -> u64 {
        // The thread waits for nothing else, so it is still there.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or(0)
    }
}

fn high_water_kib(status: &Path) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

// ---------------------------------------------------------------------- words and numbers

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &Case, ratio: f64) -> Row<'_> {
        Row {
            case,
            native_s: 1.0,
            check_s: ratio,
            ratio,
            events: 2_000_000,
            waited_share: 0.25,
            peak_mib: 10.0,
        }
    }

    #[test]
    fn every_map_and_size_is_there_once_and_has_a_tenth_beside_it() {
        let cases = cases(false);
        let maps = |wanted: bool| {
            cases
                .iter()
                .filter(|case| matches!(case.subject, Subject::Map { many, .. } if many == wanted))
                .count()
        };
        assert_eq!(maps(true), MAPS.len() * VALUE_SIZES.len());
        assert_eq!(maps(false), MAPS.len());
        let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases.len(), "two cases have the same name");
    }

    #[test]
    fn goals_are_met_or_missed_and_those_without_a_row_are_left_out() {
        let cases = cases(true);
        let find = |subject| {
            cases
                .iter()
                .find(|case| case.subject == subject)
                .expect("there is one")
        };
        let rows = [
            row(find(Subject::MostlyDram), 1.2),
            row(find(Subject::TwoThreads), 4.5),
        ];
        let text = goals(&rows);
        assert_eq!(
            text,
            "- mostly DRAM: 1.20, goal 1.3: met\n\
             - two threads: 4.50, goal 2.5: **missed**\n\
             - the worst of all (two threads): 4.50, goal 4.0: **missed**\n"
        );
        assert_eq!(growth(&rows), "");
        assert_eq!(
            sustained(&rows),
            "Where the program waits for it, the checker takes 0.4 (two threads) to 1.7 \
             (mostly DRAM, 5 % PM) million events a second.\n"
        );
        assert!(sustained(&[]).starts_with("No program had to wait"));
        assert!(table(&rows, 3).contains("| 1.000 | 1.200 | 1.20 | 2,000,000 | 1.7 | 25 % | 10 |"));
    }

    #[test]
    fn reports_are_read_or_refused() {
        let report = br#"{"statistics": {"events": 12, "wall_s": 2.0, "target_waited_s": 0.5}}"#;
        let run = ToolRun::parse(report, 7).expect("it is complete");
        assert_eq!((run.events, run.peak_kib), (12, 7));
        assert!((run.waited_share - 0.25).abs() < 1e-12);
        for bad in [&b"{}"[..], b"", b"{\"statistics\": {\"events\": 1}}"] {
            assert!(ToolRun::parse(bad, 0).is_err());
        }
    }

    #[test]
    fn peak_is_of_the_child() {
        let mut child = Command::new("sleep").arg("0.2").spawn().expect("sleep");
        let peak = Peak::watch(&child);
        child.wait().expect("it is our child");
        let kib = peak.stop();
        assert!((100..100_000).contains(&kib), "{kib} KiB for sleep");
    }
}

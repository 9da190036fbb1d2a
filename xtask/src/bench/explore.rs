//! `cargo xtask bench explore`: how much `brownout explore` has to run, how long that takes, and
//! how much slower one recovery is under it.
//!
//! ```text
//!  case ─┬─▶ explore, once                                   ─▶ points, executions, eager states, seconds
//!        └─▶ (native recovery, the same under explore) × N   ─▶ slowdown
//! ```
//!
//! Each case is explored once, with one job a processor. The number of executions depends on the
//! jobs, and with several differs by a few from run to run. Times of one recovery are measured in
//! rounds, native and tool in turn: both recover the pool as the commands leave it. Under the tool
//! that is the first recovery of an exploration of nothing but opening and closing the pool
//! (`one_recovery_s`); no other recovery runs beside it. Laying down the crash image before, and
//! looking up what was read afterwards, are not part of it; they are part of the seconds of the
//! whole exploration.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::numbers::grouped;
use brownout_findings::{Coverage, Limit};
use brownout_tests::layout;
use serde_json::{Value, json};

use super::common::{Options, Side, Times, expect_success, median, seconds, text_of, verdict};
use super::places::{Places, remove_if_there};
use crate::shell;

const MAPS: [&str; 7] = [
    "btree",
    "rbtree",
    "rtree",
    "skiplist",
    "hashmap_tx",
    "hashmap_atomic",
    "hashmap_rp",
];

/// Inserts and removals, drawn at random once, so that runs can be compared.
const COMMANDS: [&str; 20] = [
    "i 21", "i 26", "i 5", "i 7", "i 4", "i 14", "r 7", "i 16", "r 4", "r 16", "r 26", "i 38",
    "i 37", "i 4", "i 3", "i 9", "r 14", "i 37", "r 9", "i 7",
];
const COMMANDS_QUICK: usize = 5;

/// Recovery opens the pool and looks up all keys from 1 to this.
const KEY_MAX: u32 = 60;

/// The row whose pool is made under the tool.
const CREATION: &str = "pool creation (btree)";
const CREATION_COMMANDS: [&str; 2] = ["i 5", "i 7"];

const SECONDS_MAX: f64 = 20.0;
const SLOWDOWN_MAX: f64 = 3.0;

/// Nothing was found, but not all was explored.
const EXIT_INCOMPLETE: i32 = 3;

struct Case {
    name: String,
    map: &'static str,
    /// The pool is made before; else making it is explored, too.
    set_up: bool,
    commands: &'static [&'static str],
}

/// Runs it and prints the tables.
pub fn bench(options: &Options) -> Result<()> {
    let cases = options.select(cases(options.quick), |case| &case.name)?;
    let bench = Bench::new()?;
    let mut explored = Vec::new();
    for case in &cases {
        eprintln!("exploring {} …", case.name);
        explored.push(bench.explore(case)?);
    }
    let pools = cases
        .iter()
        .map(|case| bench.filled(case))
        .collect::<Result<Vec<_>>>()?;
    let times = super::common::interleave(cases.len(), options.rounds(), |index, side| {
        bench.recover(&cases[index], &pools[index], side)
    })?;
    let rows: Vec<Row> = cases
        .iter()
        .zip(explored)
        .zip(times)
        .map(|((case, explored), times)| Row {
            case,
            explored,
            times,
        })
        .collect();
    println!("{}", table(&rows, options.rounds()));
    println!("{}", findings(&rows));
    match options.quick {
        true => println!(
            "Goals are for all {} commands: leave out --quick.",
            COMMANDS.len()
        ),
        false => println!("{}", goals(&rows)),
    }
    options.write_rows(rows.iter().map(Row::json).collect())
}

fn cases(quick: bool) -> Vec<Case> {
    let commands: &[&str] = match quick {
        true => &COMMANDS[..COMMANDS_QUICK],
        false => &COMMANDS,
    };
    let mut cases: Vec<Case> = MAPS
        .iter()
        .map(|&map| Case {
            name: map.to_owned(),
            map,
            set_up: true,
            commands,
        })
        .collect();
    cases.push(Case {
        name: CREATION.to_owned(),
        map: "btree",
        set_up: false,
        commands: &CREATION_COMMANDS,
    });
    cases
}

// ---------------------------------------------------------------------- running

/// What an exploration told.
struct Explored {
    /// As it stood in the report.
    statistics: Value,
    failure_points: u64,
    uncertain_lines: u64,
    executions: u64,
    known: u64,
    eager_log10: f64,
    recovery: Duration,
    /// Of its coverage, what counts for the verdict. What explorations leave out unasked, and is
    /// accepted from the beginning, is in all rows alike.
    open: Vec<Limit>,
    /// Rule and message of each.
    findings: Vec<(String, String)>,
    wall: Duration,
}

impl Explored {
    fn parse(report: &[u8], wall: Duration) -> Result<Explored> {
        let report: Value = serde_json::from_slice(report).context("the report is no JSON")?;
        let statistics = &report["statistics"];
        let lacks = |name: &str| format!("the report has no statistics.{name}");
        let count = |name: &str| statistics[name].as_u64().with_context(|| lacks(name));
        let real = |name: &str| statistics[name].as_f64().with_context(|| lacks(name));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let findings = report["findings"]
            .as_array()
            .context("the report has no findings, not even none")?;
        let coverage: Coverage = serde_json::from_value(report["coverage"].clone())
            .context("the report does not say what was looked at")?;
        Ok(Explored {
            failure_points: count("failure_points")?,
            uncertain_lines: count("uncertain_lines")?,
            executions: count("executions")?,
            known: count("executions_saved")?,
            eager_log10: real("eager_states_log10")?,
            recovery: Duration::try_from_secs_f64(real("recovery_s")?)?,
            open: coverage.open(),
            findings: findings
                .iter()
                .map(|finding| (text(&finding["rule"]), text(&finding["message"])))
                .collect(),
            statistics: statistics.clone(),
            wall,
        })
    }
}

/// Where runs work, and what they all use.
struct Bench {
    places: Places,
    mapcli: String,
}

impl Bench {
    fn new() -> Result<Bench> {
        let bench = Bench {
            places: Places::new()?,
            mapcli: text_of(layout::examples().join("mapcli")),
        };
        let look: String = (1..=KEY_MAX).map(|key| format!("c {key}\n")).collect();
        fs::write(bench.places.scratch.join("look"), look)?;
        Ok(bench)
    }

    /// A whole exploration.
    fn explore(&self, case: &Case) -> Result<Explored> {
        let pool = text_of(self.places.pools.join("explored.pool"));
        remove_if_there(Path::new(&pool))?;
        self.write_commands(case)?;
        let mut options = vec!["--oracle", "ops", "--stdin", "commands"];
        let set_up = format!(
            "{} {} {} < /dev/null",
            shell::quoted(&self.mapcli),
            case.map,
            shell::quoted(&pool)
        );
        if case.set_up {
            options.extend(["--setup", &set_up]);
        }
        let explored = self.run_tool(case, &options, &pool)?;
        remove_if_there(Path::new(&pool))?;
        Ok(explored)
    }

    /// A pool of its own for each case, as the commands leave it.
    fn filled(&self, case: &Case) -> Result<String> {
        let pool = text_of(self.places.pools.join(&format!("{}.pool", case.name)));
        remove_if_there(Path::new(&pool))?;
        self.write_commands(case)?;
        self.run_natively(case, &pool, "commands")?;
        Ok(pool)
    }

    /// The time of one recovery.
    fn recover(&self, case: &Case, pool: &str, side: Side) -> Result<Duration> {
        match side {
            Side::Native => self.run_natively(case, pool, "look"),
            Side::Tool => {
                let explored = self.run_tool(case, &["--stdin", "/dev/null"], pool)?;
                let one = explored.statistics["one_recovery_s"].as_f64();
                let one = one.context("the report has no statistics.one_recovery_s")?;
                Ok(Duration::try_from_secs_f64(one)?)
            }
        }
    }

    fn run_natively(&self, case: &Case, pool: &str, input: &str) -> Result<Duration> {
        let folder = self.places.scratch.path();
        let mut command = Command::new(&self.mapcli);
        command.arg(case.map).arg(pool);
        super::common::set_surroundings(&mut command, folder);
        command.stdin(Stdio::from(File::open(folder.join(input))?));
        let start = Instant::now();
        let output = command.output().context("cannot run mapcli")?;
        let time = start.elapsed();
        expect_success(&case.name, Side::Native, &output)?;
        Ok(time)
    }

    fn run_tool(&self, case: &Case, options: &[&str], pool: &str) -> Result<Explored> {
        let report = self.places.report();
        remove_if_there(&report)?;
        let mut command = Command::new(layout::brownout());
        command
            .args(["explore", "--no-config", "--depth", "1"])
            .args(["--fail-on", "never", "--recover-stdin", "look"])
            .args(options)
            .args(["--format", "json", "-o"])
            .arg(&report)
            .args(["--", &self.mapcli, case.map, pool]);
        super::common::set_surroundings(&mut command, self.places.scratch.path());
        let start = Instant::now();
        let output = command.output().context("cannot run brownout")?;
        let wall = start.elapsed();
        if output.status.code() != Some(EXIT_INCOMPLETE) {
            expect_success(&case.name, Side::Tool, &output)?;
        }
        let report = fs::read(&report).context("the tool left no report")?;
        let explored = Explored::parse(&report, wall)?;
        ensure!(
            explored.statistics["resumed"] == 0,
            "{} went on with an earlier exploration: its time says nothing",
            case.name
        );
        if explored.executions == 0 {
            bail!("{} explored nothing", case.name);
        }
        Ok(explored)
    }

    fn write_commands(&self, case: &Case) -> Result<()> {
        let text = case.commands.join("\n") + "\n";
        Ok(fs::write(self.places.scratch.join("commands"), text)?)
    }
}

// ---------------------------------------------------------------------- tables

/// What one line of the table is made from.
struct Row<'a> {
    case: &'a Case,
    explored: Explored,
    times: Times,
}

impl Row<'_> {
    fn json(&self) -> Value {
        json!({
            "name": self.case.name,
            "wall_s": self.explored.wall.as_secs_f64(),
            "statistics": self.explored.statistics,
            "findings": self.explored.findings,
            "native_s": seconds(&self.times.native),
            "tool_s": seconds(&self.times.tool),
        })
    }

    /// Of all recoveries of the exploration, several at a time.
    fn mean_recovery_s(&self) -> f64 {
        self.explored.recovery.as_secs_f64() / self.explored.executions as f64
    }

    fn executions_per_point(&self) -> f64 {
        self.explored.executions as f64 / self.explored.failure_points as f64
    }

    fn wall_s(&self) -> f64 {
        self.explored.wall.as_secs_f64()
    }
}

fn table(rows: &[Row<'_>], rounds: usize) -> String {
    let mut text = format!(
        "One exploration each; native and one recovery: medians of {rounds} rounds, in turn.\n\n\
         | program | failure points | uncertain lines | executions | known without running | eager states | findings | s \
         | mean recovery ms | native ms | one recovery ms | slowdown |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for row in rows {
        let explored = &row.explored;
        let _ = writeln!(
            text,
            "| {}{} | {} | {} | {} | {} | 10^{:.0} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} |",
            row.case.name,
            left_open(&explored.open),
            grouped(explored.failure_points),
            grouped(explored.uncertain_lines),
            grouped(explored.executions),
            grouped(explored.known),
            explored.eager_log10,
            explored.findings.len(),
            row.wall_s(),
            row.mean_recovery_s() * 1e3,
            median(&row.times.native) * 1e3,
            median(&row.times.tool) * 1e3,
            row.times.ratio()
        );
    }
    text
}

/// What was not explored, behind the name of a row.
fn left_open(open: &[Limit]) -> String {
    let open: Vec<&str> = open.iter().map(|limit| limit.name()).collect();
    match open[..] {
        [] => String::new(),
        _ => format!(", incomplete ({})", open.join(", ")),
    }
}

/// What was found: minimising and explaining it is part of the executions.
fn findings(rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    for row in rows {
        for (rule, message) in &row.explored.findings {
            let _ = writeln!(text, "- {} found {rule}: {message}", row.case.name);
        }
    }
    text
}

/// What the project promises for the maps, beside the worst that was measured.
fn goals(rows: &[Row<'_>]) -> String {
    let worst = |of: fn(&Row<'_>) -> f64| {
        let maps = rows.iter().filter(|row| row.case.set_up);
        maps.map(|row| (of(row), row.case.name.as_str()))
            .max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let mut text = String::new();
    if let Some((share, name)) = worst(|row| row.executions_per_point()) {
        let _ = writeln!(
            text,
            "- executions to a failure point, at most: {share:.2} ({name}), goal below 1: {}",
            verdict(share < 1.0)
        );
    }
    if let Some((slowdown, name)) = worst(|row| row.times.ratio()) {
        let _ = writeln!(
            text,
            "- slowdown of one recovery, at most: {slowdown:.2} ({name}), goal {SLOWDOWN_MAX:.0}: {}",
            verdict(slowdown <= SLOWDOWN_MAX)
        );
    }
    if let Some((wall_s, name)) = worst(|row| row.wall_s()) {
        let _ = writeln!(
            text,
            "- seconds of one exploration, at most: {wall_s:.1} ({name}), goal {SECONDS_MAX:.0} on two cores: {}",
            verdict(wall_s <= SECONDS_MAX)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &[u8] = br#"{
        "findings": [{"rule": "recovery-crash", "message": "it is killed"}],
        "coverage": {"limitations": [{"kind": "checksummed", "text": "as always", "accepted": true}]},
        "statistics": {"failure_points": 200, "uncertain_lines": 7000, "executions": 50, "executions_saved": 1234,
            "eager_states_log10": 46.82, "recovery_s": 2.0, "complete": true}
    }"#;

    fn row(case: &Case, tool_ms: u64) -> Row<'_> {
        let wall = Duration::from_secs(4);
        let ms = |n| vec![Duration::from_millis(n)];
        Row {
            case,
            explored: Explored::parse(REPORT, wall).expect("it is complete"),
            times: Times {
                native: ms(10),
                tool: ms(tool_ms),
            },
        }
    }

    #[test]
    fn a_line_has_counts_times_and_the_slowdown() {
        let cases = cases(true);
        let text = table(&[row(&cases[0], 25)], 3);
        let line =
            "| btree | 200 | 7,000 | 50 | 1,234 | 10^47 | 1 | 4.0 | 40.0 | 10.0 | 25.0 | 2.50 |";
        assert!(text.contains(line), "{text}");
        assert_eq!(
            findings(&[row(&cases[1], 25)]),
            "- rbtree found recovery-crash: it is killed\n"
        );
    }

    #[test]
    fn an_exploration_that_was_cut_short_says_so() {
        let cases = cases(true);
        let mut row = row(&cases[0], 25);
        row.explored.open = vec![Limit::Time, Limit::Abandoned];
        let text = table(&[row], 3);
        assert!(
            text.contains("| btree, incomplete (time, abandoned) |"),
            "{text}"
        );
    }

    #[test]
    fn goals_are_those_of_the_worst_map_and_creation_has_none() {
        let cases = cases(true);
        let mut rows = vec![row(&cases[0], 25), row(&cases[1], 31), row(&cases[7], 99)];
        rows[0].explored.executions = 200;
        rows[1].explored.wall = Duration::from_secs(21);
        rows[2].explored.wall = Duration::from_secs(99);
        assert_eq!(
            goals(&rows),
            "- executions to a failure point, at most: 1.00 (btree), goal below 1: **missed**\n\
             - slowdown of one recovery, at most: 3.10 (rbtree), goal 3: **missed**\n\
             - seconds of one exploration, at most: 21.0 (rbtree), goal 20 on two cores: **missed**\n"
        );
        assert_eq!(goals(&rows[2..]), "");
        let good = goals(&[row(&cases[0], 30)]);
        assert_eq!(good.matches(": met\n").count(), 3, "{good}");
    }

    #[test]
    fn reports_without_their_numbers_are_refused() {
        for bad in [
            "",
            "{}",
            r#"{"findings": [], "statistics": {"executions": 1}}"#,
            &String::from_utf8_lossy(REPORT).replace("coverage", "covered"),
        ] {
            assert!(
                Explored::parse(bad.as_bytes(), Duration::ZERO).is_err(),
                "{bad}"
            );
        }
    }
}

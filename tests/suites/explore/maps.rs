//! The maps of libpmemobj's examples, driven by `mapcli`: each line of input is an operation that
//! must be atomic.
//!
//! Six maps survive every crash. `hashmap_atomic` does not: at the end of a rebuild it assigns a
//! 16-byte object id that straddles two lines, and half of it may survive. Neither does the
//! creation of a pool: `mapcli` creates one only if there is no file, so a crash in
//! `pmemobj_create` leaves a file that nobody can open.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::Finding;
use brownout_tests::check::{is_at_line, is_inside, show};
use brownout_tests::explore::{self, Explored, blamed, reproduction};
use brownout_tests::{Invocation, Scratch, examples};
use libtest_mimic::Trial;

use crate::{replay, trial};

const TIMEOUT: Duration = Duration::from_secs(300);

/// What is said of the examples holds for this version.
const UPSTREAM: &str = "1.12.1";

/// Twenty operations; enough for nodes to split and merge, and for hash tables to grow.
const COMMANDS: &str =
    "i 1,i 2,i 3,i 4,i 5,i 6,r 2,i 7,i 8,r 5,i 9,i 10,i 11,r 1,i 12,i 13,r 8,r 12,i 14,r 3";

/// The hash table keeps its first size.
const FEW_COMMANDS: &str = "i 10,i 20,i 30,i 5";

/// Maps that survive every crash.
const SOUND: &[&str] = &[
    "btree",
    "rbtree",
    "rtree",
    "skiplist",
    "hashmap_tx",
    "hashmap_rp",
];

/// The statement that tears an object id.
const TEARS: (&str, u32, &str) = (
    "hashmap/hashmap_atomic.c",
    169,
    "D_RW(hashmap)->buckets = D_RO(hashmap)->buckets_tmp;",
);

/// The statement that creates a pool; compilers count the condition before it to it.
const CREATES: (&str, u32, &str) = (
    "map/mapcli.c",
    219,
    "pop = pmemobj_create(path, POBJ_LAYOUT_NAME(map),",
);

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = SOUND
        .iter()
        .map(|map| trial(format!("maps::{map}"), || sound(map)))
        .collect();
    trials.extend([
        trial("maps::two_crashes", two_crashes),
        trial("maps::hashmap_atomic_rebuilds", torn_id),
        trial("maps::hashmap_atomic_does_not_rebuild", no_rebuild),
        trial("maps::creation", creation),
    ]);
    trials
}

/// Explores the commands on a map that exists already. Recovery looks up every key that is used.
pub fn explore_map(map: &str, commands: &str, more: &[&str], folder: &Path) -> Result<Explored> {
    for package in ["libpmemobj-dev", "libpmemobj1"] {
        examples::expect_version(package, UPSTREAM)?;
    }
    let mapcli = examples::binary("mapcli")?;
    // Hash functions are chosen by the seed.
    let seed = "7";
    let setup = format!(
        "rm -f pool; {} {map} pool {seed} < /dev/null",
        mapcli.display()
    );
    write_commands(commands, folder)?;
    let native = mapcli_on(map, folder)?;
    let mut options = vec!["--setup", &setup, "--stdin", "commands"];
    options.extend(["--recover-stdin", "lookups", "--oracle", "ops"]);
    options.extend(more);
    explore::run(&native, &options)
}

/// Explores without a set-up: the run creates the pool and the map.
fn explore_creation(folder: &Path) -> Result<Explored> {
    write_commands("i 10", folder)?;
    let native = mapcli_on("btree", folder)?;
    explore::run(&native, &["--stdin", "commands", "--depth", "1"])
}

/// Explores a hash table that grows, and tears an object id.
fn explore_rebuild(folder: &Path) -> Result<Explored> {
    explore_map("hashmap_atomic", COMMANDS, &["--depth", "1"], folder)
}

fn mapcli_on(map: &str, folder: &Path) -> Result<Invocation> {
    let mapcli = examples::binary("mapcli")?;
    let words = [mapcli.as_os_str(), map.as_ref(), "pool".as_ref()];
    Ok(Invocation::new(words, folder).timeout(TIMEOUT))
}

fn write_commands(commands: &str, folder: &Path) -> Result<()> {
    let lines: Vec<&str> = commands.split(',').collect();
    let mut keys: Vec<u32> = Vec::new();
    for line in &lines {
        let (_, key) = line.split_once(' ').context("a command has a key")?;
        keys.push(key.parse()?);
    }
    keys.sort_unstable();
    keys.dedup();
    let lookups: String = keys.iter().map(|key| format!("c {key}\n")).collect();
    fs::write(folder.join("commands"), lines.join("\n") + "\n")?;
    fs::write(folder.join("lookups"), lookups)?;
    Ok(())
}

/// Most outcomes are known without a run: there are not many more recoveries than places at which
/// the power may fail, although there are many crash states at each. (Some are run to see that a
/// log with a wrong checksum is ignored.)
fn expect_few_runs(explored: &Explored) -> Result<()> {
    let (runs, points) = (
        explored.number("executions")?,
        explored.number("failure_points")?,
    );
    ensure!(
        runs < 2 * points,
        "{runs} recoveries for {points} failure points"
    );
    Ok(())
}

fn sound(map: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let explored = explore_map(map, COMMANDS, &["--depth", "1"], scratch.path())?;
    explored.expect_clean()?;
    expect_few_runs(&explored)
}

/// Recoveries that are themselves cut short.
fn two_crashes() -> Result<()> {
    let scratch = Scratch::new()?;
    let explored = explore_map("rtree", "i 10", &["--depth", "2"], scratch.path())?;
    explored.expect_clean()?;
    ensure!(explored.number("depth")? == 2);
    ensure!(explored.number("nested_recoveries")? > 0);
    Ok(())
}

fn torn_id() -> Result<()> {
    let (file, line, statement) = TEARS;
    examples::expect_statement(file, line, statement)?;
    let scratch = Scratch::new()?;
    let explored = explore_rebuild(scratch.path())?;
    explored.expect_findings()?;
    expect_few_runs(&explored)?;
    let findings = &explored.report.findings;
    let cause = &findings[0].root_cause;
    for finding in findings {
        ensure!(
            is_torn_id(finding)? && finding.root_cause == *cause,
            "more than the known bug\n{}",
            show(&explored.report)
        );
    }
    replay::shows_again(&findings[0], scratch.path())
}

fn is_torn_id(finding: &Finding) -> Result<bool> {
    let (file, line, _) = TEARS;
    let name = file.rsplit('/').next().unwrap_or(file);
    let event = blamed(finding)?;
    Ok(finding.rule == "recovery-crash"
        && reproduction(finding)?.status == "signal 11"
        && is_at_line(event, name, line))
}

fn no_rebuild() -> Result<()> {
    let scratch = Scratch::new()?;
    let options = ["--depth", "1"];
    let explored = explore_map("hashmap_atomic", FEW_COMMANDS, &options, scratch.path())?;
    explored.expect_clean()
}

/// A crash in the creation leaves a file that cannot be opened, natively as well.
fn creation() -> Result<()> {
    let (file, line, statement) = CREATES;
    examples::expect_statement(file, line, statement)?;
    let scratch = Scratch::new()?;
    let explored = explore_creation(scratch.path())?;
    explored.expect_findings()?;
    let mut in_creation = explored.report.findings.iter().filter(|finding| {
        let creates = |event: &_| {
            is_inside(event, "pmemobj_create")
                && (line - 1..=line).any(|line| is_at_line(event, "mapcli.c", line))
        };
        finding.rule == "recovery-error" && blamed(finding).is_ok_and(creates)
    });
    let finding = in_creation
        .next()
        .with_context(|| format!("nothing in the creation\n{}", show(&explored.report)))?;
    ensure!(!scratch.join("pool").exists(), "the pool is left behind");

    let elsewhere = Scratch::new()?;
    let image = reproduction(finding)?.files[0].image.as_ref();
    fs::copy(
        image.context("the crash leaves no file")?,
        elsewhere.join("pool"),
    )?;
    write_commands("c 10", elsewhere.path())?;
    let native = mapcli_on("btree", elsewhere.path())?
        .stdin(&elsewhere.join("commands"))
        .run()?;
    ensure!(native.status == 1, "{}", native.describe());
    ensure!(
        native.stderr_text().contains("failed to open pool"),
        "{}",
        native.describe()
    );
    replay::shows_again(finding, scratch.path())
}

//! `cargo xtask test`: all that must hold, in the order of how fast it fails.
//!
//! Then the suites that depend on the processor once more for each of `brownout_tests::cpu::MASKS`,
//! with features hidden from tests, tool and programs: the next machine shall bring no surprise.
//! The closing lines have the counts side by side, and what could not be executed.

use std::env;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use brownout_abi::cpu::{Feature, Features, HIDE_VARIABLE};
use brownout_tests::{cpu, layout, random_code};

use crate::selection::Selection;
use crate::{apart, build, comments, dependencies, graph, setup, shell};

/// Everything, or what the words select.
pub fn test(words: &[&str]) -> Result<ExitCode> {
    let start = Instant::now();
    let selection = Selection::parse(words)?;
    if selection.fast {
        let totals = fast(&selection)?;
        return Ok(conclude(totals, start));
    }
    step("packages", setup::setup)?;
    step("format", check_format)?;
    step("comments", comments::check)?;
    step("module graph", graph::graph)?;
    step("lints", || {
        lint(&[])?;
        apart::lint()
    })?;
    step("documentation", || {
        shell::run(
            shell::cargo()
                .args(["doc", "--quiet", "--release", "--workspace", "--no-deps"])
                .arg("--locked")
                .env("RUSTDOCFLAGS", "--deny warnings"),
        )
    })?;
    step("dependencies", dependencies::check)?;
    step("tool, tests, programs, examples", build::with_tests)?;
    if selection.is_everything() {
        step("the engine's unit tests", apart::test_engine)?;
    }
    println!("== tests");
    let mut totals = if shell::exists("cargo-nextest") {
        nextest(&selection)?
    } else {
        cargo_test(&selection.names)?
    };
    if selection.is_everything() {
        let mut runs = vec![("all features".to_owned(), totals, Features::NONE)];
        for mask in cpu::MASKS {
            let hidden = Features::parse(mask).map_err(|word| anyhow!("no feature {word}"))?;
            println!("== tests without {mask}");
            let masked = without(mask, hidden)?;
            totals.passed += masked.passed;
            totals.failed += masked.failed;
            runs.push((format!("without {mask}"), masked, hidden));
        }
        for (name, _, hidden) in &runs {
            println!(
                "{name}: random code and pm_all_insns execute {}",
                random_code::forms(*hidden)
            );
        }
        let counts = runs
            .iter()
            .map(|(name, run, _)| format!("{name}: {} passed, {} failed", run.passed, run.failed));
        println!("{}", counts.collect::<Vec<_>>().join("; "));
    }
    Ok(conclude(totals, start))
}

/// What tells most in a minute; with crates picked, what concerns them.
fn fast(selection: &Selection) -> Result<Totals> {
    step("format", check_format)?;
    step("comments", comments::check)?;
    if selection.picks_packages() {
        step("lints", || {
            if selection.engine {
                apart::lint_engine()?;
                apart::test_engine()?;
            }
            match selection.packages.as_slice() {
                [] => Ok(()),
                packages => lint(packages),
            }
        })?;
    }
    // A crate's own tests need nothing but cargo; whole programs need the tool, and must be there
    // themselves.
    let with_programs = !selection.picks_packages() || selection.engine;
    if with_programs {
        step("tool, programs, examples", build::build)?;
    }
    println!("== tests");
    if !shell::exists("cargo-nextest") {
        // It cannot pick across crates, so the whole programs are left to the full run.
        let mut command = cargo_test_command();
        match selection.packages.as_slice() {
            [] => command.args(["--workspace", "--exclude", "brownout-tests"]),
            packages => command.args(packages.iter().flat_map(|name| ["--package", name])),
        };
        if !selection.names.is_empty() {
            command.arg("--").args(&selection.names);
        }
        return cargo_test_totals(&mut command);
    }
    let mut sets: Vec<String> = selection
        .packages
        .iter()
        .map(|package| format!("package({package})"))
        .collect();
    if !selection.picks_packages() {
        sets.push("not package(brownout-tests)".into());
    }
    let mut command = nextest_command();
    if with_programs {
        sets.push(SMOKE.into());
        command.arg("--workspace");
    } else {
        // Only these are built, which is most of the time that is gained.
        command.args(
            selection
                .packages
                .iter()
                .flat_map(|name| ["--package", name]),
        );
    }
    command
        .args(["-E", &sets.join(" | ")])
        .args(&selection.names);
    nextest_totals(&mut command)
}

fn conclude(totals: Totals, start: Instant) -> ExitCode {
    println!(
        "{} passed, {} failed ({} s)",
        totals.passed,
        totals.failed,
        start.elapsed().as_secs()
    );
    if totals.failed == 0 && totals.passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn check_format() -> Result<()> {
    shell::run(shell::cargo().args(["fmt", "--all", "--check"]))?;
    apart::check_format()
}

/// clippy on these packages; on all members of the workspace, if none is named. It looks at the
/// profile that is tested, so that build scripts (the engine, zstd) and macros are compiled once
/// for both.
fn lint(packages: &[String]) -> Result<()> {
    let mut command = shell::cargo();
    command.args(["clippy", "--quiet", "--release", "--all-targets"]);
    match packages {
        [] => command.arg("--workspace"),
        packages => command.args(packages.iter().flat_map(|name| ["--package", name])),
    };
    shell::run(command.args(["--", "--deny", "warnings"]))
}

/// Golden tests write instead of comparing when they see this variable.
pub fn bless() -> Result<()> {
    setup::setup()?;
    graph::bless()?;
    build::build()?;
    shell::run(
        shell::cargo()
            .env("BLESS", "1")
            .env("INSTA_UPDATE", "always")
            .args([
                "test",
                "--workspace",
                "--exclude",
                "brownout-tests",
                "--quiet",
            ]),
    )
}

fn step(name: &str, action: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("== {name}");
    let start = Instant::now();
    action().with_context(|| format!("step `{name}` failed"))?;
    println!("   {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Totals {
    passed: u64,
    failed: u64,
}

/// The suites that depend on which instructions there are: for vectors, code of every kind; for
/// write-backs, the programs that use them. What crashes leave of the seeded programs natively
/// (`native::`, `crash::`) is the same with `clflushopt` as with `clwb`: only `clflush` is another
/// kind of write-back.
const VECTORS: &str = "binary(random_blocks) \
    | (package(brownout-insn) & kind(test)) \
    | (binary(transparency) & test(/^program::(cpu_info|fp_arith|flags|memory|rep_string|sig_storm_regs|pm_all_insns)/)) \
    | (binary(completeness) & test(/pm_all_insns/)) \
    | (binary(check) & test(/^processor::/))";
const WRITE_BACKS: &str = "(binary(seeded) & test(/^(check::|canary)/)) \
    | (package(brownout-host) & binary(lean)) \
    | (binary(transparency) & test(/^program::(pm_|litmus_vm)/)) \
    | (binary(completeness) & test(/pm_/)) \
    | (binary(explore) & test(/^generated::(eadr|seeds_000)/)) \
    | (binary(check) & test(/^processor::/))";
const ORDERED_WRITE_BACKS: &str = "binary(seeded)";

/// A few whole programs for `--fast`: translation (flags, strings, signal frames, threads,
/// processes), recording of every kind of instruction, the planted bugs and their fixed twins,
/// exploration against brute force, and every canary. Each takes a second or less, but for the
/// exploration.
const SMOKE: &str = "test(/canary/) \
    | (binary(transparency) & test(/^program::(flags|rep_string|sig_ucontext|threads64|pm_forks)$/)) \
    | (binary(completeness) & test(/^programs::pm_all_insns_at_a_fixed_address$/)) \
    | (binary(seeded) & test(/^check::correctness/)) \
    | (binary(explore) & test(/^generated::seeds_000/))";

/// The suites that depend on the processor, with features hidden.
fn without(mask: &str, hidden: Features) -> Result<Totals> {
    let vectors = hidden.has(Feature::Avx512);
    if shell::exists("cargo-nextest") {
        let mut suites = vec![if vectors { VECTORS } else { WRITE_BACKS }];
        if hidden.has(Feature::Clflushopt) {
            suites.push(ORDERED_WRITE_BACKS);
        }
        let mut command = nextest_command();
        command
            .env(HIDE_VARIABLE, mask)
            .args(["--workspace", "-E", &suites.join(" | ")]);
        return nextest_totals(&mut command);
    }
    let mut command = cargo_test_command();
    command.env(HIDE_VARIABLE, mask);
    match vectors {
        true => command.args(["--package", "brownout-insn", "--package", "brownout-tests"]),
        false => command.args(["--package", "brownout-tests"]),
    };
    command.args(["--test", if vectors { "random_blocks" } else { "seeded" }]);
    if vectors {
        command.args(["--test", "native", "--test", "usage"]);
    }
    cargo_test_totals(&mut command)
}

/// nextest runs each test in its own process and knows how many are slow.
fn nextest(selection: &Selection) -> Result<Totals> {
    let totals = nextest_totals(nextest_command().arg("--workspace").args(&selection.names));
    // Documentation examples are not nextest's business.
    let mut doc = shell::cargo();
    doc.args(["test", "--workspace", "--release", "--doc", "--quiet"]);
    let doc_failed =
        selection.is_everything() && !doc.status().context("cannot run cargo")?.success();
    let mut totals = totals?;
    totals.failed += u64::from(doc_failed);
    Ok(totals)
}

fn nextest_command() -> Command {
    let mut command = shell::cargo();
    command
        .args([
            "nextest",
            "run",
            "--release",
            "--no-fail-fast",
            "--config-file",
        ])
        .arg(layout::workspace().join("xtask/nextest.toml"))
        .args(["--test-threads", &places().to_string()])
        // Not the examples, which are none.
        .arg("--tests")
        .args([
            "--status-level",
            "fail",
            "--final-status-level",
            "fail",
            "--color",
            "never",
        ]);
    command
}

/// What a test takes two of, and one that mostly waits takes one; `nextest.toml` says which.
fn places() -> usize {
    2 * std::thread::available_parallelism().map_or(2, usize::from) + 2
}

fn nextest_totals(command: &mut Command) -> Result<Totals> {
    let text = run_and_keep_stderr(command)?;
    // "Summary [ 12.3s] 40 tests run: 38 passed (1 slow), 2 failed, 3 skipped"
    let summary = text
        .lines()
        .rev()
        .find(|line| line.contains("tests run:") || line.contains("test run:"));
    let totals = summary.map(|line| Totals {
        passed: number_before(line, "passed"),
        failed: number_before(line, "failed") + number_before(line, "timed out"),
    });
    totals.context("nextest printed no summary; see above")
}

fn cargo_test_command() -> Command {
    let mut command = shell::cargo();
    command.args(["test", "--release", "--no-fail-fast", "--color", "never"]);
    command
}

fn cargo_test(names: &[String]) -> Result<Totals> {
    let mut command = cargo_test_command();
    command.arg("--workspace");
    if !names.is_empty() {
        command.arg("--").args(names);
    }
    cargo_test_totals(&mut command)
}

fn cargo_test_totals(command: &mut Command) -> Result<Totals> {
    let output = command.output().context("cannot run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let mut totals = Totals::default();
    // "test result: ok. 3 passed; 0 failed; …", once per test binary.
    for line in text
        .lines()
        .filter(|line| line.starts_with("test result: "))
    {
        totals.passed += number_before(line, "passed");
        totals.failed += number_before(line, "failed");
    }
    if !output.status.success() && totals.failed == 0 {
        // It did not get as far as running all of them.
        totals.failed = 1;
    }
    Ok(totals)
}

/// Passes stderr through line by line and returns it; nextest's report goes there.
fn run_and_keep_stderr(command: &mut Command) -> Result<String> {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let mut child = command
        .env("CARGO_TERM_PROGRESS_WHEN", "never")
        .env(
            "NEXTEST_HIDE_PROGRESS_BAR",
            env::var("NEXTEST_HIDE_PROGRESS_BAR").unwrap_or("1".into()),
        )
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo nextest")?;
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            eprintln!("{line}");
            text.push_str(&line);
            text.push('\n');
        }
    }
    child.wait()?;
    Ok(text)
}

/// The number in front of a word: 38 in "38 passed (1 slow)".
fn number_before(line: &str, word: &str) -> u64 {
    line.find(word)
        .and_then(|at| line[..at].split_whitespace().next_back())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_understood() {
        let line = "     Summary [  12.345s] 40 tests run: 37 passed (1 slow), 2 failed, 1 timed out, 3 skipped";
        assert_eq!(number_before(line, "passed"), 37);
        assert_eq!(number_before(line, "failed"), 2);
        assert_eq!(number_before(line, "timed out"), 1);
        assert_eq!(
            number_before("test result: ok. 3 passed; 0 failed; 0 ignored", "passed"),
            3
        );
        assert_eq!(number_before("nothing here", "failed"), 0);
    }
}

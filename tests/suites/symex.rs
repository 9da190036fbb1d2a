//! `brownout symex` on whole programs.
//!
//! | trials | what |
//! |---|---|
//! | `found::` | from blanks, the input that shows the bug is solved for; the native program stores what that input says; the token shows it again |
//! | `silent::` | nothing is found in the fixed twin |
//! | `plain::` | the C library chooses functions that are described, whatever the processor has |
//! | `real::` | programs that nobody wrote for this: they make new paths, and do not diverge |
//! | `usage::` | what cannot be searched is said |

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::{Report, Severity};
use brownout_tests::symex::{Build, binary};
use brownout_tests::{Invocation, Outcome, Scratch, check, layout, trial};
use libtest_mimic::Arguments;

const TIMEOUT: Duration = Duration::from_secs(300);

fn main() {
    let arguments = Arguments::from_args();
    let trials = vec![
        trial("found::records", || found("records", Build::Bug)),
        trial("found::records_after_one", || {
            found("records", Build::BugAfterOne)
        }),
        trial("found::numbers", || found("numbers", Build::Bug)),
        trial("found::tokens", || found("tokens", Build::BugAfterOne)),
        trial("found::scan", || found("scan", Build::BugAfterOne)),
        trial("silent::records", || silent("records")),
        trial("silent::numbers", || silent("numbers")),
        trial("silent::words", || silent("words")),
        trial("plain::words", || plain("words")),
        trial("plain::scan", || plain("scan")),
        trial("real::gzip", || real("gzip", &["-t"], 16)),
        trial("real::sqlite3", || real("sqlite3", &[], 12)),
        trial("usage::reads_nothing", reads_nothing),
        trial("usage::compares_nothing", compares_nothing),
        trial("usage::no_bytes", no_bytes),
        trial("usage::no_such_program", no_such_program),
        trial("usage::set_up_fails", set_up_fails),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// `brownout symex` with these options, on this program.
fn run(options: &[&str], program: &[&str], scratch: &Scratch) -> Result<Outcome> {
    let brownout = layout::brownout();
    let mut argv = vec![
        brownout.as_os_str(),
        "symex".as_ref(),
        "--no-config".as_ref(),
    ];
    argv.extend(options.iter().map(std::ffi::OsStr::new));
    argv.push("--".as_ref());
    argv.extend(program.iter().map(std::ffi::OsStr::new));
    Invocation::new(argv, scratch.path()).timeout(TIMEOUT).run()
}

fn report(options: &[&str], program: &[&str], scratch: &Scratch) -> Result<(Outcome, Report)> {
    let mut all = vec!["--format", "json", "-o", "report.json"];
    all.extend(options);
    let outcome = run(&all, program, scratch)?;
    let text = fs::read_to_string(scratch.join("report.json"));
    let text = text.with_context(|| outcome.describe())?;
    Ok((outcome, serde_json::from_str(&text)?))
}

fn statistic(report: &Report, name: &str) -> u64 {
    let number = report
        .statistics
        .get(name)
        .and_then(serde_json::Value::as_u64);
    number.unwrap_or_default()
}

fn found(name: &str, build: Build) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = binary(name, build);
    let program = program.to_string_lossy();
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        "36",
        "--time",
        "240s",
        "--until-found",
    ];
    let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
    let mut findings = report.findings.iter();
    let finding = findings.find(|finding| finding.severity == Severity::Correctness);
    let finding =
        finding.with_context(|| format!("{}\n{}", outcome.describe(), check::show(&report)))?;
    ensure!(outcome.status == 1, "{}", outcome.describe());
    let first = report.statistics.get("first_error_seconds");
    ensure!(
        first.is_some_and(serde_json::Value::is_f64),
        "the report does not say when: {first:?}"
    );
    ensure!(
        finding.rule.as_str() == "missing-flush",
        "{}",
        check::show(&report)
    );
    ensure!(
        finding
            .events
            .iter()
            .any(|event| check::is_inside(event, "put")),
        "{}",
        check::show(&report)
    );
    ensure!(
        !scratch.join("pool").exists(),
        "the program's own file was made"
    );
    // The input is a file, and natively it does what the finding says: the special key is stored.
    let input = fs::read_dir(scratch.join("brownout-symex"))?
        .next()
        .context("an input")??
        .path();
    ensure!(special(&program, &input, &scratch)? == 4242);
    fs::remove_file(scratch.join("pool"))?;
    let token = &finding.replay.as_ref().context("a token")?.token;
    for _ in 0..3 {
        let outcome = check::replay(token, scratch.path())
            .timeout(TIMEOUT)
            .run()?;
        ensure!(
            outcome.status == 1 && outcome.stderr_text().contains("shows again"),
            "{}",
            outcome.describe()
        );
    }
    Ok(())
}

/// What the native program stores as the special key when it reads this.
fn special(program: &str, input: &Path, scratch: &Scratch) -> Result<u64> {
    const SPECIAL: usize = 192;
    let status = Command::new(program)
        .arg("pool")
        .current_dir(scratch.path())
        .stdin(Stdio::from(fs::File::open(input)?))
        .status()?;
    ensure!(status.code().is_some(), "{status}");
    let pool = fs::read(scratch.join("pool"))?;
    let bytes = pool.get(SPECIAL..).and_then(|rest| rest.first_chunk());
    Ok(u64::from_le_bytes(*bytes.context("a short pool")?))
}

fn silent(name: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = binary(name, Build::Fixed);
    let program = program.to_string_lossy();
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        "24",
        "--paths",
        "60",
        "--time",
        "240s",
    ];
    let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
    ensure!(report.findings.is_empty(), "{}", check::show(&report));
    // It says that it is a search, or that nothing was there to look at.
    ensure!(matches!(outcome.status, 0 | 3), "{}", outcome.describe());
    ensure!(statistic(&report, "paths") >= 40, "{}", outcome.describe());
    let (turned, diverged) = (statistic(&report, "turned"), statistic(&report, "diverged"));
    ensure!(diverged * 50 <= turned, "{diverged} of {turned} diverged");
    Ok(())
}

fn plain(name: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = binary(name, Build::Fixed);
    let program = program.to_string_lossy();
    let options = ["--pm", "pool", "--stdin-symbolic", "24", "--paths", "30"];
    let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
    ensure!(statistic(&report, "paths") >= 20, "{}", outcome.describe());
    let notes = report.notes.join("\n");
    ensure!(!notes.contains("not described"), "{notes}");
    Ok(())
}

fn real(program: &str, arguments: &[&str], bytes: u32) -> Result<()> {
    let scratch = Scratch::new()?;
    let bytes = bytes.to_string();
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        &bytes,
        "--paths",
        "25",
        "--time",
        "240s",
    ];
    let mut argv = vec![program];
    argv.extend(arguments);
    let (outcome, report) = report(&options, &argv, &scratch)?;
    // It has no persistent memory, and the report says so.
    ensure!(outcome.status == 3, "{}", outcome.describe());
    ensure!(statistic(&report, "paths") >= 5, "{}", outcome.describe());
    let (turned, diverged) = (statistic(&report, "turned"), statistic(&report, "diverged"));
    ensure!(diverged * 20 <= turned, "{diverged} of {turned} diverged");
    Ok(())
}

fn says(outcome: &Outcome, status: i32, what: &str) -> Result<()> {
    ensure!(
        outcome.status == status && outcome.stderr_text().contains(what),
        "{}",
        outcome.describe()
    );
    Ok(())
}

fn reads_nothing() -> Result<()> {
    let scratch = Scratch::new()?;
    let options = ["--pm", "pool", "--stdin-symbolic", "8"];
    let outcome = run(&options, &["/bin/true"], &scratch)?;
    says(&outcome, 3, "reads nothing from its standard input")
}

fn compares_nothing() -> Result<()> {
    let scratch = Scratch::new()?;
    let options = ["--pm", "pool", "--stdin-symbolic", "8"];
    // `cat` has the kernel copy from file to file, and then has read nothing.
    let outcome = run(&options, &["/usr/bin/tee"], &scratch)?;
    says(
        &outcome,
        3,
        "no branch of the program depends on its standard input",
    )
}

fn no_bytes() -> Result<()> {
    let scratch = Scratch::new()?;
    let outcome = run(&[], &["/bin/cat"], &scratch)?;
    says(&outcome, 2, "--stdin-symbolic")?;
    fs::write(scratch.join("empty"), "")?;
    let outcome = run(&["--stdin", "empty"], &["/bin/cat"], &scratch)?;
    says(&outcome, 2, "no byte to solve for")
}

fn no_such_program() -> Result<()> {
    let scratch = Scratch::new()?;
    let outcome = run(&["--stdin-symbolic", "8"], &["./no-such-program"], &scratch)?;
    says(&outcome, 3, "no-such-program")
}

fn set_up_fails() -> Result<()> {
    let scratch = Scratch::new()?;
    let options = ["--stdin-symbolic", "8", "--setup", "exit 7"];
    let outcome = run(&options, &["/bin/cat"], &scratch)?;
    says(&outcome, 2, "exit code 7")
}

//! Options, forms of the report, exit codes and endings of `brownout explore`, and that the user's
//! files stay as they are.
//!
//! Most trials explore a seeded program; those about time and Ctrl-C, one with thousands of failure
//! points ([`LONG`]).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Limit, Severity, Verdict, rules};
use brownout_tests::check::{compile, show};
use brownout_tests::explore::{self, Explored, number, reproduction};
use brownout_tests::{Invocation, Outcome, Scratch, layout, tool};
use libtest_mimic::Trial;
use serde::Deserialize;
use serde_json::Value;

use crate::trial;
use crate::worlds::{expect_gone, own_folders};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Recovery fails after some crashes of the wrong build.
const MAILBOX: &str = "correctness-data_never_flushed";
/// Recovery prints too little after some crashes of the wrong build.
const TABLE: &str = "correctness-ack_before_durable";
/// Both programs perform so many operations.
const OPERATIONS: usize = 4;

/// Counts up to 5000, each number in a line of its own. With `-DBUG`, the first is not written
/// back. With a third argument it then waits for ever.
pub const LONG: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NUMBERS = 5000 };
struct pool { struct { _Alignas(64) long number; } slots[NUMBERS]; _Alignas(64) long count; };

static void persist(void *address)
{
    _mm_clflush(address);
    _mm_sfence();
}

int main(int argc, char **argv)
{
    int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct pool)) != 0)
        return 2;
    struct pool *pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    if (strcmp(argv[1], "check") == 0) {
        for (long i = 0; i < pool->count; i++)
            if (pool->slots[i].number != i + 1)
                return 1;
        return 0;
    }
    for (long i = 0; i < NUMBERS; i++) {
        pool->slots[i].number = i + 1;
#ifdef BUG
        if (i > 0)
#endif
            persist(&pool->slots[i]);
        pool->count = i + 1;
        persist(&pool->count);
    }
    if (argc > 3) {
        close(open(argv[3], O_CREAT, 0600));
        for (;;)
            pause();
    }
    return 0;
}
"#;

/// Stores to persistent memory, and has no input and no output.
const MUTE: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    long *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return 2;
    words[0] = 7;
    _mm_clflush(words);
    _mm_sfence();
    return 0;
}
"#;

/// A diary by `msync`: the text is on one page, its length on the next. Recovery wants the text
/// that the length promises. With `forget`, the text's page is not synchronised.
const DIARY: &str = r#"
import mmap, os, sys

mode, path = sys.argv[1:3]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 2 * mmap.PAGESIZE)
page = mmap.PAGESIZE
memory = mmap.mmap(fd, 2 * page)
if mode == "check":
    length = memory[page]
    if memory[:length] != b"dear diary"[:length]:
        sys.exit("the text is not there")
    print(length)
else:
    memory[:10] = b"dear diary"
    if mode != "forget":
        memory.flush(0, page)
    memory[page] = 10
    memory.flush(page, page)
"#;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("cli::no_program", no_program),
        trial("cli::no_persistent_memory", no_persistent_memory),
        trial("cli::setup", setup),
        trial("cli::unknown_oracle", unknown_oracle),
        trial("cli::nothing_to_go_by", nothing_to_go_by),
        trial("cli::no_stdin_file", no_stdin_file),
        trial("cli::redirected_input_is_not_dropped", redirected_input),
        trial("cli::timeout_sends_its_signal_twice", signal_twice),
        trial("cli::time_is_up", time_is_up),
        trial(
            "cli::time_is_up_after_a_finding",
            time_is_up_after_a_finding,
        ),
        trial("cli::ctrl_c", ctrl_c),
        trial("cli::ctrl_c_while_recording", ctrl_c_while_recording),
        trial("cli::ctrl_c_while_confirming", ctrl_c_while_confirming),
        trial("cli::exit_status", exit_status),
        trial("cli::suppressions", suppressions),
        trial("cli::baseline", baseline),
        trial("cli::json_and_sarif_are_valid", valid_forms),
        trial("cli::junit", junit),
        trial("cli::terminal", terminal),
        trial("cli::checker", checker),
        trial("cli::pool_stays", pool_stays),
        trial("cli::pool_stays_after_errors", pool_stays_after_errors),
        trial("cli::pool_keeps_its_size", pool_keeps_its_size),
        trial("cli::outcomes", outcomes),
        trial("cli::self_test", self_test),
        trial("cli::paths", paths),
        trial("cli::pipeline", pipeline),
        trial("cli::python_and_msync", python_and_msync),
    ]
}

/// A seeded program; `build` is `bug` or `fixed`.
fn seeded(name: &str, build: &str) -> Result<PathBuf> {
    let path = layout::seeded().join(format!("{name}-{build}"));
    ensure!(
        path.is_file(),
        "{} is missing: run `cargo xtask build`",
        path.display()
    );
    Ok(path)
}

/// `PROGRAM run pool` in the folder.
fn run_of(program: &Path, folder: &Path) -> Invocation {
    let words = [program.as_os_str(), "run".as_ref(), "pool".as_ref()];
    Invocation::new(words, folder).timeout(TIMEOUT)
}

/// Explores `PROGRAM run pool` with `PROGRAM check pool` as recovery.
fn explored(program: &Path, options: &[&str], folder: &Path) -> Result<Explored> {
    let recover = format!("{} check pool", program.display());
    let mut all = vec!["--pm", "pool", "--recover", &recover];
    all.extend(options);
    explore::run(&run_of(program, folder), &all)
}

/// The same in a folder of its own.
fn explored_anew(program: &Path, options: &[&str]) -> Result<Explored> {
    explored(program, options, Scratch::new()?.path())
}

/// Compiles one of the sources above.
fn own(source: &str, flags: &[&str], scratch: &Scratch) -> Result<PathBuf> {
    let file = scratch.join("program.c");
    fs::write(&file, source)?;
    compile(&file, scratch.join("program"), &[&["-O1"], flags].concat())
}

/// It fails with this status, and says one sentence that has these words.
fn expect_refusal(outcome: &Outcome, status: i32, words: &str) -> Result<()> {
    let text = outcome.stderr_text();
    ensure!(
        outcome.status == status
            && text.starts_with("brownout: ")
            && text.lines().count() == 1
            && text.contains(words),
        "not {words:?} and exit status {status}, but {}\n{}",
        outcome.status,
        outcome.describe()
    );
    Ok(())
}

// ---------------------------------------------------------------------- what cannot be explored

fn no_program() -> Result<()> {
    let scratch = Scratch::new()?;
    for name in ["./no-such-program", "no-such-program"] {
        let outcome = explore::command(&Invocation::new([name], scratch.path()), &[]).run()?;
        expect_refusal(&outcome, 3, name)?;
    }
    Ok(())
}

/// A program that touches no persistent memory is not called clean.
fn no_persistent_memory() -> Result<()> {
    let scratch = Scratch::new()?;
    let fixed = run_of(&seeded(MAILBOX, "fixed")?, scratch.path());
    let hint = format!("--pm {}", scratch.join("pool").display());
    for (native, note) in [
        (Invocation::new(["/bin/true"], scratch.path()), None),
        (fixed, Some(&hint)),
    ] {
        let explored = explore::run(&native, &[])?;
        ensure!(explored.report.verdict == Verdict::NothingChecked);
        if let Some(note) = note {
            explored.expect_note(note)?;
        }
        let outcome = explore::command(&native, &[]).run()?;
        let text = outcome.stderr_text();
        ensure!(
            text.lines().last() == Some("brownout: no persistent memory was touched; see --pm"),
            "{text}"
        );
        for praise in ["no bugs", "no findings"] {
            ensure!(!text.contains(praise), "{text}");
        }
    }
    Ok(())
}

/// It runs first, and if it fails nothing else does.
fn setup() -> Result<()> {
    let scratch = Scratch::new()?;
    let native = run_of(&seeded(MAILBOX, "fixed")?, scratch.path());
    let options = ["--pm", "pool", "--setup", "echo here > made; exit 3"];
    let outcome = explore::command(&native, &options).run()?;
    expect_refusal(&outcome, 2, "the set-up failed")?;
    ensure!(
        !scratch.join("made").exists(),
        "it ran beside the user's files"
    );
    ensure!(!scratch.join("pool").exists(), "the program ran");

    // What it does is not explored: creation, for one, is not.
    let bug = seeded(MAILBOX, "bug")?;
    let all = explored(&bug, &["--depth", "1"], scratch.path())?;
    let command = format!("rm -f pool; {} run pool > /dev/null", bug.display());
    let none = explored(&bug, &["--depth", "1", "--setup", &command], scratch.path())?;
    ensure!(none.number("failure_points")? < all.number("failure_points")?);
    Ok(())
}

fn unknown_oracle() -> Result<()> {
    let scratch = Scratch::new()?;
    let native = run_of(&seeded(MAILBOX, "fixed")?, scratch.path());
    let outcome = explore::command(&native, &["--pm", "pool", "--oracle", "delphi"]).run()?;
    expect_refusal(&outcome, 2, "'delphi'")?;
    ensure!(!scratch.join("pool").exists(), "the program ran");
    Ok(())
}

fn nothing_to_go_by() -> Result<()> {
    let scratch = Scratch::new()?;
    let native = run_of(&own(MUTE, &[], &scratch)?, scratch.path());
    let outcome = explore::command(&native, &["--pm", "pool", "--oracle", "ops"]).run()?;
    expect_refusal(&outcome, 2, "--oracle ops has no operations to go by")?;
    ensure!(!scratch.join("pool").exists(), "a pool is left");
    Ok(())
}

fn no_stdin_file() -> Result<()> {
    let scratch = Scratch::new()?;
    let native = run_of(&seeded(MAILBOX, "fixed")?, scratch.path());
    for option in ["--stdin", "--recover-stdin"] {
        let outcome = explore::command(&native, &["--pm", "pool", option, "no-file"]).run()?;
        expect_refusal(&outcome, 2, "no-file")?;
    }
    ensure!(!scratch.join("pool").exists(), "the program ran");
    Ok(())
}

/// The input that a user redirects would not reach the program, and nothing would be found.
fn redirected_input() -> Result<()> {
    let scratch = Scratch::new()?;
    fs::write(scratch.join("input"), "5\n")?;
    let script = "read n && echo $n > pool";
    let native = Invocation::new(["sh", "-c", script], scratch.path());
    let redirected = native.clone().stdin(&scratch.join("input"));
    for command in ["explore", "check --confirm"] {
        let words = command.split(' ').chain(["--pm", "pool", "--"]);
        let argv = [layout::brownout().into_os_string()].into_iter();
        let argv = argv.chain(words.map(Into::into)).chain(native.argv.clone());
        let outcome = Invocation {
            argv: argv.collect(),
            ..redirected.clone()
        };
        expect_refusal(&outcome.run()?, 2, "--stdin FILE")?;
    }
    ensure!(!scratch.join("pool").exists(), "the program ran");
    // A script that a shell reads is for that shell.
    fs::write(scratch.join("script"), "true\n:\nexec \"$@\"\n")?;
    let tool = explore::command(&native, &["--pm", "pool"]);
    let shell = ["bash", "-s", "--"].map(Into::into);
    let within = Invocation {
        argv: shell.into_iter().chain(tool.argv).collect(),
        ..native.stdin(&scratch.join("script"))
    };
    let outcome = within.run()?;
    ensure!(outcome.status == 3, "{outcome:?}");
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned()
        + &String::from_utf8_lossy(&outcome.stdout);
    ensure!(said.contains("--stdin FILE gives it"), "{said}");
    Ok(())
}

// ---------------------------------------------------------------------- ended early

/// The report says what share was explored, and is not called clean.
fn expect_part(explored: &Explored, reason: &str) -> Result<()> {
    let report = &explored.report;
    ensure!(
        report.verdict == Verdict::Incomplete,
        "{:?}\n{}",
        report.notes,
        show(report)
    );
    ensure!(report.statistics.get("complete") == Some(&false.into()));
    let (done, all) = (
        number(report, "points_done")?,
        number(report, "failure_points")?,
    );
    ensure!(done < all, "{done} of {all}");
    explored.expect_note(reason)?;
    explored.expect_note("failure points done")?;
    explored.expect_note(" %)")
}

fn time_is_up() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = own(LONG, &[], &scratch)?;
    let explored = explored(&program, &["--time", "1s"], scratch.path())?;
    expect_part(&explored, "the time was up")?;
    ensure!(explored.report.findings.is_empty());
    explored.expect_status(3)?;
    ensure!(!scratch.join("pool").exists(), "a pool is left");

    let recover = format!("{} check pool", program.display());
    let options = ["--pm", "pool", "--time", "1s", "--recover", &recover];
    let terminal = explore::command(&run_of(&program, scratch.path()), &options).run()?;
    let text = terminal.stderr_text();
    let last = text.lines().last().unwrap_or_default();
    ensure!(last.starts_with("brownout: incomplete: "), "{text}");
    Ok(())
}

/// What was found until then is reported.
fn time_is_up_after_a_finding() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = own(LONG, &["-DBUG"], &scratch)?;
    let explored = explored(&program, &["--time", "2s"], scratch.path())?;
    expect_part(&explored, "the time was up")?;
    explored.expect_rule("recovery-error")?;
    explored.expect_status(1)
}

/// Ends the child if the trial fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            brownout_tests::exec::kill_group(self.0.id());
            let _ = self.0.wait();
        }
    }
}

/// Whether the file exists, here or for a program that runs in a private view of this folder.
fn seen_by_any(file: &Path) -> bool {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return false;
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut folders = processes.map(|process| process.path().join("cwd"));
    file.exists()
        || folders.any(|cwd| {
            fs::read_link(&cwd).is_ok_and(|link| link == folder) && cwd.join(name).exists()
        })
}

/// Starts it, sends it a signal as soon as the file exists, and returns its exit code. Nothing of
/// its own is left then.
fn interrupt_when(invocation: &Invocation, file: &Path, signal: &str) -> Result<i32> {
    tool::expect_built()?;
    let mut command = invocation.command()?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn()?);
    let start = Instant::now();
    while !seen_by_any(file) {
        ensure!(start.elapsed() < TIMEOUT, "{} never comes", file.display());
        if let Some(status) = running.0.try_wait()? {
            bail!("it has ended already: {status}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let folders = own_folders(running.0.id())?;
    ensure!(!folders.is_empty(), "it has no folder of its own");
    let interrupt = format!("kill -s {signal} {}", running.0.id());
    let sent = Command::new("/bin/sh").args(["-c", &interrupt]).status()?;
    ensure!(sent.success());
    loop {
        if let Some(status) = running.0.try_wait()? {
            expect_gone(&folders)?;
            return status.code().context("a signal ended it");
        }
        ensure!(start.elapsed() < 2 * TIMEOUT, "it does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A pool of [`LONG`] that it has not counted in yet, with something of the user's beside the
/// numbers.
fn empty_pool() -> Vec<u8> {
    let mut line = [0; 64];
    line[40..48].copy_from_slice(b"precious");
    line.repeat(5001)
}

/// As when time is up; and files are put back. SIGTERM, as of `timeout` in CI, does the same.
fn ctrl_c() -> Result<()> {
    for (pool, signal) in [(None, "INT"), (Some(empty_pool()), "TERM")] {
        let scratch = Scratch::new()?;
        if let Some(pool) = &pool {
            fs::write(scratch.join("pool"), pool)?;
        }
        let program = own(LONG, &[], &scratch)?;
        let recover = format!("touch begun; {} check pool", program.display());
        let options = ["--pm", "pool", "--format", "json", "-o", "report.json"];
        let options = [&options[..], &["--recover", &recover]].concat();
        let invocation = explore::command(&run_of(&program, scratch.path()), &options);
        let status = interrupt_when(&invocation, &scratch.join("begun"), signal)?;
        let explored = Explored {
            report: explore::read(&scratch.join("report.json"))?,
            outcome: Outcome {
                status,
                stdout: Vec::new(),
                stderr: Vec::new(),
                wall: Duration::ZERO,
            },
        };
        expect_part(&explored, "stopped before all was explored")?;
        explored.expect_status(3)?;
        ensure!(
            fs::read(scratch.join("pool")).ok() == pool,
            "the pool has changed"
        );
    }
    Ok(())
}

/// `timeout` signals its child, and then the group of which that is a part.
fn signal_twice() -> Result<()> {
    let scratch = Scratch::new()?;
    let tool = explore::command(
        &Invocation::new(["sleep", "1000"], scratch.path()),
        &["--pm", "pool"],
    );
    let script = "\"$@\" & p=$!; sleep 1; kill -TERM $p; sleep 0.05; kill -TERM $p; wait $p";
    let shell = ["sh", "-c", script, "sh"].map(Into::into).into_iter();
    let twice = Invocation {
        argv: shell.chain(tool.argv.clone()).collect(),
        ..tool
    };
    let outcome = twice.run()?;
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let said = said + &String::from_utf8_lossy(&outcome.stderr);
    ensure!(
        outcome.status == 3 && said.contains("stopped while the program was recorded"),
        "{}: {said}",
        outcome.status
    );
    Ok(())
}

/// There is nothing to report yet, and no praise.
fn ctrl_c_while_recording() -> Result<()> {
    for pool in [None, Some(empty_pool())] {
        let scratch = Scratch::new()?;
        if let Some(pool) = &pool {
            fs::write(scratch.join("pool"), pool)?;
        }
        let program = own(LONG, &[], &scratch)?;
        let mut native = run_of(&program, scratch.path());
        native.argv.push("waiting".into());
        let options = ["--pm", "pool", "--format", "json", "-o", "report.json"];
        let invocation = explore::command(&native, &options);
        let status = interrupt_when(&invocation, &scratch.join("waiting"), "INT")?;
        ensure!(status != 0, "it claims success");
        if let Ok(report) = explore::read(&scratch.join("report.json")) {
            ensure!(report.verdict != Verdict::Clean, "{}", show(&report));
        }
        ensure!(
            fs::read(scratch.join("pool")).ok() == pool,
            "the pool has changed"
        );
    }
    Ok(())
}

/// Two bugs: nothing makes the first two stores atomic, nor the next two.
const TWO_BUGS: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int fd = argc > 2 ? open(argv[2], O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    volatile long *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return 2;
    if (strcmp(argv[1], "check") == 0) {
        if (words[0] != words[8])
            return 3;
        return words[16] == words[24] ? 0 : 4;
    }
    words[0] = 1;
    _mm_clflush((void *)&words[0]);
    words[8] = 1;
    _mm_clflush((void *)&words[8]);
    words[16] = 1;
    _mm_clflush((void *)&words[16]);
    words[24] = 1;
    _mm_clflush((void *)&words[24]);
    _mm_sfence();
    return 0;
}
"#;

/// All was explored, but not all findings were shown natively: they may be facts, so that is no
/// success; and the journal stays.
fn ctrl_c_while_confirming() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = own(TWO_BUGS, &[], &scratch)?;
    // It lasts longer than a signal takes from the image of the first finding on.
    let recover = format!("sleep 0.3; {} check pool", program.display());
    let options = ["--pm", "pool", "--format", "json", "-o", "report.json"];
    let options = [&options[..], &["--recover", &recover]].concat();
    let invocation = explore::command(&run_of(&program, scratch.path()), &options);
    let folder = scratch.join("brownout-explore");
    let status = interrupt_when(&invocation, &folder.join("finding-1/pool"), "INT")?;
    let report = explore::read(&scratch.join("report.json"))?;
    ensure!(report.findings.len() >= 2, "{}", show(&report));
    ensure!(
        report.coverage.open() == [Limit::Interrupted],
        "{}",
        show(&report)
    );
    ensure!(report.verdict == Verdict::Incomplete, "{}", show(&report));
    let are_errors = report.findings.iter();
    let are_errors = are_errors.filter(|finding| finding.severity == Severity::Correctness);
    ensure!(are_errors.clone().count() < report.findings.len());
    ensure!(
        status == if are_errors.count() > 0 { 1 } else { 3 },
        "{status}"
    );
    ensure!(folder.join("journal").exists(), "no journal is left");
    Ok(())
}

// ---------------------------------------------------------------------- what is reported, and how

fn exit_status() -> Result<()> {
    let bug = seeded(MAILBOX, "bug")?;
    for (options, status) in [
        (&[][..], 1),
        (&["--fail-on", "never"], 0),
        (&["--fail-on", "performance"], 1),
        (&["--error-exitcode", "99"], 99),
    ] {
        let explored = explored_anew(&bug, options)?;
        explored
            .expect_rule("recovery-error")
            .and_then(|()| explored.expect_status(status))
            .with_context(|| format!("{options:?}"))?;
    }
    Ok(())
}

/// What was written for one run silences that run.
fn suppressions() -> Result<()> {
    let scratch = Scratch::new()?;
    let bug = seeded(MAILBOX, "bug")?;
    let first = explored(&bug, &["--gen-suppressions", "known.toml"], scratch.path())?;
    first.expect_findings()?;
    let silent = explored(&bug, &["--suppressions", "known.toml"], scratch.path())?;
    silent.expect_status(0)?;
    ensure!(silent.report.findings.is_empty());
    ensure!(silent.report.suppressed == first.report.findings.len() as u64);
    // And no other.
    let known = scratch.join("known.toml");
    let options = [
        "--oracle",
        "ops",
        "--suppressions",
        &*known.to_string_lossy(),
    ];
    let other = explored_anew(&seeded(TABLE, "bug")?, &options)?;
    other.expect_rule("not-atomic")?;
    other.expect_note("the suppression was not used")
}

fn baseline() -> Result<()> {
    let scratch = Scratch::new()?;
    let bug = seeded(MAILBOX, "bug")?;
    let first = explored(&bug, &[], scratch.path())?;
    first.expect_findings()?;
    fs::rename(scratch.join("report.json"), scratch.join("old.json"))?;
    let same = explored(&bug, &["--baseline", "old.json"], scratch.path())?;
    same.expect_status(0)?;
    ensure!(same.report.findings.is_empty());
    ensure!(same.report.known == first.report.findings.len() as u64);
    Ok(())
}

fn expect_valid(schema: &Path, instance: &Value) -> Result<()> {
    let mut schema_value: Value = serde_json::from_slice(&fs::read(schema)?)?;
    // The official schema of SARIF has an unbalanced bracket in its pattern for `language`, which
    // we do not write.
    for part in ["run", "toolComponent"] {
        let language = format!("/definitions/{part}/properties/language");
        if let Some(Value::Object(language)) = schema_value.pointer_mut(&language) {
            language.remove("pattern");
        }
    }
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(&schema_value)
        .with_context(|| format!("{} is no schema", schema.display()))?;
    let objections: Vec<String> = validator
        .iter_errors(instance)
        .take(5)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    ensure!(objections.is_empty(), "{}", objections.join("\n"));
    Ok(())
}

/// Writes a report in this form.
fn written(form: &str, program: &Path, folder: &Path) -> Result<String> {
    let recover = format!("{} check pool", program.display());
    let options = ["--pm", "pool", "--recover", &recover, "--format", form];
    let options = [&options[..], &["-o", "out"]].concat();
    explore::command(&run_of(program, folder), &options).run()?;
    fs::read_to_string(folder.join("out")).context("no report")
}

fn valid_forms() -> Result<()> {
    let workspace = layout::workspace();
    let json_schema = workspace.join("schema/report.schema.json");
    let sarif_schema = workspace.join("crates/report/tests/data/sarif-schema-2.1.0.json");
    for (build, some) in [("bug", true), ("fixed", false)] {
        let scratch = Scratch::new()?;
        let program = seeded(MAILBOX, build)?;
        for (form, schema, list) in [
            ("json", &json_schema, "/findings"),
            ("sarif", &sarif_schema, "/runs/0/results"),
        ] {
            let value: Value = serde_json::from_str(&written(form, &program, scratch.path())?)?;
            expect_valid(schema, &value).with_context(|| format!("{form} of {build}"))?;
            let list = value.pointer(list).and_then(Value::as_array);
            let count = list.context("no list of findings")?.len();
            ensure!((count > 0) == some, "{count} findings in {form} of {build}");
            if form == "json" && some {
                // The part that only explorations have is described, too.
                let mut wrong = value.clone();
                let part = wrong.pointer_mut("/findings/0/reproduction/command");
                *part.context("no reproduction")? = 7.into();
                ensure!(expect_valid(schema, &wrong).is_err(), "anything is valid");
            }
        }
    }
    Ok(())
}

/// One case a rule; those with findings have failed.
fn junit() -> Result<()> {
    let scratch = Scratch::new()?;
    let text = written("junit", &seeded(MAILBOX, "bug")?, scratch.path())?;
    let xml = roxmltree::Document::parse(&text)?;
    let cases = xml
        .descendants()
        .filter(|node| node.has_tag_name("testcase"));
    let (mut names, mut failed) = (BTreeSet::new(), Vec::new());
    for case in cases {
        let name = case.attribute("name").unwrap_or_default();
        names.insert(name);
        if case.children().any(|node| node.has_tag_name("failure")) {
            failed.push(name);
        }
    }
    ensure!(failed == ["recovery-error"], "{failed:?}");
    ensure!(
        names.iter().all(|name| rules::find(name).is_some()),
        "{names:?}"
    );
    Ok(())
}

/// People get the lost store, the crash, the symptom, and the commands to see it again.
fn terminal() -> Result<()> {
    let scratch = Scratch::new()?;
    let bug = seeded(MAILBOX, "bug")?;
    let recover = format!("{} check pool", bug.display());
    let options = ["--pm", "pool", "--recover", &recover];
    let outcome = explore::command(&run_of(&bug, scratch.path()), &options).run()?;
    let text = outcome.stderr_text();
    for words in [
        "error[recovery-error]: recovery fails with exit code 1",
        "data_never_flushed.c:",
        "and lost",
        "the power fails here",
        "brownout replay bo1-",
        "brownout-explore/finding-1/pool",
    ] {
        ensure!(text.contains(words), "no {words:?}\n{text}");
    }
    Ok(())
}

// ---------------------------------------------------------------------- oracles

/// It is told the file, how many operations were complete, and what they said. Its exit code
/// counts.
fn checker() -> Result<()> {
    let scratch = Scratch::new()?;
    let script = scratch.join("checker.sh");
    let pool = scratch.join("pool");
    let write = |condition: &str| -> Result<()> {
        let text = format!(
            "#!/bin/sh\n\
             test $# -eq 3 && test \"$1\" = {} || {{ echo \"wrong arguments: $*\"; exit 1; }}\n\
             test \"$(wc -l < \"$3\")\" -eq \"$2\" || {{ echo \"$2 operations, but:\"; cat \"$3\"; exit 1; }}\n\
             {condition}\n",
            pool.display()
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(())
    };
    let fixed = seeded(MAILBOX, "fixed")?;
    let options = ["--oracle", "cmd:./checker.sh"];

    write("exit 0")?;
    explored(&fixed, &options, scratch.path())?.expect_clean()?;

    write("test \"$2\" -lt 3 || { echo three are too many; exit 9; }")?;
    let found = explored(&fixed, &options, scratch.path())?;
    found.expect_rule("checker-failed")?;
    found.expect_status(1)?;
    let message = &found.report.findings[0].message;
    ensure!(
        message.contains("exit code 9") && message.contains("three are too many"),
        "{message}"
    );

    // It sees what recovery has left, not the user's file.
    write(&format!(
        "test \"$({} check \"$1\" | wc -l)\" -ge \"$2\"",
        fixed.display()
    ))?;
    explored(&fixed, &options, scratch.path())?.expect_clean()
}

// ---------------------------------------------------------------------- files

/// An existing pool keeps its bytes, and one that the run made is gone.
fn pool_stays() -> Result<()> {
    for build in ["bug", "fixed"] {
        let scratch = Scratch::new()?;
        let program = seeded(MAILBOX, build)?;
        let pool = scratch.join("pool");
        explored(&program, &[], scratch.path())?;
        ensure!(!pool.exists(), "{build}: a pool is left");

        let mut native = run_of(&program, scratch.path());
        native.argv.push("1".into());
        native.run()?.expect_success("run pool 1")?;
        let before = fs::read(&pool)?;
        explored(&program, &["--oracle", "ops"], scratch.path())?;
        ensure!(fs::read(&pool)? == before, "{build}: the pool has changed");
    }
    Ok(())
}

fn pool_stays_after_errors() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = own(MUTE, &[], &scratch)?;
    let pool = scratch.join("pool");
    let native = run_of(&program, scratch.path());
    for before in [None, Some(b"precious".repeat(512))] {
        if let Some(before) = &before {
            fs::write(&pool, before)?;
        }
        for options in [
            // Found out only when the run is over.
            &["--oracle", "ops"][..],
            // Nothing can be run, or written.
            &["--recover", "./no-such-program"],
            &["--outcomes", "no-such-folder/outcomes"],
            &["-o", "no-such-folder/report"],
        ] {
            let options = [&["--pm", "pool"], options].concat();
            let outcome = explore::command(&native, &options).run()?;
            ensure!(
                fs::read(&pool).ok() == before,
                "{options:?}: the pool has changed\n{}",
                outcome.describe()
            );
        }
    }
    Ok(())
}

/// A file that the program makes longer or shorter before it maps it is put back, too.
fn pool_keeps_its_size() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = own(MUTE, &[], &scratch)?;
    let pool = scratch.join("pool");
    for before in [Vec::new(), b"short".to_vec(), b"a long one".repeat(1000)] {
        fs::write(&pool, &before)?;
        explore::run(&run_of(&program, scratch.path()), &["--pm", "pool"])?;
        let after = fs::read(&pool)?;
        ensure!(
            after == before,
            "it had {} bytes, and now has {}",
            before.len(),
            after.len()
        );
    }
    Ok(())
}

/// The folder may be a link, and names relative or not.
fn paths() -> Result<()> {
    let bug = seeded(MAILBOX, "bug")?;
    let scratch = Scratch::new()?;
    let folder = scratch.folder("folder")?;
    symlink(&folder, scratch.join("link"))?;
    let absolute = folder.join("pool").to_string_lossy().into_owned();
    let through_link = scratch.join("link/pool").to_string_lossy().into_owned();
    let mut fingerprints = BTreeSet::new();
    for (run, recover) in [
        ("folder/pool", "folder/pool"),
        ("./folder/../folder/pool", "folder/pool"),
        ("link/pool", "link/pool"),
        ("folder/pool", "link/pool"),
        (&absolute, &absolute),
        (&through_link, "folder/pool"),
    ] {
        let words = [bug.as_os_str(), "run".as_ref(), run.as_ref()];
        let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
        let command = format!("{} check {recover}", bug.display());
        let options = ["--pm", recover, "--recover", &command];
        let explored = explore::run(&native, &options)?;
        explored
            .expect_findings()
            .with_context(|| format!("{run}, {recover}"))?;
        let of_this: Vec<String> = explored
            .report
            .findings
            .iter()
            .map(|finding| finding.fingerprint.clone())
            .collect();
        fingerprints.insert(of_this);
        ensure!(!folder.join("pool").exists(), "{run}: a pool is left");
    }
    ensure!(fingerprints.len() == 1, "{fingerprints:?}");
    Ok(())
}

// ---------------------------------------------------------------------- numbers

#[derive(Deserialize)]
struct OutcomeLine {
    failure_point: u64,
    status: String,
    stdout: String,
}

/// Good and bad outcomes are listed, of every failure point.
fn outcomes() -> Result<()> {
    for (build, bad) in [("bug", true), ("fixed", false)] {
        let scratch = Scratch::new()?;
        let program = seeded(MAILBOX, build)?;
        let options = ["--outcomes", "outcomes.jsonl"];
        let explored = explored(&program, &options, scratch.path())?;
        let text = fs::read_to_string(scratch.join("outcomes.jsonl"))?;
        let lines: Vec<OutcomeLine> = text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        let points: BTreeSet<u64> = lines.iter().map(|line| line.failure_point).collect();
        ensure!(points.len() as u64 == explored.number("failure_points")?);
        let whole = lines
            .iter()
            .any(|line| line.status == "exit code 0" && line.stdout.lines().count() == OPERATIONS);
        ensure!(whole, "nothing has all {OPERATIONS}: {text}");
        let failed = lines.iter().any(|line| line.status == "exit code 1");
        ensure!(failed == bad, "{text}");
    }
    Ok(())
}

/// Outcomes that were known without running them are the right ones.
fn self_test() -> Result<()> {
    let fixed = seeded(MAILBOX, "fixed")?;
    let explored = explored_anew(&fixed, &["--self-test", "5"])?;
    explored.expect_clean()?;
    let tested = explored.number("self_tested")?;
    ensure!((1..=5).contains(&tested), "{tested} were tested");
    let notes = &explored.report.notes;
    ensure!(
        notes.iter().all(|note| !note.contains("self-test")),
        "{notes:?}"
    );
    ensure!(explored_anew(&fixed, &[])?.number("self_tested")? == 0);
    Ok(())
}

// ---------------------------------------------------------------------- other programs

/// All processes of a recovery belong to it, and what the last one prints counts.
fn pipeline() -> Result<()> {
    for (build, found) in [("bug", true), ("fixed", false)] {
        let scratch = Scratch::new()?;
        let program = seeded(TABLE, build)?;
        let recover = format!("{} check pool | cat", program.display());
        let options = ["--pm", "pool", "--oracle", "ops", "--recover", &recover];
        let explored = explore::run(&run_of(&program, scratch.path()), &options)?;
        if !found {
            explored.expect_clean()?;
            continue;
        }
        explored.expect_findings()?;
        explored.expect_rule("not-atomic")?;
        let shown = reproduction(&explored.report.findings[0])?;
        let native = Invocation::shell(&shown.command, scratch.path()).run()?;
        ensure!(native.status == 0 && native.stdout_text() == shown.stdout);
    }
    Ok(())
}

/// An interpreted program, and a disk instead of persistent memory.
fn python_and_msync() -> Result<()> {
    for (mode, found) in [("forget", true), ("write", false)] {
        let scratch = Scratch::new()?;
        fs::write(scratch.join("diary.py"), DIARY)?;
        let native = Invocation::new(["python3", "diary.py", mode, "pool"], scratch.path());
        let options = ["--domain", "page", "--pm", "pool", "--recover"];
        let options = [&options[..], &["python3 diary.py check pool"]].concat();
        let explored = explore::run(&native.timeout(TIMEOUT), &options)?;
        match found {
            true => {
                explored.expect_findings()?;
                explored.expect_rule("recovery-error")?;
            }
            false => explored.expect_clean()?,
        }
        ensure!(!scratch.join("pool").exists(), "a pool is left");
    }
    Ok(())
}

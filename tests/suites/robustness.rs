//! Whatever ends a recording, what was recorded stays readable and the ending is reported truly.
//!
//! `target_killed::` the program dies by a signal, its own or another's; `tool_killed` brownout
//! itself gets SIGKILL; `disk_full::` the trace cannot be written any more. `usage::` wrong command
//! lines get one clear sentence and exit code 2.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brownout_tests::{Invocation, Outcome, Scratch, dump, exec, layout, tool, trial};
use libtest_mimic::Arguments;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Exit codes that `brownout --help` documents.
const DAMAGED: i32 = 1;
const USAGE: i32 = 2;
const CANNOT_RUN: i32 = 3;

/// pm_endless stores this often before it ends or says that it runs.
const STORES_AT_LEAST: u64 = 100_000;

/// Command lines and what they must be answered with. `TRACE` is a good trace, `JUNK` is not a
/// trace, `PIPE` is a named pipe that nobody writes to.
const BAD_USES: &[(&str, &[&str], i32)] = &[
    ("no_command", &[], USAGE),
    ("unknown_command", &["frobnicate"], USAGE),
    (
        "unknown_option",
        &["run", "--frobnicate", "--", "true"],
        USAGE,
    ),
    ("run_without_program", &["run"], USAGE),
    ("record_without_output", &["record", "--", "true"], USAGE),
    (
        "record_into_missing_folder",
        &["record", "-o", "no/such/folder/t", "--", "true"],
        USAGE,
    ),
    (
        "record_over_foreign_file",
        &["record", "-o", "JUNK", "--", "true"],
        USAGE,
    ),
    (
        "bad_glob",
        &["record", "-o", "t", "--pm", "[", "--", "true"],
        USAGE,
    ),
    (
        "missing_stdin",
        &["record", "-o", "t", "--stdin", "none", "--", "true"],
        USAGE,
    ),
    ("dump_missing_file", &["trace", "dump", "none"], USAGE),
    (
        "dump_bad_range",
        &["trace", "dump", "TRACE", "--range", "5..x"],
        USAGE,
    ),
    (
        "dump_bad_format",
        &["trace", "dump", "TRACE", "--format", "yaml"],
        USAGE,
    ),
    (
        "dump_bad_limit",
        &["trace", "dump", "TRACE", "--limit", "-1"],
        USAGE,
    ),
    ("stat_without_file", &["trace", "stat"], USAGE),
    (
        "program_not_found",
        &["run", "--", "no-such-program-anywhere"],
        CANNOT_RUN,
    ),
    (
        "program_not_executable",
        &["run", "--", "./JUNK"],
        CANNOT_RUN,
    ),
    ("program_is_a_folder", &["run", "--", "/etc"], CANNOT_RUN),
    ("program_is_a_pipe", &["run", "--", "./PIPE"], CANNOT_RUN),
    (
        "suppressions_without_end",
        &["check", "--suppressions", "/dev/zero", "--", "true"],
        USAGE,
    ),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        trial("target_killed::segv", || target_dies("segv", 128 + 11)),
        trial("target_killed::abort", || target_dies("abort", 128 + 6)),
        trial("target_killed::kill", || target_dies("kill", 128 + 9)),
        trial(
            "target_killed::kill_from_outside",
            target_killed_from_outside,
        ),
        trial("target_killed::none", || target_dies("exit", 0)),
        trial("tool_killed", tool_killed),
        trial(
            "tool_killed_and_not_collected",
            tool_killed_and_not_collected,
        ),
        trial("tool_killed_under_run", || {
            tool_signalled("KILL", "echo $$; exec sleep 600")
        }),
        trial("tool_killed_under_run::what_a_program_has_started", || {
            tool_signalled("KILL", "sleep 600 & echo $!; wait")
        }),
        trial("tool_killed_under_run::what_nobody_waits_for", || {
            tool_signalled(
                "KILL",
                "(setsid sh -c 'sleep 600 & echo $!; wait' &); wait; exec sleep 600",
            )
        }),
        trial("tool_terminated_under_run", || {
            tool_signalled("TERM", "echo $$; exec sleep 600")
        }),
        trial("tool_terminated_with_a_process_left_behind", || {
            tool_signalled("HUP", "sleep 600 & echo $!")
        }),
        trial("disk_full::at_once", disk_full_at_once),
        trial("disk_full::midway", disk_full_midway),
        trial("damaged::truncated", truncated_trace),
        trial("damaged::flipped_byte", flipped_byte),
        trial("damaged::not_a_trace", not_a_trace),
        trial("damaged::truncated_and_checked", check_of_a_truncated_trace),
        trial("small_stack", small_stack),
    ];
    for (name, words, code) in BAD_USES {
        trials.push(trial(format!("usage::{name}"), move || {
            bad_use(words, *code)
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn endless(how: &str, scratch: &Scratch) -> Result<Invocation> {
    tool::expect_built()?;
    let binary = layout::programs().join("pm_endless");
    ensure!(
        binary.is_file(),
        "{} is missing: run `cargo xtask build`",
        binary.display()
    );
    Ok(Invocation::new(
        [binary.into_os_string(), "pool".into(), how.into()],
        scratch.path(),
    )
    .timeout(TIMEOUT))
}

fn stores(events: &[dump::Event]) -> u64 {
    dump::counts(events).get("store").copied().unwrap_or(0)
}

fn target_dies(how: &str, status: i32) -> Result<()> {
    let scratch = Scratch::new()?;
    let trace = scratch.join("t.bwt");
    let outcome = tool::record(
        &endless(how, &scratch)?,
        &trace,
        &["--verify", "--pm", "pool"],
    )
    .run()?;
    ensure!(
        outcome.status == status,
        "exit status {} instead of {status}\n{}",
        outcome.status,
        outcome.describe()
    );
    let events = dump::events(&trace, scratch.path())?;
    ensure!(
        stores(&events) >= STORES_AT_LEAST,
        "only {} stores were kept",
        stores(&events)
    );
    let last = events.last().map(|event| event.kind.to_string());
    ensure!(last.as_deref() == Some("end"), "the last event is {last:?}");
    Ok(())
}

/// Starts a recording of a program that never ends, and waits until it is under way.
fn start_endless(scratch: &Scratch, trace: &Path) -> Result<std::process::Child> {
    let mut command =
        tool::record(&endless("forever", scratch)?, trace, &["--pm", "pool"]).command()?;
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take().context("stdout was asked for")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line != "running\n" {
        exec::kill_group(child.id());
        child.wait()?;
        anyhow::bail!("the program said {line:?} instead of running");
    }
    // Some whole blocks should reach the file.
    thread::sleep(Duration::from_millis(700));
    Ok(child)
}

/// The process that runs pm_endless, wherever it is below the tool.
fn find_target(pool: &Path) -> Result<u32> {
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_string_lossy().parse::<u32>().ok() else {
            continue;
        };
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let runs_it =
            fs::read_link(folder.join("exe")).is_ok_and(|exe| exe.ends_with("pm_endless"));
        let here =
            fs::read_link(folder.join("cwd")).is_ok_and(|cwd| Some(cwd.as_path()) == pool.parent());
        if runs_it && here {
            return Ok(pid);
        }
    }
    anyhow::bail!("no process runs pm_endless")
}

fn target_killed_from_outside() -> Result<()> {
    let scratch = Scratch::new()?;
    let trace = scratch.join("t.bwt");
    let mut child = start_endless(&scratch, &trace)?;
    let target = find_target(&scratch.join("pool"))?;
    let killed = Invocation::shell(&format!("kill -9 {target}"), scratch.path()).run()?;
    ensure!(
        killed.status == 0,
        "cannot kill the program\n{}",
        killed.describe()
    );
    let status = child.wait()?;
    exec::kill_group(child.id());
    ensure!(
        status.code() == Some(128 + 9),
        "the tool ended with {status}"
    );
    let events = dump::events(&trace, scratch.path())?;
    ensure!(
        stores(&events) >= STORES_AT_LEAST,
        "only {} stores were kept",
        stores(&events)
    );
    Ok(())
}

fn tool_killed() -> Result<()> {
    let scratch = Scratch::new()?;
    let trace = scratch.join("t.bwt");
    let mut child = start_endless(&scratch, &trace)?;
    child.kill()?;
    child.wait()?;
    exec::kill_group(child.id());
    let (outcome, events) = dump_damaged(&trace, &scratch)?;
    ensure!(
        outcome.status == 0 || outcome.status == DAMAGED,
        "exit status {} for a trace that was cut off\n{}",
        outcome.status,
        outcome.stderr_text()
    );
    ensure!(
        stores(&events) > 0,
        "nothing of the trace is readable\n{}",
        outcome.stderr_text()
    );
    Ok(())
}

/// While nobody has asked for the tool's status, its process number is taken: the program must
/// notice all the same, once it has to wait for the tool.
fn tool_killed_and_not_collected() -> Result<()> {
    let scratch = Scratch::new()?;
    tool::expect_built()?;
    let binary = layout::programs().join("bench_persist").into_os_string();
    let argv = [binary, "pool".into(), "1000000000000".into()];
    let busy = Invocation::new(argv, scratch.path());
    let mut tool = tool::record(&busy, &scratch.join("t.bwt"), &["--pm", "pool"])
        .command()?
        .stderr(Stdio::null())
        .spawn()?;
    thread::sleep(Duration::from_millis(500));
    let threads = format!("/proc/{0}/task/{0}/children", tool.id());
    let program = fs::read_to_string(threads)?.trim().to_owned();
    ensure!(!program.is_empty(), "the program is not there");
    tool.kill()?;
    let alive = || fs::read_link(format!("/proc/{program}/exe")).is_ok();
    let deadline = Instant::now() + TIMEOUT;
    while alive() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    let ended = !alive();
    exec::kill_group(tool.id());
    tool.wait()?;
    ensure!(ended, "the program goes on without the tool");
    Ok(())
}

/// A shell that says the number of a process under `run`: that must not go on when the tool alone
/// gets a signal.
fn tool_signalled(signal: &str, script: &str) -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let shell = Invocation::shell(script, scratch.path());
    let mut tool = tool::run(&shell)
        .command()?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let out = tool.stdout.take().context("no pipe")?;
    BufReader::new(out).read_line(&mut line)?;
    let number = line.trim().to_owned();
    ensure!(!number.is_empty(), "the program says nothing");
    // So that the shell has become `sleep`, or has left it behind.
    thread::sleep(Duration::from_millis(300));
    let kill = Command::new("kill")
        .args(["-s", signal, &tool.id().to_string()])
        .status()?;
    ensure!(kill.success(), "no signal was sent");
    let deadline = Instant::now() + TIMEOUT;
    let runs = || fs::read_link(format!("/proc/{number}/exe")).is_ok();
    while (runs() || tool.try_wait()?.is_none()) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    let left = (runs(), tool.try_wait()?.is_none());
    exec::kill_group(tool.id());
    tool.wait()?;
    ensure!(!left.0, "the program goes on without the tool");
    ensure!(!left.1, "the tool goes on after the signal");
    Ok(())
}

/// A dump that may stop at damage; what it showed must be whole events.
fn dump_damaged(trace: &Path, scratch: &Scratch) -> Result<(Outcome, Vec<dump::Event>)> {
    let outcome = tool::trace(
        "dump",
        trace,
        &["--format", "json", "--no-symbols"],
        scratch.path(),
    )
    .timeout(TIMEOUT)
    .run()?;
    let events = dump::parse(&outcome.stdout)?;
    Ok((outcome, events))
}

/// A device that takes nothing.
fn disk_full_at_once() -> Result<()> {
    let scratch = Scratch::new()?;
    let outcome = tool::record(
        &endless("exit", &scratch)?,
        Path::new("/dev/full"),
        &["--force", "--pm", "pool"],
    )
    .run()?;
    expect_disk_full(&outcome)
}

/// A small file system of its own, in a mount namespace that ends with the command.
fn disk_full_midway() -> Result<()> {
    let scratch = Scratch::new()?;
    scratch.folder("small")?;
    let record = tool::record(
        &endless("exit", &scratch)?,
        Path::new("small/t.bwt"),
        &["--pm", "pool"],
    );
    let script = format!(
        "mount -t tmpfs -o size={SMALL_DISK} none small || exit 99; {}; s=$?; cp small/t.bwt kept.bwt; exit $s",
        record.line()
    );
    let outcome = Invocation::new(["unshare", "-rm", "/bin/sh", "-c", &script], scratch.path())
        .timeout(TIMEOUT)
        .run()?;
    expect_disk_full(&outcome)?;
    let (dumped, events) = dump_damaged(&scratch.join("kept.bwt"), &scratch)?;
    ensure!(
        stores(&events) > 0,
        "nothing of the trace is readable\n{}",
        dumped.stderr_text()
    );
    Ok(())
}

/// Holds some blocks of pm_endless's trace, not all.
const SMALL_DISK: &str = "300k";

fn expect_disk_full(outcome: &Outcome) -> Result<()> {
    ensure!(
        outcome.status == CANNOT_RUN,
        "exit status {}\n{}",
        outcome.status,
        outcome.describe()
    );
    ensure!(
        outcome.stdout == b"running\n",
        "the program was disturbed\n{}",
        outcome.describe()
    );
    let message = outcome.stderr_text();
    ensure!(message.contains("brownout: "), "no message\n{message}");
    Ok(())
}

fn recorded(scratch: &Scratch) -> Result<PathBuf> {
    let trace = scratch.join("t.bwt");
    tool::record(&endless("exit", scratch)?, &trace, &["--pm", "pool"])
        .run()?
        .expect_success("record")?;
    Ok(trace)
}

fn truncated_trace() -> Result<()> {
    let scratch = Scratch::new()?;
    let trace = recorded(&scratch)?;
    let whole = dump::events(&trace, scratch.path())?.len();
    let bytes = fs::read(&trace)?;
    let cut = scratch.join("cut.bwt");
    let mut before = whole + 1;
    for tenth in [9, 5, 1] {
        fs::write(&cut, &bytes[..bytes.len() * tenth / 10])?;
        let (outcome, events) = dump_damaged(&cut, &scratch)?;
        ensure!(
            outcome.status == DAMAGED,
            "{tenth}/10: exit status {}\n{}",
            outcome.status,
            outcome.stderr_text()
        );
        ensure!(
            events.len() < before,
            "{tenth}/10: {} events, {before} when longer",
            events.len()
        );
        before = events.len();
    }
    ensure!(before < whole, "cutting off nine tenths lost nothing");
    Ok(())
}

fn flipped_byte() -> Result<()> {
    let scratch = Scratch::new()?;
    let trace = recorded(&scratch)?;
    let mut bytes = fs::read(&trace)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    let bad = scratch.join("bad.bwt");
    fs::write(&bad, &bytes)?;
    let (outcome, events) = dump_damaged(&bad, &scratch)?;
    ensure!(
        outcome.status == DAMAGED,
        "exit status {}\n{}",
        outcome.status,
        outcome.stderr_text()
    );
    ensure!(stores(&events) > 0, "nothing before the damage was shown");
    ensure!(
        !outcome.stderr.is_empty(),
        "no message says where the damage is"
    );
    Ok(())
}

/// What is readable is judged, and nobody is told that all is well: the rest of the run is unknown.
fn check_of_a_truncated_trace() -> Result<()> {
    let scratch = Scratch::new()?;
    tool::expect_built()?;
    let program = layout::programs().join("bench_persist").into_os_string();
    let clean = Invocation::new([program, "pool".into(), "300000".into()], scratch.path());
    let trace = scratch.join("t.bwt");
    tool::record(&clean.timeout(TIMEOUT), &trace, &["--pm", "pool"])
        .run()?
        .expect_success("record")?;
    let check = |file: &str| {
        let brownout = layout::brownout().into_os_string();
        let argv = [brownout, "check".into(), "--trace".into(), file.into()];
        Invocation::new(argv, scratch.path()).timeout(TIMEOUT).run()
    };
    check("t.bwt")?.expect_success("check of the whole trace")?;
    let bytes = fs::read(&trace)?;
    for tenth in 1..10 {
        fs::write(scratch.join("cut.bwt"), &bytes[..bytes.len() * tenth / 10])?;
        let outcome = check("cut.bwt")?;
        let text = outcome.stdout_text() + &outcome.stderr_text();
        ensure!(
            outcome.status == CANNOT_RUN && text.contains("the trace is damaged"),
            "{tenth}/10: exit status {}\n{}",
            outcome.status,
            outcome.describe()
        );
        ensure!(!text.contains("brownout: clean"), "called clean\n{text}");
    }
    Ok(())
}

/// A limit of the stack is meant for the program.
fn small_stack() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let plain = Invocation::shell("ulimit -s; echo fine", scratch.path()).timeout(TIMEOUT);
    let trace = scratch.join("t.bwt");
    for invocation in [
        tool::run(&plain),
        tool::record(&plain, &trace, &[]),
        tool::check(&plain, &["--pm", "pool", "--accept", "unmatched"]),
    ] {
        let script = format!("ulimit -s 64; exec {}", invocation.line());
        let limited = Invocation::shell(&script, scratch.path()).timeout(TIMEOUT);
        let outcome = limited.run()?;
        ensure!(
            outcome.status == 0 && outcome.stdout_text().starts_with("64\nfine\n"),
            "{script}: exit status {}\n{}",
            outcome.status,
            outcome.describe()
        );
    }
    Ok(())
}

fn not_a_trace() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    for (name, content) in [
        ("empty", &b""[..]),
        ("text", b"hello\n"),
        ("zeros", &[0; 5000]),
    ] {
        fs::write(scratch.join(name), content)?;
        for command in ["stat", "dump"] {
            let outcome = tool::trace(command, &scratch.join(name), &[], scratch.path()).run()?;
            ensure!(
                outcome.status == DAMAGED || outcome.status == USAGE,
                "{command} {name}: exit status {}\n{}",
                outcome.status,
                outcome.describe()
            );
            expect_one_sentence(&outcome)?;
        }
    }
    Ok(())
}

fn bad_use(words: &[&str], code: i32) -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    fs::write(scratch.join("JUNK"), "not a trace and not a program\n")?;
    Invocation::new(["mkfifo", "-m", "700", "PIPE"], scratch.path())
        .run()?
        .expect_success("mkfifo")?;
    let mut argv = vec![layout::brownout().into_os_string()];
    for word in words {
        match *word {
            "TRACE" => argv.push(recorded(&scratch)?.into()),
            word => argv.push(word.into()),
        }
    }
    let outcome = Invocation::new(argv, scratch.path())
        .timeout(TIMEOUT)
        .run()?;
    ensure!(
        outcome.status == code,
        "exit status {} instead of {code}\n{}",
        outcome.status,
        outcome.describe()
    );
    expect_one_sentence(&outcome)
}

/// An error is said in words, without a panic, and on stderr.
fn expect_one_sentence(outcome: &Outcome) -> Result<()> {
    let text = outcome.stderr_text();
    ensure!(!text.trim().is_empty(), "nothing was said");
    ensure!(!text.contains("panicked"), "it panicked\n{text}");
    ensure!(text.lines().count() <= 12, "too many words\n{text}");
    Ok(())
}

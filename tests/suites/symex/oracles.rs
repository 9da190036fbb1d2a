//! What the solver is asked for beside branches, and what findings carry.
//!
//! A finding here is a crash of a run, so that nothing can be a false alarm; but the input is one
//! that no branch asks for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Report};
use brownout_tests::symex::{Build, binary};
use brownout_tests::{Outcome, Scratch, check, trial};
use libtest_mimic::Trial;

use super::{report, run, says, shows_again, statistic};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("oracles::divisor_is_zero", || {
            crashes("divide", 6, &["pool"], "shares", |input| {
                let text = String::from_utf8_lossy(input);
                let mut lines = text.lines();
                lines.any(|line| line.trim_start().starts_with("42") || line.contains("+42"))
            })
        }),
        trial("oracles::quotient_does_not_fit", || {
            crashes("divide", 8, &["ratio", "pool"], "ratios", |input| {
                input == [0, 0, 0, 0x80, 255, 255, 255, 255]
            })
        }),
        trial("oracles::index_behind_the_end", || {
            crashes("index", 4, &["pool"], "main", |input| {
                u16::from_le_bytes([input[0], input[1]]) >= 65000
            })
        }),
        trial("oracles::index_below_zero", || {
            crashes("index", 4, &["signed", "pool"], "main", |input| {
                input[1] >= 0x80
            })
        }),
        trial("carried::path_and_native_command", path_and_command),
        trial("carried::commands_of_all_ways", commands_of_all_ways),
        trial("usage::solver", solver),
        trial("usage::go_like", go_like),
    ]
}

fn one<'r>(outcome: &Outcome, report: &'r Report) -> Result<&'r Finding> {
    match &report.findings[..] {
        [finding] => Ok(finding),
        _ => anyhow::bail!("{}\n{}", outcome.describe(), check::show(report)),
    }
}

fn note<'f>(finding: &'f Finding, beginning: &str) -> Result<&'f str> {
    let note = finding.notes.iter().find_map(|n| n.strip_prefix(beginning));
    note.with_context(|| format!("no note begins with {beginning:?}: {:?}", finding.notes))
}

/// The input of the only finding.
pub fn input_file(scratch: &Scratch) -> Result<PathBuf> {
    for entry in fs::read_dir(scratch.join("brownout-symex"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "input") {
            return Ok(path);
        }
    }
    anyhow::bail!("no input was written")
}

/// The run on an input crashes which the solver was asked for; the program without the bug does
/// not, on all that is tried.
fn crashes(
    name: &str,
    bytes: usize,
    words: &[&str],
    function: &str,
    is_wrong: fn(&[u8]) -> bool,
) -> Result<()> {
    for build in [Build::Bug, Build::Fixed] {
        let scratch = Scratch::new()?;
        let program = binary(name, build);
        let program = program.to_string_lossy();
        let bytes = bytes.to_string();
        // More than any of these was seen to need, with four seeds; and some for what is silent.
        let paths = if build == Build::Bug { "800" } else { "120" };
        let options = [
            "--stdin-symbolic",
            &bytes,
            "--paths",
            paths,
            "--until-found",
        ];
        let options = [&["--pm", "pool", "--only", "correctness"][..], &options].concat();
        let argv = [&[&*program][..], words].concat();
        let (outcome, report) = report(&options, &argv, &scratch)?;
        let (turned, diverged) = (statistic(&report, "turned"), statistic(&report, "diverged"));
        ensure!(diverged * 10 <= turned, "{diverged} of {turned} diverged");
        if build == Build::Fixed {
            ensure!(report.findings.is_empty(), "{}", check::show(&report));
            ensure!(statistic(&report, "paths") >= 4, "{}", outcome.describe());
            continue;
        }
        let finding = one(&outcome, &report)?;
        ensure!(finding.rule.as_str() == "crash" && outcome.status == 1);
        ensure!(
            finding.events.iter().any(|e| check::is_inside(e, function)),
            "{}",
            check::show(&report)
        );
        let shown = fs::read(input_file(&scratch)?)?;
        ensure!(is_wrong(&shown), "{}", shown.escape_ascii());
        shows_again(&finding.replay.as_ref().context("a token")?.token, &scratch)?;
    }
    Ok(())
}

/// The exit status of the script that a finding names, which leaves the folder as it was.
fn natively(finding: &Finding, scratch: &Scratch) -> Result<Option<i32>> {
    let command = note(finding, "natively, on a copy of the files: ")?;
    let before = listing(scratch.path())?;
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let copy = errors.rsplit_once("what it has left is in ");
    let (_, copy) = copy.with_context(|| errors.clone())?;
    fs::remove_dir_all(copy.trim_end())?;
    ensure!(listing(scratch.path())? == before, "a file was changed");
    Ok(output.status.code())
}

/// What a folder holds, and what its files do.
fn listing(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let content = match path.is_file() {
            true => fs::read(&path)?,
            false => Vec::new(),
        };
        all.push((path.to_string_lossy().into_owned(), content));
    }
    all.sort();
    Ok(all)
}

/// The path names the lines of the program, and the script does what the finding says, behind the
/// set-up, and harms nobody.
fn path_and_command() -> Result<()> {
    const SIGFPE: i32 = 8;
    let scratch = Scratch::new()?;
    fs::write(scratch.join("pool"), "what the user has there")?;
    let program = binary("divide", Build::Bug);
    let program = program.to_string_lossy();
    let options = [
        "--pm",
        "pool",
        "--only",
        "correctness",
        "--setup",
        "rm pool; echo 7 > 'set up'",
        "--stdin-symbolic",
        "6",
        "--paths",
        "800",
        "--until-found",
    ];
    let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
    let finding = one(&outcome, &report)?;
    let path = note(finding, "path: ")?;
    ensure!(
        path.contains("divide.c:")
            && path.contains("divides by zero")
            && path.contains("libraries"),
        "{path}"
    );
    ensure!(natively(finding, &scratch)? == Some(128 + SIGFPE));
    // It is the set-up that makes the script complete.
    let script = note(finding, "natively, on a copy of the files: sh ")?;
    let script = fs::read_to_string(script)?;
    ensure!(script.contains("set up"), "{script}");
    Ok(())
}

/// A server is fed, a file is written, and what is standard input besides is there.
fn commands_of_all_ways() -> Result<()> {
    let ways: [(&[&str], &[&str]); 4] = [
        (&["--file-symbolic", "in:4"], &["file", "in"]),
        (&["--file-symbolic", "4"], &["map", "@@"]),
        (&["--arguments-symbolic", "4"], &["words", "x", "@@1"]),
        (&["--socket-symbolic", "8"], &["serve"]),
    ];
    for (options, words) in ways {
        let scratch = Scratch::new()?;
        fs::write(scratch.join("pool"), [0; 4096])?;
        fs::write(scratch.join("in"), "mine")?;
        fs::write(scratch.join("besides"), "nothing\n")?;
        let program = binary("ways", Build::Bug);
        let program = program.to_string_lossy();
        let mut all = vec!["--pm", "pool", "--paths", "120", "--until-found"];
        all.extend(["--stdin", "besides"]);
        all.extend(options);
        let mut argv = vec![&*program];
        argv.extend(words);
        argv.push("pool");
        let (outcome, report) = report(&all, &argv, &scratch)?;
        let finding = one(&outcome, &report)?;
        // It ends as it does under the tool: by itself.
        let status = natively(finding, &scratch)?;
        ensure!(status == Some(0), "{words:?}: {status:?}");
        let script = note(finding, "natively, on a copy of the files: sh ")?;
        let script = fs::read_to_string(script)?;
        ensure!(script.contains("besides"), "{script}");
    }
    Ok(())
}

/// A solver that is none is said before anything is run.
fn solver() -> Result<()> {
    let scratch = Scratch::new()?;
    for (solver, why) in [
        ("/nonexistent/z3", "cannot be run"),
        ("/bin/cat", "does not answer as z3 does"),
    ] {
        let options = ["--stdin-symbolic", "4", "--solver", solver];
        let outcome = run(&options, &["/bin/true"], &scratch)?;
        says(&outcome, 2, why)?;
    }
    Ok(())
}

/// What a compiler of Go makes is like this: no C library, no interpreter, at a fixed address, a
/// stack that the program makes for itself, and raw system calls.
const GO_LIKE: &str = r#"
    static char stack[1 << 16] __attribute__((aligned(16)));
    static long call(long number, long a, long b, long c)
    {
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c)
            : "rcx", "r11", "memory");
        return result;
    }
    __attribute__((used)) static void begin(void)
    {
        char bytes[2] = {0, 0};
        /* As Go's runtime does at its start: where its thread's variables are. */
        call(158, 0x1002, (long)stack, 0);
        if (call(0, 0, (long)bytes, 2) == 2 && bytes[0] == 'k' && bytes[1] == 'z')
            call(1, 1, (long)"found\n", 6);
        call(231, 0, 0, 0);
    }
    __asm__(".globl _start\n_start:\n lea stack+65536(%rip), %rsp\n call begin\n hlt\n");
"#;

fn go_like() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.join("program.c");
    fs::write(&file, GO_LIKE)?;
    let flags = [
        "-O1",
        "-static",
        "-nostdlib",
        "-no-pie",
        "-fno-stack-protector",
    ];
    check::compile(&file, scratch.join("program"), &flags)?;
    let options = ["--pm", "pool", "--stdin-symbolic", "2", "--paths", "20"];
    let (outcome, report) = report(&options, &["./program"], &scratch)?;
    // It works as any other; there is no persistent memory, which is said.
    says(&outcome, 3, "no persistent memory was touched")?;
    ensure!(statistic(&report, "paths") >= 3, "{}", outcome.describe());
    Ok(())
}

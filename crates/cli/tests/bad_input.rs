//! Bad command lines and bad input: each gives one clear sentence and the documented exit code.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use brownout_trace::event::{
    Access, ContextId, Event, EventKind, ExitStatus, ProcessId, TargetAddr, ThreadId,
};
use brownout_trace::{Meta, Writer, WriterOptions};
use tempfile::TempDir;

const FINDINGS: i32 = 1;
const USAGE: i32 = 2;
const CANNOT_RUN: i32 = 3;

fn brownout(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_brownout"))
        .current_dir(folder)
        .args(args)
        .output()
        .unwrap()
}

/// Exactly one line on stderr, which begins with the tool's name and contains `part` (in whatever
/// case), and exactly this exit code.
#[track_caller]
fn complains(output: &Output, code: i32, part: &str) {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "one sentence: {stderr}");
    let sentence = stderr
        .strip_prefix("brownout: ")
        .expect("the tool's name first");
    assert!(
        sentence.to_lowercase().contains(&part.to_lowercase()),
        "{part:?} in {stderr}"
    );
    assert!(
        !sentence.contains("os error"),
        "no numbers for people: {stderr}"
    );
    assert!(!sentence.contains("panicked"), "{stderr}");
}

/// Checks one command line in an empty folder; nothing may appear on stdout.
#[track_caller]
fn refused(args: &[&str], code: i32, part: &str) {
    let folder = TempDir::new().unwrap();
    let output = brownout(folder.path(), args);
    complains(&output, code, part);
    assert!(output.stdout.is_empty());
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing may be left behind"
    );
}

// ---------------------------------------------------------------- command lines

#[test]
fn no_command() {
    refused(&[], USAGE, "no command was given");
    refused(&["trace"], USAGE, "no command was given");
}

#[test]
fn unknown_command() {
    refused(&["frobnicate"], USAGE, "frobnicate");
}

#[test]
fn unknown_option() {
    refused(&["run", "--bogus", "--", "true"], USAGE, "--bogus");
    refused(&["trace", "stat", "--bogus", "f"], USAGE, "--bogus");
}

#[test]
fn no_program() {
    refused(&["run"], USAGE, "no program was given");
    refused(&["run", "--"], USAGE, "no program was given");
    refused(&["record", "-o", "t"], USAGE, "no program was given");
}

#[test]
fn missing_dashes() {
    refused(&["run", "true"], USAGE, "put '--' before the program");
    refused(
        &["record", "-o", "t", "true"],
        USAGE,
        "put '--' before the program",
    );
}

#[test]
fn empty_program() {
    refused(&["run", "--", ""], USAGE, "empty");
}

/// What cannot be made or written is named.
#[test]
fn folders_and_files_that_cannot_be_made() {
    for (command, option) in [
        ("fuzz", "--out"),
        ("race", "--out"),
        ("check", "--save-trace"),
        ("check", "--output"),
        ("check", "--coverage"),
        ("check", "--gen-suppressions"),
    ] {
        let args = [command, option, "/dev/null/x", "--pm", "x", "--", "true"];
        refused(&args, USAGE, "/dev/null/x: Not a directory");
    }
}

/// An option may name what never ends.
#[test]
fn endless_files() {
    for option in ["--suppressions", "--baseline", "--config"] {
        refused(
            &["check", option, "/dev/zero", "--", "true"],
            USAGE,
            "too long to be",
        );
    }
}

/// Whoever opens a pipe waits for its other end.
#[test]
fn a_pipe_is_no_program() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo")
        .args(["-m", "755"])
        .arg(&pipe)
        .status();
    assert!(made.unwrap().success());
    let output = brownout(folder.path(), &["run", "--", "./pipe"]);
    complains(&output, CANNOT_RUN, "it is not a regular file");
}

#[test]
fn bad_glob() {
    refused(
        &["record", "-o", "t", "--pm", "[a", "--", "true"],
        USAGE,
        "unclosed character class",
    );
    refused(
        &["record", "-o", "t", "--pm", "{a", "--", "true"],
        USAGE,
        "unclosed alternate group",
    );
    refused(
        &["record", "-o", "t", "--pm", "", "--", "true"],
        USAGE,
        "empty",
    );
}

#[test]
fn contradicting_options() {
    refused(
        &["record", "-o", "t", "--verify", "--no-values", "--", "true"],
        USAGE,
        "--no-values",
    );
    refused(
        &["trace", "dump", "t", "--stacks", "--no-symbols"],
        USAGE,
        "--no-symbols",
    );
}

#[test]
fn missing_stdin_file() {
    let args = ["record", "-o", "t", "--stdin", "none", "--", "cat"];
    refused(
        &args,
        USAGE,
        "cannot read none as standard input: No such file",
    );
}

// ---------------------------------------------------------------- programs

#[test]
fn missing_program() {
    refused(
        &["run", "--", "no-such-program"],
        CANNOT_RUN,
        "no-such-program",
    );
    refused(
        &["run", "--", "/no/such/folder/program"],
        CANNOT_RUN,
        "/no/such/folder/program",
    );
}

#[test]
fn a_missing_program_leaves_the_old_trace_alone() {
    let folder = TempDir::new().unwrap();
    let trace = good_trace(folder.path());
    let old = fs::read(&trace).unwrap();
    let output = brownout(
        folder.path(),
        &["record", "-o", "trace", "--", "no-such-program"],
    );
    complains(&output, CANNOT_RUN, "no-such-program");
    assert_eq!(fs::read(&trace).unwrap(), old);
    refused(
        &["record", "-o", "t", "--", "no-such-program"],
        CANNOT_RUN,
        "no-such-program",
    );
}

#[test]
fn directory_as_program() {
    refused(&["run", "--", "/"], CANNOT_RUN, "/");
}

/// Runs a file with this content and mode.
#[track_caller]
fn refused_program(content: &[u8], mode: u32, part: &str) {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("program");
    fs::write(&program, content).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
    let output = brownout(folder.path(), &["run", "--", "./program"]);
    complains(&output, CANNOT_RUN, part);
    assert!(output.stdout.is_empty());
}

#[test]
fn file_that_is_not_executable() {
    refused_program(&fs::read("/bin/true").unwrap(), 0o644, "program");
}

/// The first bytes of an ELF file of this class and machine.
fn elf_header(class: u8, machine: u16) -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    header[16] = 2; // ET_EXEC
    header[18..20].copy_from_slice(&machine.to_le_bytes());
    header[20] = 1; // EV_CURRENT
    header
}

#[test]
fn program_of_32_bits() {
    const EM_386: u16 = 3;
    refused_program(&elf_header(1, EM_386), 0o755, "32-bit");
}

#[test]
fn program_for_another_machine() {
    const EM_AARCH64: u16 = 183;
    refused_program(&elf_header(2, EM_AARCH64), 0o755, "program");
}

#[test]
fn text_without_interpreter() {
    refused_program(b"echo hello\n", 0o755, "program");
}

#[test]
fn empty_file_as_program() {
    refused_program(b"", 0o755, "program");
}

#[test]
fn missing_interpreter() {
    refused_program(b"#!/no/such/interpreter\n", 0o755, "program");
}

#[test]
fn setuid_program() {
    // SAFETY: takes no arguments and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if root {
        // Another owner, so that running it would really change who we are.
        let folder = TempDir::new().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/true", &program).unwrap();
        std::os::unix::fs::chown(&program, Some(1), Some(1)).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
        let output = brownout(folder.path(), &["run", "--", "./program"]);
        complains(&output, CANNOT_RUN, "set");
    } else {
        refused(&["run", "--", "/bin/su", "--version"], CANNOT_RUN, "set");
    }
}

// ---------------------------------------------------------------- output

#[test]
fn no_output() {
    refused(&["record", "--", "true"], USAGE, "--output");
    refused(&["record", "-o", "", "--", "true"], USAGE, "--output");
}

#[test]
fn output_in_a_missing_folder() {
    let args = ["record", "-o", "none/t", "--", "true"];
    refused(
        &args,
        USAGE,
        "cannot write the trace to none/t: its folder does not exist",
    );
}

#[test]
fn output_is_a_folder() {
    refused(
        &["record", "-o", "/", "--", "true"],
        USAGE,
        "cannot write the trace to /",
    );
}

#[test]
fn output_without_permission() {
    // SAFETY: takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        // Permissions do not stop root; sysfs does.
        let args = ["record", "-o", "/sys/kernel/trace.bwt", "--", "true"];
        refused(
            &args,
            USAGE,
            "cannot write the trace to /sys/kernel/trace.bwt",
        );
    } else {
        let folder = TempDir::new().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
        let output = brownout(folder.path(), &["record", "-o", "t", "--", "true"]);
        complains(
            &output,
            USAGE,
            "cannot write the trace to t: Permission denied",
        );
    }
}

#[test]
fn output_is_something_else() {
    let folder = TempDir::new().unwrap();
    let letter = folder.path().join("letter");
    fs::write(&letter, "dear reader").unwrap();
    let output = brownout(folder.path(), &["record", "-o", "letter", "--", "true"]);
    complains(&output, USAGE, "not a trace");
    assert_eq!(fs::read(letter).unwrap(), b"dear reader");
}

#[test]
fn full_disk() {
    let folder = TempDir::new().unwrap();
    let args = [
        "record",
        "-o",
        "/dev/full",
        "--",
        "sh",
        "-c",
        "echo done; exit 7",
    ];
    let output = brownout(folder.path(), &args);
    complains(
        &output,
        CANNOT_RUN,
        "recording stopped: No space left on device after 0 events",
    );
    assert_eq!(output.stdout, b"done\n", "the program must not be harmed");
}

// ---------------------------------------------------------------- traces

fn push(writer: &mut Writer<File>, kind: EventKind<'_>) {
    let (thread, pc, context) = (ThreadId(1), TargetAddr(0), ContextId(0));
    let event = Event {
        thread,
        pc,
        context,
        kind,
    };
    writer.push(&event).unwrap();
}

/// A trace of many small blocks, called `trace`.
fn good_trace(folder: &Path) -> PathBuf {
    let path = folder.join("trace");
    let options = WriterOptions {
        events_per_block: 10,
        ..WriterOptions::default()
    };
    let file = File::create(&path).unwrap();
    let mut writer = Writer::with_options(file, &Meta::default(), &options).unwrap();
    let thread = ThreadId(1);
    let process = ProcessId(1);
    let parent = ProcessId(0);
    let exe = b"/none";
    let pid = 1;
    push(
        &mut writer,
        EventKind::ProcessStart {
            process,
            parent,
            pid,
            exe,
        },
    );
    push(
        &mut writer,
        EventKind::ThreadStart {
            thread,
            process,
            tid: 1,
        },
    );
    for index in 0..100_u64 {
        let bytes = &index.to_le_bytes();
        let addr = TargetAddr(0x1000 + index * 8);
        push(
            &mut writer,
            EventKind::Store(Access {
                addr,
                size: 8,
                bytes,
            }),
        );
    }
    let status = ExitStatus::Code(0);
    push(&mut writer, EventKind::End { status });
    writer.finish().unwrap();
    path
}

#[track_caller]
fn refused_trace(content: &[u8], code: i32, part: &str) -> Vec<Output> {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("trace"), content).unwrap();
    let commands = [["trace", "stat", "trace"], ["trace", "dump", "trace"]];
    let outputs: Vec<Output> = commands
        .iter()
        .map(|args| brownout(folder.path(), args))
        .collect();
    for output in &outputs {
        complains(output, code, part);
    }
    outputs
}

#[test]
fn missing_trace() {
    refused(
        &["trace", "stat", "none"],
        USAGE,
        "cannot read none: No such file",
    );
    refused(
        &["trace", "dump", "none"],
        USAGE,
        "cannot read none: No such file",
    );
}

#[test]
fn trace_is_a_folder() {
    refused(
        &["trace", "stat", "/"],
        USAGE,
        "cannot read /: it is a folder",
    );
    refused(
        &["trace", "dump", "/"],
        USAGE,
        "cannot read /: it is a folder",
    );
}

#[test]
fn empty_trace() {
    refused_trace(b"", USAGE, "not a Brownout trace");
}

#[test]
fn text_as_trace() {
    refused_trace(
        &b"dear reader\n".repeat(1000),
        USAGE,
        "not a Brownout trace",
    );
}

#[test]
fn trace_of_another_version() {
    let folder = TempDir::new().unwrap();
    let mut bytes = fs::read(good_trace(folder.path())).unwrap();
    bytes[8] = 99;
    refused_trace(&bytes, USAGE, "version 99");
}

#[test]
fn truncated_trace() {
    let folder = TempDir::new().unwrap();
    let bytes = fs::read(good_trace(folder.path())).unwrap();
    let outputs = refused_trace(&bytes[..bytes.len() / 2], FINDINGS, "cut off at byte");
    for output in outputs {
        assert!(!output.stdout.is_empty(), "what is readable is shown");
    }
}

#[test]
fn corrupt_trace() {
    let folder = TempDir::new().unwrap();
    let mut bytes = fs::read(good_trace(folder.path())).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    let outputs = refused_trace(&bytes, FINDINGS, "corrupt at byte");
    for output in outputs {
        assert!(!output.stdout.is_empty(), "what is readable is shown");
    }
}

#[test]
fn bad_range() {
    for range in ["5", "5..3", "a..b", "1..2..3", "-1..5"] {
        refused(
            &["trace", "dump", "t", &format!("--range={range}")],
            USAGE,
            range,
        );
    }
}

#[test]
fn bad_numbers() {
    refused(&["trace", "dump", "t", "--thread", "x"], USAGE, "--thread");
    refused(&["trace", "dump", "t", "--limit=-1"], USAGE, "--limit");
    refused(
        &["trace", "dump", "t", "--format", "xml"],
        USAGE,
        "--format",
    );
}

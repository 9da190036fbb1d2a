//! The commands as a user meets them: exit status, signals, summaries, filters.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use brownout_trace::event::{
    Access, ContextId, Event, EventKind, ExitStatus, FenceKind, ProcessId, TargetAddr, ThreadId,
};
use brownout_trace::{Meta, Writer};
use tempfile::TempDir;

fn brownout() -> Command {
    Command::new(env!("CARGO_BIN_EXE_brownout"))
}

fn run(args: &[&str]) -> Output {
    brownout().args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

// ---------------------------------------------------------------- run

#[test]
fn exit_status_is_the_programs() {
    for code in [0, 1, 42, 255] {
        let output = run(&["run", "--", "sh", "-c", &format!("echo out; exit {code}")]);
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(output.stdout, b"out\n");
        assert_eq!(text(&output.stderr), "");
    }
    for signal in [libc::SIGKILL, libc::SIGSEGV, libc::SIGTERM] {
        let output = run(&["run", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(output.status.code(), Some(128 + signal));
    }
}

#[test]
fn standard_input_is_the_programs() {
    let mut child = brownout()
        .args(["run", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through");
}

/// The kernel gives a program no capabilities by its file if a tool without privileges follows it.
#[test]
fn capabilities_of_a_file_are_not_lost_without_a_word() {
    const NOBODY: u32 = 65534;
    /// Version 2, effective; `CAP_NET_RAW` is permitted, nothing can be inherited.
    const NET_RAW: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        to
    };
    let tool = copy(Path::new(env!("CARGO_BIN_EXE_brownout")), "brownout");
    let program = copy(Path::new("/bin/grep"), "grep");
    let path = CString::new(program.as_os_str().as_bytes()).unwrap();
    let value = NET_RAW.map(u32::to_le_bytes).concat();
    // SAFETY: strings that end with a zero byte, and as many bytes as are said.
    let given = unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    let question = ["CapPrm", "/proc/self/status"];
    let native = || {
        let mut native = Command::new(&program);
        text(
            &native
                .args(question)
                .uid(NOBODY)
                .gid(NOBODY)
                .output()
                .unwrap()
                .stdout,
        )
    };
    if given != 0 || !native().contains("2000") {
        // Only root may, and not in every container.
        return;
    }
    let followed = |is_root: bool| {
        let mut followed = Command::new(&tool);
        followed.arg("run").arg("--").arg(&program).args(question);
        if !is_root {
            followed.uid(NOBODY).gid(NOBODY);
        }
        let output = followed.current_dir(&folder).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let (held, said) = followed(false);
    assert!(held.contains("0000000000000000"), "{held}");
    let expected = format!("note: {} runs without", program.display());
    assert!(said.contains(&expected), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(followed(true).1, "");
}

/// Rust's runtime ignores SIGPIPE; the program must not inherit that.
#[test]
fn broken_pipes_end_the_program_as_natively() {
    let output = run(&["run", "--", "sh", "-c", "kill -PIPE $$; echo survived"]);
    assert_eq!(output.status.code(), Some(128 + libc::SIGPIPE));
    assert_eq!(text(&output.stdout), "");
}

/// Interrupts the process group, as a terminal does, once the program has said that it is ready.
///
/// Scripts `exec` what they wait in: a child that the shell is just making may miss the signal,
/// natively too.
fn interrupted(args: &[&str], script: &str) -> Output {
    let mut child = brownout()
        .args(args)
        .args(["--", "sh", "-c", script])
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let group = -(child.id() as libc::pid_t);
    // SAFETY: sends a signal to the group that was made above; no memory is involved.
    assert_eq!(unsafe { libc::kill(group, libc::SIGINT) }, 0);
    child.wait_with_output().unwrap()
}

#[test]
fn ctrl_c_is_the_programs() {
    let output = interrupted(&["run"], "echo ready; exec sleep 30");
    assert_eq!(output.status.code(), Some(128 + libc::SIGINT));
    // A loop, because a shell runs its trap only between commands.
    let script = "trap 'exit 5' INT; echo ready; while :; do sleep 0.05; done";
    assert_eq!(interrupted(&["run"], script).status.code(), Some(5));
}

#[test]
fn ctrl_c_leaves_a_whole_trace() {
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("t");
    let trace = trace.to_str().unwrap();
    let output = interrupted(&["record", "-o", trace], "echo ready; exec sleep 30");
    assert_eq!(output.status.code(), Some(128 + libc::SIGINT));
    assert_eq!(run(&["trace", "stat", trace]).status.code(), Some(0));
}

#[test]
fn ignored_signals_stay_ignored() {
    let mut command = brownout();
    // SAFETY: `signal` is async-signal-safe, and the closure does nothing else.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            Ok(())
        });
    }
    let output = command
        .args(["run", "--", "sh", "-c", "kill -INT $$; echo survived"])
        .output();
    assert_eq!(text(&output.unwrap().stdout), "survived\n");
}

// ---------------------------------------------------------------- record

#[test]
fn a_program_without_persistent_memory_is_never_called_ok() {
    let folder = TempDir::new().unwrap();
    let args = ["record", "-o", "t", "--verify", "--", "sh", "-c", "exit 9"];
    let output = brownout()
        .current_dir(folder.path())
        .args(args)
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{stderr}");
    assert!(stderr.contains("no persistent memory was seen"), "{stderr}");
    assert!(stderr.contains("nothing was verified"), "{stderr}");
    assert!(!stderr.contains(" ok"), "{stderr}");
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["t"], "no copies are left");
}

#[test]
fn standard_input_from_a_file() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("in"), "from a file").unwrap();
    let args = ["record", "-o", "t", "--stdin", "in", "--", "cat"];
    let output = brownout()
        .current_dir(folder.path())
        .args(args)
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "from a file");
}

const POOL_PROGRAM: &str = r#"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 8192))
        return 1;
    char *pool = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    strcpy(pool + 100, "persistent");
    __builtin_ia32_clflush(pool + 100);
    __builtin_ia32_sfence();
    return 6;
}
"#;

fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source).unwrap();
    let out = folder.join(name);
    let status = Command::new("cc")
        .args(flags)
        .arg(&file)
        .arg("-o")
        .arg(&out)
        .status()
        .unwrap();
    assert!(status.success());
    out
}

#[test]
fn record_verify_stat_and_dump() {
    let folder = TempDir::new().unwrap();
    let program = compile(folder.path(), "writer", POOL_PROGRAM, &["-g", "-O1"]);
    let program = program.to_str().unwrap();
    let here = |args: &[&str]| {
        brownout()
            .current_dir(folder.path())
            .args(args)
            .output()
            .unwrap()
    };

    let output = here(&[
        "record", "-o", "t", "--verify", "--pm", "pool", "--", program, "pool",
    ]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    assert!(stderr.contains(" on 1 PM file; t: "), "{stderr}");
    assert!(stderr.contains("verified: "), "{stderr}");

    let stat = here(&["trace", "stat", "t"]);
    assert_eq!(stat.status.code(), Some(0));
    assert!(
        text(&stat.stdout).contains("/pool ("),
        "{}",
        text(&stat.stdout)
    );

    let dump = text(&here(&["trace", "dump", "t"]).stdout);
    let flush = dump
        .lines()
        .find(|line| line.contains("clflush"))
        .expect("the flush");
    assert!(flush.contains("pool+0x64"), "{flush}");
    assert!(
        flush.contains("main (") && flush.contains("writer.c:14"),
        "{flush}"
    );
}

#[test]
fn a_hint_names_what_was_not_tracked() {
    let folder = TempDir::new().unwrap();
    let program = compile(folder.path(), "writer", POOL_PROGRAM, &[]);
    let args = ["record", "-o", "t", "--", program.to_str().unwrap(), "pool"];
    let output = brownout()
        .current_dir(folder.path())
        .args(args)
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    assert!(stderr.contains("no persistent memory was seen"), "{stderr}");
    let pool = folder.path().canonicalize().unwrap().join("pool");
    let pool = pool.display();
    let hint = format!("hint: this program maps {pool} writable and shared; add --pm {pool}");
    assert!(stderr.contains(&hint), "{stderr}");
}

// ---------------------------------------------------------------- trace

/// A trace of `count` stores and fences by turns of threads 1 and 2, at `pc` in `module`.
fn trace(path: &Path, count: u64, pc: u64, module: &[u8]) {
    let mut writer = Writer::<File>::create(path, &Meta::default()).unwrap();
    let mut push = |thread: u64, pc: u64, kind: EventKind<'_>| {
        let (thread, pc) = (ThreadId(thread as u32), TargetAddr(pc));
        let context = ContextId(0);
        let event = Event {
            thread,
            pc,
            context,
            kind,
        };
        writer.push(&event).unwrap();
    };
    let (process, parent) = (ProcessId(1), ProcessId(0));
    push(
        0,
        0,
        EventKind::ProcessStart {
            process,
            parent,
            pid: 1,
            exe: module,
        },
    );
    for thread in [1, 2] {
        push(
            0,
            0,
            EventKind::ThreadStart {
                thread: ThreadId(thread),
                process,
                tid: thread,
            },
        );
    }
    let (addr, len, offset) = (TargetAddr(0x40_0000), 0x10_0000, 0);
    push(
        0,
        0,
        EventKind::Module {
            process,
            addr,
            len,
            offset,
            path: module,
        },
    );
    for index in 0..count {
        let addr = TargetAddr(0x1000 + index * 8);
        match index % 2 {
            0 => push(
                1,
                pc,
                EventKind::Store(Access {
                    addr,
                    size: 8,
                    bytes: b"abcdefgh",
                }),
            ),
            _ => push(2, pc, EventKind::Fence(FenceKind::Sfence)),
        }
    }
    push(
        0,
        0,
        EventKind::End {
            status: ExitStatus::Code(0),
        },
    );
    writer.finish().unwrap();
}

#[test]
fn dump_can_be_cut_short() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t");
    trace(&path, 200_000, 0, b"/none");
    let mut child = brownout()
        .args(["trace", "dump", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("process_start"), "{line}");
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn dump_filters() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t");
    trace(&path, 100, 0, b"/none");
    let dump = |args: &[&str]| {
        let output = run(&[&["trace", "dump", path.to_str().unwrap()], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(dump(&[]).len(), 105);
    assert_eq!(dump(&["--limit", "7"]).len(), 7);
    assert_eq!(dump(&["--limit", "0"]).len(), 0);
    assert_eq!(dump(&["--range", "10..20"]).len(), 10);
    assert_eq!(dump(&["--range", "100.."]).len(), 5);
    assert_eq!(dump(&["--range", "..3"]).len(), 3);
    assert_eq!(dump(&["--range", "1000..2000"]).len(), 0);
    assert_eq!(dump(&["--thread", "2"]).len(), 50);
    assert_eq!(dump(&["--thread", "2", "--range", "0..14"]).len(), 5);
    assert!(
        dump(&["--thread", "2"])
            .iter()
            .all(|line| line.contains("sfence"))
    );
    let json = dump(&["--format", "json", "--range", "4..5"]);
    assert!(
        json[0].starts_with('{') && json[0].ends_with('}'),
        "{}",
        json[0]
    );
    assert!(json[0].contains(r#""kind":"store""#), "{}", json[0]);
}

#[test]
fn dump_names_functions_and_lines() {
    let folder = TempDir::new().unwrap();
    let source =
        "int put(int x) {\n    return x * 7;\n}\nint main(void) {\n    return put(0);\n}\n";
    let program = compile(
        folder.path(),
        "kv",
        source,
        &["-g", "-O0", "-no-pie", "-fno-pie"],
    );
    let nm = text(&Command::new("nm").arg(&program).output().unwrap().stdout);
    let put = nm.lines().find(|line| line.ends_with(" T put")).unwrap();
    let put = u64::from_str_radix(put.split(' ').next().unwrap(), 16).unwrap();
    let path = folder.path().join("t");
    trace(&path, 2, put, program.to_str().unwrap().as_bytes());
    let path = path.to_str().unwrap();

    let dump = |option: &str| text(&run(&["trace", "dump", path, "--range=4..5", option]).stdout);
    assert!(dump("--stacks").contains("put ("), "{}", dump("--stacks"));
    assert!(
        dump("--limit=1").contains("kv.c:1)"),
        "{}",
        dump("--limit=1")
    );
    assert!(dump("--format=json").contains(r#""function":"put""#));
    assert!(!dump("--no-symbols").contains("put"));
}

// ---------------------------------------------------------------- help

#[test]
fn help_and_version_go_to_stdout() {
    let commands: [&[&str]; 12] = [
        &["--help"],
        &["check", "--help"],
        &["explain", "--help"],
        &["replay", "--help"],
        &["report", "--help"],
        &["completions", "--help"],
        &["man", "--help"],
        &["run", "--help"],
        &["record", "--help"],
        &["trace", "--help"],
        &["trace", "stat", "--help"],
        &["trace", "dump", "--help"],
    ];
    for args in commands {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("Usage: brownout"), "{args:?}");
        assert_eq!(text(&output.stderr), "");
    }
    let help = text(&run(&["--help"]).stdout);
    assert!(
        help.contains("Exit codes:") && help.contains("70"),
        "{help}"
    );
    assert!(help.contains("What counts as persistent memory"), "{help}");
    let version = text(&run(&["--version"]).stdout);
    assert_eq!(version, format!("brownout {}\n", env!("CARGO_PKG_VERSION")));
}

// ---------------------------------------------------------------- bugs of ours

/// Stores three words, then writes nonsense where the tool looks for the next record, as no program
/// does.
const RING_BREAKER: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    ftruncate(fd, 4096);
    volatile uint64_t *pool = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 3; i++)
        pool[8 * i] = 0x1111 * (i + 1);
    volatile uint64_t *published = (uint64_t *)strtoull(argv[2], 0, 16);
    volatile uint64_t *tail = (uint64_t *)strtoull(argv[3], 0, 16);
    volatile uint64_t *next = (uint64_t *)*tail;
    for (int i = 0; i < 3; i++)
        next[i] = ~0ul;
    *published = *tail = (uint64_t)(next + 255);
    for (;;)
        pause();
}
"#;

#[test]
fn the_last_events_are_shown_when_the_engine_fails() {
    use brownout_abi::{CONTROL_BASE, Control};
    let folder = TempDir::new().unwrap();
    let program = compile(folder.path(), "breaker", RING_BREAKER, &["-O1", "-w"]);
    let [published, tail] = [
        std::mem::offset_of!(Control, ring_write),
        std::mem::offset_of!(Control, ring_tail),
    ]
    .map(|offset| format!("{:x}", CONTROL_BASE + offset as u64));
    let record = |last: Option<&str>| {
        let mut command = brownout();
        command
            .current_dir(folder.path())
            .args(["record", "-o", "t", "--pm", "pool", "--"]);
        command.arg(&program).args(["pool", &published, &tail]);
        command.env_remove("BROWNOUT_LAST_EVENTS");
        if let Some(last) = last {
            command.env("BROWNOUT_LAST_EVENTS", last);
        }
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };

    let (code, without) = record(None);
    assert_eq!(code, Some(70), "{without}");
    assert!(
        without.contains("bug in Brownout's engine") && !without.contains("last events"),
        "{without}"
    );

    let (code, with) = record(Some("2"));
    assert_eq!(code, Some(70), "{with}");
    let lines: Vec<&str> = with
        .lines()
        .skip_while(|line| *line != "the last events before:")
        .skip(1)
        .take(2)
        .collect();
    assert!(
        lines.len() == 2 && lines[0].contains("pool+0x40 8") && lines[1].contains("pool+0x80 8"),
        "{with}"
    );

    let (code, wrong) = record(Some("many"));
    assert_eq!(code, Some(3), "{wrong}");
    assert!(wrong.contains("must be a number of events"), "{wrong}");
}

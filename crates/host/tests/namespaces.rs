//! Programs in PID namespaces of their own. What such a program calls process 2 is somebody else
//! here.
//!
//! All of it happens in a namespace that the tests make first, in which process 2 is a bystander:
//! the tool must neither wait for it nor harm it. Done twice: with `/proc` of that namespace, and
//! with the one around it, by whose numbers nothing is where it is.

mod support;

use brownout_host::{ExitStatus, LaunchConfig, Limits, Stopped, record};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Folder, Keep};

/// Set in the test that runs inside, with what it shall do.
const INSIDE: &str = "BROWNOUT_TEST_INSIDE";
const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(600);

/// `unshare` with what it takes to make PID namespaces here.
fn unshare(options: &[&str]) -> Command {
    for user in [&[][..], &["--map-root-user"]] {
        let mut command = Command::new("unshare");
        command.args(user).args(["--pid", "--fork", "--kill-child"]);
        command.args(options);
        let tried = Command::new(command.get_program())
            .args(command.get_args())
            .arg("true")
            .stderr(Stdio::null())
            .status();
        if tried.is_ok_and(|status| status.success()) {
            return command;
        }
    }
    panic!(
        "this test makes PID namespaces: run it as root, or where `unshare --map-root-user --pid --fork true` works \
         (in a container: --security-opt seccomp=unconfined)"
    );
}

/// Runs the calling test once more in a namespace, behind a bystander. In there, it returns what to
/// do.
fn inside(test: &str) -> Option<String> {
    if let Ok(what) = std::env::var(INSIDE) {
        return Some(what);
    }
    for options in [&["--mount-proc"][..], &[]] {
        let me = std::env::current_exe().expect("known");
        let output = unshare(options)
            .arg("sh")
            .args(["-c", "sleep 600 & exec \"$0\" \"$@\" 2>&1"])
            .arg(me)
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, options.join(" "))
            .output()
            .expect("it can be run");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{options:?}:\n{text}");
    }
    None
}

/// Whether the bystander lives, and is not a zombie that the shell before us has left.
fn assert_bystander() {
    // SAFETY: only asks.
    let ended = unsafe { libc::waitpid(2, std::ptr::null_mut(), libc::WNOHANG) };
    assert_eq!(ended, 0, "process 2 is alive");
}

/// A program whose child, and that child's child, are in a namespace: they call themselves 1 and 2
/// there.
fn nested(folder: &Folder) -> std::path::PathBuf {
    folder.program(
        r#"
#include <sched.h>
#include <sys/syscall.h>
int main(int argc, char **argv) {
    volatile uint64_t *pm = map(argv[1]);
    if (argc > 3) { pm[3] = getpid(); return 0; } // the program that is executed in there
    pm[0] = 100;
    int how = strcmp(argv[2], "unshare") == 0;
    if (how) need(unshare(CLONE_NEWPID));
    int child = need(syscall(SYS_clone, how ? SIGCHLD : CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
    if (child == 0) {
        if (getpid() != 1) _exit(8);
        pm[1] = 101;
        int second = need(fork());
        if (second == 0) {
            if (getpid() != 2) _exit(8);
            pm[2] = 102;
            if (strcmp(argv[2], "wait") == 0) for (;;) pause();
            execl(argv[0], argv[0], argv[1], argv[2], "again", (char *)0);
            _exit(7);
        }
        if (strcmp(argv[2], "wait") == 0) for (;;) pause();
        int status;
        if (waitpid(second, &status, 0) != second || status) _exit(6);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child) return 5;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}
"#,
    )
}

fn launch(folder: &Folder, program: &Path, how: &str) -> LaunchConfig {
    folder.launch(program, [folder.pool().into_os_string(), how.into()])
}

#[test]
fn programs_in_there_are_recorded_and_their_end_is_noticed() {
    if inside("programs_in_there_are_recorded_and_their_end_is_noticed").is_none() {
        return;
    }
    let folder = Folder::new();
    let program = nested(&folder);
    for how in ["clone", "unshare"] {
        for on_main in [true, false] {
            let run = || {
                let mut keep = Keep::default();
                let config = launch(&folder, &program, how);
                let outcome = record(&config, &mut keep).expect("it can be launched");
                assert_eq!(outcome.status, ExitStatus::Code(0), "{:?}", outcome.notes);
                assert_eq!(outcome.notes, Vec::<String>::new());
                let values: Vec<u64> = keep.events.iter().filter_map(|s| s.value).collect();
                assert_eq!(values, [100, 101, 102, 2]);
                assert_eq!(keep.events.last().map(|seen| seen.name), Some("end"));
            };
            match on_main {
                true => run(),
                false => std::thread::scope(|scope| scope.spawn(run).join().expect("no panic")),
            }
        }
    }
    assert_bystander();
}

#[test]
fn limits_end_them_and_nobody_else() {
    if inside("limits_end_them_and_nobody_else").is_none() {
        return;
    }
    let folder = Folder::new();
    let program = nested(&folder);
    let limits = [
        (Some(SHORT), Some(LONG), None, Stopped::Idle),
        (Some(LONG), Some(SHORT), None, Stopped::Wall),
    ];
    for (idle, wall, events, why) in limits {
        let config = LaunchConfig {
            limits: Limits {
                events,
                idle,
                wall,
                ..Limits::default()
            },
            ..launch(&folder, &program, "wait")
        };
        let begun = Instant::now();
        let outcome = record(&config, &mut Keep::default()).expect("it can be launched");
        assert_eq!(outcome.stopped, Some(why));
        assert!(begun.elapsed() < LONG / 2, "it has ended when it was to");
        // Nothing has the pool mapped any more, by whatever number.
        let pool = folder.join("pool");
        for entry in std::fs::read_dir("/proc").expect("readable").flatten() {
            let maps = std::fs::read_to_string(entry.path().join("maps")).unwrap_or_default();
            assert!(
                !maps.contains(&*pool.to_string_lossy()),
                "{:?} is still there",
                entry.file_name()
            );
        }
        assert_bystander();
    }
}

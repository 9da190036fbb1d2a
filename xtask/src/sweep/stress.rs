//! `sweep stress-ng`: stressors of Debian's stress-ng end alike natively and under `run`.
//!
//! One stressor at a time does a few hundred of its operations and verifies them. It is alike if
//! the exit status is, and if it got on with its work: a stressor that waits for ever is ended by
//! its own time limit, with status 0.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use brownout_tests::{Invocation, Scratch, tool};

use super::common::{Comparison, Options, Try};

/// By what they are about. Left out of stress-ng's own classes are those that only compute, and
/// those that others on the machine would notice: `bigheap`, `dev-shm`, `forkheavy`, `oom-pipe`,
/// `resources` and `tmpfs` take all memory or processes that there are, `cyclic` and `softlockup`
/// the processors, `swap` and `watchdog` change the machine, `inotify` and `fanotify` use up what
/// all share. `seccomp` forbids the engine's own system calls, `usersyscall` wants Syscall User
/// Dispatch, and `opcode` runs random instructions, 32-bit system calls among them: docs/engine.md
/// has these limits.
const SUBJECTS: &[(&str, &[&str])] = &[
    (
        "signals",
        &[
            "alarm",
            "bad-altstack",
            "fault",
            "itimer",
            "kill",
            "nanosleep",
            "pidfd",
            "sigabrt",
            "sigchld",
            "sigfd",
            "sigfpe",
            "sigio",
            "signal",
            "signest",
            "sigpending",
            "sigpipe",
            "sigq",
            "sigrt",
            "sigsegv",
            "sigsuspend",
            "sigtrap",
            "sleep",
            "timer",
            "timerfd",
            "vm-segv",
        ],
    ),
    (
        "processes and threads",
        &[
            "affinity",
            "clone",
            "context",
            "daemon",
            "exec",
            "exit-group",
            "fork",
            "futex",
            "membarrier",
            "mmapfork",
            "mutex",
            "prctl",
            "pthread",
            "ptrace",
            "resched",
            "sem",
            "sem-sysv",
            "session",
            "spawn",
            "switch",
            "vdso",
            "vfork",
            "vforkmany",
            "wait",
            "x86syscall",
            "yield",
            "zombie",
        ],
    ),
    (
        "memory",
        &[
            "atomic",
            "brk",
            "dynlib",
            "env",
            "lockbus",
            "madvise",
            "malloc",
            "memcpy",
            "memfd",
            "mincore",
            "misaligned",
            "mlock",
            "mlockmany",
            "mmap",
            "mmapaddr",
            "mmapfixed",
            "mmaphuge",
            "mmapmany",
            "mprotect",
            "mremap",
            "msync",
            "msyncmany",
            "munmap",
            "pagemove",
            "pageswap",
            "prefetch",
            "remap",
            "rmap",
            "seal",
            "shm",
            "shm-sysv",
            "stack",
            "stackmmap",
            "sysbadaddr",
            "tlb-shootdown",
            "userfaultfd",
            "vm",
            "vm-addr",
            "vm-rw",
        ],
    ),
    (
        "pipes and their kin",
        &[
            "epoll",
            "eventfd",
            "fifo",
            "full",
            "mq",
            "msg",
            "null",
            "pipe",
            "pipeherd",
            "poll",
            "pty",
            "ring-pipe",
            "sendfile",
            "sockfd",
            "sockpair",
            "splice",
            "tee",
            "vm-splice",
            "zero",
        ],
    ),
];

/// Operations of each stressor, after which it ends.
const OPS: &str = "300";

/// When a stressor that has not done them ends itself. Natively most take less than a second.
const STRESS_SECONDS: &str = "20";

/// When it is ended.
const LIMIT: Duration = Duration::from_secs(120);

/// A stressor under the tool does at least this part of what it does natively.
const OPS_PART_MIN: u64 = 50;

/// The stressors to be run.
pub fn stressors(options: &Options) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (subject, stressors) in SUBJECTS {
        eprintln!("{subject}: {}", stressors.join(" "));
        names.extend(stressors.iter().map(|&name| name.to_owned()));
    }
    options.select(names)
}

/// Runs a stressor on both sides.
pub fn compare(name: &str, _attempt: Try) -> Result<Comparison> {
    let native = match stress(name, |invocation| invocation) {
        Ok(native) => native,
        Err(error) => return Ok(Comparison::NotNatively(format!("{error:#}"))),
    };
    if native.status != 0 || native.ops == 0 {
        return Ok(Comparison::NotNatively(native.words()));
    }
    let translated = stress(name, |invocation| tool::run(&invocation))?;
    let slow = translated.ops * OPS_PART_MIN < native.ops;
    Ok(match translated.status != 0 || slow {
        false => Comparison::Alike,
        true => Comparison::Differs(format!(
            "{} instead of {}\n{}",
            translated.words(),
            native.words(),
            translated.output
        )),
    })
}

/// How a stressor has ended.
struct Ended {
    status: i32,
    ops: u64,
    output: String,
}

impl Ended {
    fn words(&self) -> String {
        format!("exit status {} after {} operations", self.status, self.ops)
    }
}

fn stress(name: &str, side: impl FnOnce(Invocation) -> Invocation) -> Result<Ended> {
    let scratch = Scratch::new()?;
    let temporary = scratch.folder("temporary")?;
    let metrics = scratch.join("metrics");
    let argv = [
        "stress-ng",
        &format!("--{name}"),
        "1",
        &format!("--{name}-ops"),
        OPS,
        "--verify",
        "--no-rand-seed",
        "--timeout",
        STRESS_SECONDS,
        "--temp-path",
        &temporary.to_string_lossy(),
        // Without it, nothing is written about operations.
        "--metrics-brief",
        "--yaml",
        &metrics.to_string_lossy(),
    ];
    let invocation = Invocation::new(argv, scratch.path()).timeout(LIMIT);
    let outcome = side(invocation).run()?;
    Ok(Ended {
        status: outcome.status,
        ops: operations(&metrics),
        output: outcome.describe(),
    })
}

/// From "bogo-ops: 300"; none if nothing was written.
fn operations(metrics: &Path) -> u64 {
    let text = fs::read_to_string(metrics).unwrap_or_default();
    text.lines()
        .find_map(|line| line.trim().strip_prefix("bogo-ops:"))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

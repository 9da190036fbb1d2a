//! What a recovery made of an image.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// By itself.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// Not at all.
    Hang(Hang),
}

/// How it was seen that a program does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Hang {
    /// It made so many steps: the same number in every run.
    Steps,
    /// It waited for something that does not come.
    Blocked,
    /// It took too long.
    Time,
}

impl Status {
    /// The signal that ended the program, or one that it ran: a shell exits with 128 + n if its
    /// last command was killed by signal n. Signals that others send (a request to end, a broken
    /// pipe) do not count there, since programs choose such codes as well.
    pub fn killed_by(self) -> Option<i32> {
        match self {
            Status::Signal(signal) => Some(signal),
            Status::Exit(code) => FATAL.into_iter().find(|signal| code == 128 + signal),
            Status::Hang(_) => None,
        }
    }
}

/// Signals by which a program ends itself because of a mistake of its own.
const FATAL: [i32; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// Whether a program that this signal ends has made a mistake; others send the other signals.
pub fn is_fatal(signal: i32) -> bool {
    FATAL.contains(&signal)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Exit(code) => write!(f, "exit code {code}"),
            Status::Signal(signal) => write!(f, "signal {signal}"),
            Status::Hang(_) => f.write_str("hang"),
        }
    }
}

/// What was seen of a recovery from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// The last of what it said on its standard error.
    pub stderr: Vec<u8>,
    /// How the checker command ended, and what it said; if there is one and recovery ended well.
    pub checker: Option<(Status, Vec<u8>)>,
    /// What recovery printed when it was run once more, on what it had left: only if what it
    /// printed first is not to be expected after any number of operations.
    pub again: Option<Vec<u8>>,
    /// Conditions that the program has declared to hold after recovery, and that do not.
    pub broken: Vec<String>,
}

impl Outcome {
    /// What it said last, for people: a line.
    pub fn last_words(&self) -> Option<String> {
        last_words(&self.stderr).or_else(|| last_words(&self.stdout))
    }
}

/// The line that says why a program has ended, if it has said so in the way of its language, or
/// else the last one. Behind the reason may come a backtrace, and advice on how to have one.
pub fn last_words(said: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let line =
        reason(&lines).or_else(|| lines.iter().rev().copied().find(|l| !l.trim().is_empty()));
    line.map(|line| line.trim().chars().take(200).collect())
}

/// The reason as Rust, Go, Java and the sanitizers give it.
fn reason<'l>(lines: &[&'l str]) -> Option<&'l str> {
    let last = |is: fn(&str) -> bool| lines.iter().rposition(|line| is(line));
    let is_panic = |line: &str| line.starts_with("thread '") && line.contains(" panicked at ");
    if let Some(at) = last(is_panic) {
        // The message follows. Of old it stood in the same line.
        let next = lines.get(at + 1).filter(|line| !line.trim().is_empty());
        return match lines[at].ends_with(':') {
            true => next.or(lines.get(at)).copied(),
            false => Some(lines[at]),
        };
    }
    let is_go = lines.iter().any(|line| line.starts_with("goroutine "));
    let is_java = lines.iter().any(|line| line.starts_with("\tat "));
    let at = last(|line| line.contains("SUMMARY: ") && line.contains("Sanitizer: "))
        .or_else(|| {
            last(|l| l.starts_with("panic: ") || l.starts_with("fatal error: ")).filter(|_| is_go)
        })
        .or_else(|| last(|l| l.starts_with("Exception in thread ")).filter(|_| is_java))?;
    Some(lines[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_told_and_not_the_advice_behind_it() {
        let said = [
            ("a\n  the sum is 70  \n\n", "the sum is 70"),
            (
                "thread 'main' panicked at src/main.rs:25:9:\ndamaged: [0, 1]\nstack backtrace:\n   0: x\nnote: run with `RUST_BACKTRACE=1`\n",
                "damaged: [0, 1]",
            ),
            (
                "thread 'main' (17) panicked at src/main.rs:25:9:\n\nnote: run with `RUST_BACKTRACE=1`\n",
                "thread 'main' (17) panicked at src/main.rs:25:9:",
            ),
            (
                "thread 'main' panicked at 'damaged', src/main.rs:2:5\nnote: run with `RUST_BACKTRACE=1`\n",
                "thread 'main' panicked at 'damaged', src/main.rs:2:5",
            ),
            (
                "panic: bad magic\n\ngoroutine 1 [running]:\nmain.main()\n\t/a.go:5 +0x1d\nexit status 2\n",
                "panic: bad magic",
            ),
            ("panic: in my own words\nsorry\n", "sorry"),
            (
                "Exception in thread \"main\" java.lang.Error: torn\n\tat A.main(A.java:3)\n",
                "Exception in thread \"main\" java.lang.Error: torn",
            ),
            (
                "==7==ERROR: AddressSanitizer: x\nSUMMARY: AddressSanitizer: heap-use-after-free a.c:3 in main\n==7==ABORTING\n",
                "SUMMARY: AddressSanitizer: heap-use-after-free a.c:3 in main",
            ),
        ];
        for (said, reason) in said {
            assert_eq!(last_words(said.as_bytes()).as_deref(), Some(reason));
        }
        assert_eq!(last_words(b"\n \n"), None);
    }
}

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
    /// The last line of what it said, for people.
    pub fn last_words(&self) -> Option<String> {
        let of = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let line = text.lines().rev().map(str::trim).find(|l| !l.is_empty());
            line.map(|line| line.chars().take(200).collect())
        };
        of(&self.stderr).or_else(|| of(&self.stdout))
    }
}

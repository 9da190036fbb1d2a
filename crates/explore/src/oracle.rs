//! What a recovery must and must not do.

use std::collections::HashSet;

use crate::outcome::{Hang, Outcome, Status};

/// What is wrong with an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Symptom {
    /// Recovery was ended by this signal.
    Signal(i32),
    /// It ended with this code.
    Exit(i32),
    /// It did not end.
    Hang,
    /// What it printed is not what is there after `done` or `done + 1` operations.
    NotAtomic { done: u64 },
    /// The checker command was not content.
    Checker,
    /// A condition that must hold after recovery does not.
    Broken(String),
}

impl Symptom {
    /// The rule that it violates.
    pub fn rule(&self) -> &'static str {
        match self {
            Symptom::Signal(_) => "recovery-crash",
            Symptom::Exit(_) => "recovery-error",
            Symptom::Hang => "recovery-hang",
            Symptom::NotAtomic { .. } => "not-atomic",
            Symptom::Checker => "checker-failed",
            Symptom::Broken(_) => "recovery-assertion",
        }
    }

    /// Whether two are the same kind of failure.
    pub fn is_like(&self, other: &Symptom) -> bool {
        match (self, other) {
            (Symptom::NotAtomic { .. }, Symptom::NotAtomic { .. }) => true,
            _ => self == other,
        }
    }

    /// In words; completes "after a crash here, …".
    pub fn describe(&self, outcome: &Outcome) -> String {
        let quoted = |words: Option<String>| words.map_or(String::new(), |w| format!(": {w}"));
        match self {
            Symptom::Signal(signal) => {
                format!("recovery is killed by {}", signal_name(*signal))
            }
            Symptom::Exit(code) => format!(
                "recovery fails with exit code {code}{}",
                quoted(outcome.last_words())
            ),
            Symptom::Hang => match outcome.status {
                Status::Hang(Hang::Steps) => "recovery does not end: its step budget ran out",
                Status::Hang(Hang::Blocked) => "recovery waits for ever",
                _ => "recovery does not end in time",
            }
            .to_owned(),
            Symptom::NotAtomic { done } => {
                let printed = String::from_utf8_lossy(&outcome.stdout);
                let first: String = printed.trim_end().chars().take(120).collect();
                format!(
                    "recovery prints what is there neither after {done} nor after {} operations: {:?}",
                    done + 1,
                    first
                )
            }
            Symptom::Checker => {
                let said = outcome.checker.as_ref().map(|(status, said)| {
                    let said = String::from_utf8_lossy(said);
                    let last = said.lines().rev().find(|line| !line.trim().is_empty());
                    match last {
                        Some(last) => format!("{status}, {last}"),
                        None => status.to_string(),
                    }
                });
                format!("the checker is not content{}", quoted(said))
            }
            Symptom::Broken(text) => format!("what must hold after recovery does not: {text}"),
        }
    }
}

/// The usual name of a signal.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGKILL => "SIGKILL",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// What recovery prints after each number of whole operations.
#[derive(Clone, Debug, Default)]
pub struct References {
    pub outputs: Vec<Vec<u8>>,
}

impl References {
    /// What is left of an output without the lines that never appear after whole operations: recovery may remark on the crash.
    fn without_remarks(&self, output: &[u8]) -> Vec<u8> {
        let lines = |bytes: &'_ [u8]| -> Vec<Vec<u8>> {
            bytes
                .split_inclusive(|b| *b == b'\n')
                .map(<[u8]>::to_vec)
                .collect()
        };
        let known: HashSet<Vec<u8>> = self.outputs.iter().flat_map(|o| lines(o)).collect();
        let kept = lines(output)
            .into_iter()
            .filter(|line| known.contains(line));
        kept.flatten().collect()
    }
}

/// Judges outcomes.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// What recovery ends with if nothing is wrong.
    pub good_exit: i32,
    pub references: Option<References>,
    /// Operations are known by their outputs only. Several may be under way when one is acknowledged (a group commit), so a state
    /// between two of them is no failure; one from before an acknowledgement is.
    pub only_durability: bool,
}

impl Oracle {
    /// What is wrong with the outcome of a crash after `done` whole operations.
    pub fn judge(&self, outcome: &Outcome, done: u64) -> Option<Symptom> {
        match outcome.status {
            Status::Signal(signal) => return Some(Symptom::Signal(signal)),
            Status::Hang(_) => return Some(Symptom::Hang),
            Status::Exit(0) => {}
            Status::Exit(code) if code == self.good_exit => {}
            Status::Exit(code) => return Some(Symptom::Exit(code)),
        }
        if let Some(text) = outcome.broken.first() {
            return Some(Symptom::Broken(text.clone()));
        }
        if let Some((status, _)) = &outcome.checker
            && *status != Status::Exit(0)
        {
            return Some(Symptom::Checker);
        }
        if let Some(references) = &self.references {
            let from = (done as usize).min(references.outputs.len());
            let to = (done as usize + 2).min(references.outputs.len());
            let lost = references.outputs[..from].contains(&outcome.stdout);
            let range = &references.outputs[from..to];
            let explained = range.contains(&outcome.stdout)
                || outcome.again.as_ref().is_some_and(|again| {
                    range.contains(again) && references.without_remarks(&outcome.stdout) == *again
                });
            if !explained && (lost || !self.only_durability) {
                return Some(Symptom::NotAtomic { done });
            }
        }
        None
    }
}

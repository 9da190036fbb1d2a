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
        if let Some(signal) = outcome.status.killed_by() {
            return Some(Symptom::Signal(signal));
        }
        match outcome.status {
            Status::Signal(_) => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: Status, stdout: &str) -> Outcome {
        Outcome {
            status,
            stdout: stdout.into(),
            stderr: Vec::new(),
            checker: None,
            again: None,
            broken: Vec::new(),
        }
    }

    fn printed(stdout: &str) -> Outcome {
        outcome(Status::Exit(0), stdout)
    }

    /// First with a remark, then without.
    fn remarked(stdout: &str, again: &str) -> Outcome {
        Outcome {
            again: Some(again.into()),
            ..printed(stdout)
        }
    }

    fn oracle(outputs: &[&str], only_durability: bool) -> Oracle {
        let outputs = outputs.iter().map(|o| o.as_bytes().to_vec()).collect();
        Oracle {
            good_exit: 0,
            references: Some(References { outputs }),
            only_durability,
        }
    }

    fn plain(good_exit: i32) -> Oracle {
        Oracle {
            good_exit,
            references: None,
            only_durability: false,
        }
    }

    #[test]
    fn how_it_ended_comes_first() {
        let hangs = [Hang::Steps, Hang::Blocked, Hang::Time];
        let mut table = vec![
            (0, Status::Exit(0), None),
            (0, Status::Exit(2), Some(Symptom::Exit(2))),
            (2, Status::Exit(2), None),
            (2, Status::Exit(0), None),
            (2, Status::Exit(1), Some(Symptom::Exit(1))),
            (2, Status::Signal(11), Some(Symptom::Signal(11))),
            // Through a shell.
            (0, Status::Exit(139), Some(Symptom::Signal(11))),
            (139, Status::Exit(139), Some(Symptom::Signal(11))),
            (0, Status::Exit(143), Some(Symptom::Exit(143))),
        ];
        table.extend(hangs.map(|hang| (0, Status::Hang(hang), Some(Symptom::Hang))));
        for (good_exit, status, expected) in table {
            let judged = plain(good_exit).judge(&outcome(status, ""), 0);
            assert_eq!(judged, expected, "{status:?}, good is {good_exit}");
        }
        // Whatever else is wrong with it.
        let everything = Outcome {
            broken: vec!["sum == 10".into()],
            checker: Some((Status::Exit(1), Vec::new())),
            ..outcome(Status::Signal(6), "?")
        };
        let judged = oracle(&["a\n"], false).judge(&everything, 0);
        assert_eq!(judged, Some(Symptom::Signal(6)));
    }

    #[test]
    fn broken_conditions_and_checkers_come_before_outputs() {
        let strict = oracle(&["a\n"], false);
        let mut bad = printed("?");
        assert_eq!(strict.judge(&bad, 0), Some(Symptom::NotAtomic { done: 0 }));
        for status in [
            Status::Exit(1),
            Status::Signal(11),
            Status::Hang(Hang::Time),
        ] {
            bad.checker = Some((status, b"said so".to_vec()));
            assert_eq!(strict.judge(&bad, 0), Some(Symptom::Checker));
        }
        bad.broken = vec!["first".into(), "second".into()];
        let broken = Symptom::Broken("first".into());
        assert_eq!(strict.judge(&bad, 0), Some(broken));
        let mut good = printed("a\n");
        good.checker = Some((Status::Exit(0), Vec::new()));
        assert_eq!(strict.judge(&good, 0), None);
    }

    /// What is printed after 0, 1, 2, … operations, against every number done.
    #[test]
    fn all_or_nothing_of_the_operation_under_way() {
        let outputs = ["", "a\n", "ab\n", "abc\n"];
        let strict = oracle(&outputs, false);
        let lenient = oracle(&outputs, true);
        for done in 0..6u64 {
            for (k, output) in (0u64..).zip(outputs) {
                let is_fine = k == done || k == done + 1;
                let judged = strict.judge(&printed(output), done);
                assert_eq!(judged.is_none(), is_fine, "{k} after {done}");
                // One from before an acknowledgement is a loss, whoever judges.
                let judged = lenient.judge(&printed(output), done);
                assert_eq!(judged.is_none(), k >= done, "{k} after {done}");
            }
            // Half of an operation.
            let torn = printed("a");
            let symptom = Symptom::NotAtomic { done };
            assert_eq!(strict.judge(&torn, done), Some(symptom));
            assert_eq!(lenient.judge(&torn, done), None);
        }
    }

    #[test]
    fn an_operation_that_undoes_another_is_no_loss() {
        // Insert, insert, delete: what is there after the third was there after the first.
        let outputs = ["", "a\n", "ab\n", "a\n"];
        for only_durability in [false, true] {
            let oracle = oracle(&outputs, only_durability);
            assert_eq!(oracle.judge(&printed("a\n"), 2), None);
            assert_eq!(oracle.judge(&printed("a\n"), 3), None);
            let lost = oracle.judge(&printed(""), 2);
            assert_eq!(lost, Some(Symptom::NotAtomic { done: 2 }));
        }
    }

    #[test]
    fn remarks_on_the_crash_are_left_out() {
        let oracle = oracle(&["", "a\n", "a\nb\n", "a\nb\nc\n"], false);
        let table = [
            // Only a remark more, before, between or after.
            (remarked("recovered!\na\nb\n", "a\nb\n"), 1, true),
            (remarked("a\nlog replayed\nb\n", "a\nb\n"), 2, true),
            (remarked("a\nb\nbye\n", "a\nb\n"), 2, true),
            // What is there the second time is of another number of operations.
            (remarked("recovered!\na\n", "a\n"), 2, false),
            // The first time it was something else than the second time.
            (remarked("recovered!\na\n", "a\nb\n"), 1, false),
            (remarked("b\n", "a\nb\n"), 1, false),
            // The remark did not go away: nobody knows what it means.
            (remarked("recovered!\na\n", "recovered!\na\n"), 1, false),
            // There was no second time.
            (printed("recovered!\na\n"), 1, false),
        ];
        for (outcome, done, is_fine) in table {
            let judged = oracle.judge(&outcome, done);
            let printed = String::from_utf8_lossy(&outcome.stdout);
            assert_eq!(judged.is_none(), is_fine, "{printed:?} after {done}");
        }
    }

    #[test]
    fn without_references_outputs_are_not_judged() {
        assert_eq!(plain(0).judge(&printed("anything"), 7), None);
    }

    #[test]
    fn only_the_number_of_operations_makes_no_other_symptom() {
        let (one, two) = (
            Symptom::NotAtomic { done: 1 },
            Symptom::NotAtomic { done: 2 },
        );
        assert!(one.is_like(&two) && one != two);
        assert!(!Symptom::Exit(1).is_like(&Symptom::Exit(2)));
        assert!(!Symptom::Broken("a".into()).is_like(&Symptom::Broken("b".into())));
        assert!(!Symptom::Hang.is_like(&one));
        let all = [
            Symptom::Signal(11),
            Symptom::Exit(1),
            Symptom::Hang,
            one,
            Symptom::Checker,
            Symptom::Broken(String::new()),
        ];
        let rules: HashSet<&str> = all.iter().map(Symptom::rule).collect();
        assert_eq!(rules.len(), all.len(), "each has a rule of its own");
    }
}

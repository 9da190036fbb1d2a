//! What a recovery must and must not do.

use std::collections::HashSet;

use brownout_findings::BuiltIn;

use crate::compare::{are_answers, difference, gone, is_reordered, without_addresses};
use crate::outcome::{Hang, Outcome, Status, last_words};

/// How many whole operations may be there after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// At least those that were acknowledged.
    pub from: u64,
    /// At most those that were begun.
    pub to: u64,
}

impl Span {
    /// In words, after "after".
    fn words(self) -> String {
        match (self.from, self.to) {
            (from, to) if to <= from => operations(from),
            (from, to) if to == from + 1 => format!("{from} or {}", operations(to)),
            (from, to) => format!("{from} to {}", operations(to)),
        }
    }
}

fn operations(count: u64) -> String {
    match count {
        1 => "1 operation".into(),
        n => format!("{n} operations"),
    }
}

/// What is wrong with an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Symptom {
    /// Recovery was ended by this signal.
    Signal(i32),
    /// It ended with this code.
    Exit(i32),
    /// It did not end.
    Hang,
    /// What it printed is not what is there after any number of operations that may be there.
    NotAtomic(Span),
    /// Something is missing that was acknowledged.
    Lost(Span),
    /// It printed all that is to be there, but in another order.
    Reordered(Span),
    /// The checker command was not content.
    Checker,
    /// A condition that must hold after recovery does not.
    Broken(String),
}

impl Symptom {
    /// The rule that it violates.
    pub fn rule(&self) -> BuiltIn {
        match self {
            Symptom::Signal(_) => BuiltIn::RecoveryCrash,
            Symptom::Exit(_) => BuiltIn::RecoveryError,
            Symptom::Hang => BuiltIn::RecoveryHang,
            Symptom::NotAtomic(_) | Symptom::Lost(_) => BuiltIn::NotAtomic,
            Symptom::Reordered(_) => BuiltIn::OtherOrder,
            Symptom::Checker => BuiltIn::CheckerFailed,
            Symptom::Broken(_) => BuiltIn::RecoveryAssertion,
        }
    }

    /// The same without what differs between crashes of one cause.
    pub fn kind(&self) -> Symptom {
        match self {
            Symptom::NotAtomic(_) | Symptom::Lost(_) => Symptom::NotAtomic(Span::default()),
            Symptom::Reordered(_) => Symptom::Reordered(Span::default()),
            other => other.clone(),
        }
    }

    /// Whether two are the same kind of failure.
    pub fn is_like(&self, other: &Symptom) -> bool {
        self.kind() == other.kind()
    }

    /// In words; completes "after a crash here, …".
    pub fn describe(&self, outcome: &Outcome) -> String {
        let quoted = |words: Option<String>| words.map_or(String::new(), |w| format!(": {w}"));
        let printed = || match outcome.stdout.is_empty() {
            true => "nothing".to_owned(),
            false => {
                let printed = String::from_utf8_lossy(&outcome.stdout);
                let first: String = printed.trim_end().chars().take(120).collect();
                format!("{first:?}")
            }
        };
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
            Symptom::NotAtomic(span) => {
                let what = match (span.from, span.to) {
                    (from, to) if to <= from => {
                        format!("something else than is there after {}", operations(from))
                    }
                    (from, to) if to == from + 1 => {
                        format!(
                            "what is there neither after {from} nor after {}",
                            operations(to)
                        )
                    }
                    (from, to) => {
                        format!("what is there after no number of operations from {from} to {to}")
                    }
                };
                format!("recovery prints {what}: {}", printed())
            }
            Symptom::Lost(span) => format!(
                "acknowledged data is gone: after {} recovery prints {}",
                operations(span.from),
                printed()
            ),
            Symptom::Reordered(span) => format!(
                "recovery prints what is there after {}, but in another order: {}",
                span.words(),
                printed()
            ),
            Symptom::Checker => {
                let said = outcome
                    .checker
                    .as_ref()
                    .map(|(status, said)| match last_words(said) {
                        Some(last) => format!("{status}, {last}"),
                        None => status.to_string(),
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
    /// Recovery prints addresses, which differ from run to run. In `outputs` they are made equal.
    pub addresses: bool,
    /// Lines of recovery's standard input: if it prints as many, these may be answers.
    pub questions: usize,
}

impl References {
    /// Whether an output is another one in another order.
    fn is_reordered(&self, printed: &[u8], expected: &[u8]) -> bool {
        is_reordered(printed, expected) && !are_answers(printed, expected, self.questions)
    }

    /// What is left of an output without the lines that never appear after whole operations:
    /// recovery may remark on the crash.
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

    /// What recovery has printed of the data: without its remarks on the crash, if it has made any
    /// and makes them only once.
    fn data(&self, outcome: &Outcome) -> Vec<u8> {
        let plain = |output: &[u8]| match self.addresses {
            true => without_addresses(output),
            false => output.to_vec(),
        };
        let printed = plain(&outcome.stdout);
        match outcome.again.as_deref().map(plain) {
            Some(again) if self.without_remarks(&printed) == again => again,
            _ => printed,
        }
    }

    /// Recovery has been found to print addresses.
    pub fn ignore_addresses(&mut self) {
        self.addresses = true;
        for output in &mut self.outputs {
            *output = without_addresses(output);
        }
    }

    /// How many whole operations an outcome shows, of those from `from` to `to`: the fewest, in
    /// this order if there are such.
    pub fn count_in(&self, outcome: &Outcome, from: u64, to: u64) -> Option<u64> {
        let data = self.data(outcome);
        let outputs = || (from..=to).zip(self.within(Span { from, to }));
        let exact = outputs().find(|(_, expected)| **expected == data);
        let found = exact.or_else(|| outputs().find(|(_, o)| self.is_reordered(&data, o)));
        found.map(|(k, _)| k)
    }

    fn within(&self, span: Span) -> &[Vec<u8>] {
        let count = self.outputs.len();
        let from = (span.from as usize).min(count);
        let to = (span.to as usize + 1).clamp(from, count);
        &self.outputs[from..to]
    }

    fn before(&self, span: Span) -> &[Vec<u8>] {
        &self.outputs[..(span.from as usize).min(self.outputs.len())]
    }
}

/// Judges outcomes.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// What recovery ends with if nothing is wrong.
    pub good_exit: i32,
    pub references: Option<References>,
    /// Operations are known by their outputs only. Several may be under way when one is
    /// acknowledged (a group commit), so a state between two of them is no failure; one from before
    /// an acknowledgement is.
    pub only_durability: bool,
    /// The order of what recovery prints belongs to what must survive.
    pub ordered: bool,
}

impl Oracle {
    /// What is wrong with the outcome of a crash after which so many operations may be there.
    pub fn judge(&self, outcome: &Outcome, span: Span) -> Option<Symptom> {
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
        let references = self.references.as_ref()?;
        let data = references.data(outcome);
        let (allowed, older) = (references.within(span), references.before(span));
        let is_reordered = |of: &[Vec<u8>]| of.iter().any(|o| references.is_reordered(&data, o));
        if allowed.contains(&data) {
            return None;
        }
        if older.contains(&data) && (self.ordered || !is_reordered(allowed)) {
            return Some(Symptom::Lost(span));
        }
        if self.only_durability {
            return None;
        }
        if is_reordered(allowed) {
            return Some(match self.ordered {
                true => Symptom::NotAtomic(span),
                false => Symptom::Reordered(span),
            });
        }
        if is_reordered(older) || !gone(&data, allowed).is_empty() {
            return Some(Symptom::Lost(span));
        }
        Some(Symptom::NotAtomic(span))
    }

    /// What differs from each state that may be there, item by item.
    pub fn differences(&self, symptom: &Symptom, outcome: &Outcome) -> Vec<String> {
        let (Symptom::NotAtomic(span) | Symptom::Lost(span) | Symptom::Reordered(span)) = symptom
        else {
            return Vec::new();
        };
        let Some(references) = &self.references else {
            return Vec::new();
        };
        let data = references.data(outcome);
        let allowed = references.within(*span);
        let mut notes = Vec::new();
        if let Symptom::Lost(_) = symptom
            && let Some(k) = references
                .before(*span)
                .iter()
                .rposition(|o| *o == data || references.is_reordered(&data, o))
        {
            notes.push(format!(
                "it is what is there after {}, but {} acknowledged",
                operations(k as u64),
                match span.from {
                    1 => "1 was".into(),
                    n => format!("{n} were"),
                }
            ));
        }
        // The first and the last; between them nothing new is to be learned.
        let first = allowed.first().map(|output| (span.from, output));
        let last = allowed.len().checked_sub(1).filter(|at| *at > 0);
        let last = last.map(|at| (span.from + at as u64, &allowed[at]));
        for (k, output) in first.into_iter().chain(last) {
            if let Some(words) = difference(&data, output) {
                notes.push(format!(
                    "compared with what is there after {}: {words}",
                    operations(k)
                ));
            }
        }
        notes
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
            references: Some(References {
                outputs,
                addresses: false,
                questions: 0,
            }),
            only_durability,
            ordered: false,
        }
    }

    /// In operation `done + 1`.
    fn during(done: u64) -> Span {
        Span {
            from: done,
            to: done + 1,
        }
    }

    fn plain(good_exit: i32) -> Oracle {
        Oracle {
            good_exit,
            references: None,
            only_durability: false,
            ordered: false,
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
            let judged = plain(good_exit).judge(&outcome(status, ""), during(0));
            assert_eq!(judged, expected, "{status:?}, good is {good_exit}");
        }
        // Whatever else is wrong with it.
        let everything = Outcome {
            broken: vec!["sum == 10".into()],
            checker: Some((Status::Exit(1), Vec::new())),
            ..outcome(Status::Signal(6), "?")
        };
        let judged = oracle(&["a\n"], false).judge(&everything, during(0));
        assert_eq!(judged, Some(Symptom::Signal(6)));
    }

    #[test]
    fn broken_conditions_and_checkers_come_before_outputs() {
        let strict = oracle(&["a\n"], false);
        let mut bad = printed("?");
        assert_eq!(
            strict.judge(&bad, during(0)),
            Some(Symptom::NotAtomic(during(0)))
        );
        for status in [
            Status::Exit(1),
            Status::Signal(11),
            Status::Hang(Hang::Time),
        ] {
            bad.checker = Some((status, b"said so".to_vec()));
            assert_eq!(strict.judge(&bad, during(0)), Some(Symptom::Checker));
        }
        bad.broken = vec!["first".into(), "second".into()];
        let broken = Symptom::Broken("first".into());
        assert_eq!(strict.judge(&bad, during(0)), Some(broken));
        let mut good = printed("a\n");
        good.checker = Some((Status::Exit(0), Vec::new()));
        assert_eq!(strict.judge(&good, during(0)), None);
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
                let judged = strict.judge(&printed(output), during(done));
                assert_eq!(judged.is_none(), is_fine, "{k} after {done}");
                // One from before an acknowledgement is a loss, whoever judges.
                let judged = lenient.judge(&printed(output), during(done));
                assert_eq!(judged.is_none(), k >= done, "{k} after {done}");
            }
            // Half of an operation.
            let torn = printed("a");
            let judged = strict.judge(&torn, during(done));
            assert!(
                judged.is_some_and(|s| s.rule() == BuiltIn::NotAtomic),
                "{done}"
            );
            assert_eq!(lenient.judge(&torn, during(done)), None);
        }
    }

    #[test]
    fn an_operation_that_undoes_another_is_no_loss() {
        // Insert, insert, delete: what is there after the third was there after the first.
        let outputs = ["", "a\n", "ab\n", "a\n"];
        for only_durability in [false, true] {
            let oracle = oracle(&outputs, only_durability);
            assert_eq!(oracle.judge(&printed("a\n"), during(2)), None);
            assert_eq!(oracle.judge(&printed("a\n"), during(3)), None);
            let lost = oracle.judge(&printed(""), during(2));
            assert_eq!(lost, Some(Symptom::Lost(during(2))));
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
            let judged = oracle.judge(&outcome, during(done));
            let printed = String::from_utf8_lossy(&outcome.stdout);
            assert_eq!(judged.is_none(), is_fine, "{printed:?} after {done}");
        }
    }

    #[test]
    fn without_references_outputs_are_not_judged() {
        assert_eq!(plain(0).judge(&printed("anything"), during(7)), None);
    }

    #[test]
    fn only_the_number_of_operations_makes_no_other_symptom() {
        let (one, two) = (Symptom::NotAtomic(during(1)), Symptom::Lost(during(2)));
        assert!(one.is_like(&two) && one != two);
        assert!(!Symptom::Exit(1).is_like(&Symptom::Exit(2)));
        assert!(!Symptom::Broken("a".into()).is_like(&Symptom::Broken("b".into())));
        assert!(!Symptom::Hang.is_like(&one));
        let all = [
            Symptom::Signal(11),
            Symptom::Exit(1),
            Symptom::Hang,
            one,
            Symptom::Reordered(during(1)),
            Symptom::Checker,
            Symptom::Broken(String::new()),
        ];
        let rules: HashSet<BuiltIn> = all.iter().map(Symptom::rule).collect();
        assert_eq!(rules.len(), all.len(), "each has a rule of its own");
    }

    /// The same items in another order are a symptom of their own, or none of its own if order
    /// matters.
    #[test]
    fn another_order_is_told_from_another_content() {
        let outputs = ["1 2 \n", "1 2 3 \n", "2 3 \n", "2 3 4 \n"];
        let any = oracle(&outputs, false);
        let ordered = Oracle {
            ordered: true,
            ..oracle(&outputs, false)
        };
        let lenient = oracle(&outputs, true);
        let shuffled = printed("3 2 \n");
        assert_eq!(
            any.judge(&shuffled, during(1)),
            Some(Symptom::Reordered(during(1)))
        );
        assert_eq!(
            ordered.judge(&shuffled, during(1)),
            Some(Symptom::NotAtomic(during(1)))
        );
        assert_eq!(lenient.judge(&shuffled, during(1)), None);
        // What is there after too few operations is lost, in whatever order.
        let old = printed("2 1 \n");
        for oracle in [&any, &ordered] {
            assert_eq!(
                oracle.judge(&old, during(2)),
                Some(Symptom::Lost(during(2)))
            );
        }
        // Answers to questions are no items that may change places.
        let mut answers = oracle(&["1\n1\n0\n", "1\n0\n1\n"], false);
        let other = printed("0\n1\n1\n");
        assert_eq!(
            answers.judge(&other, during(0)),
            Some(Symptom::Reordered(during(0)))
        );
        if let Some(references) = &mut answers.references {
            references.questions = 3;
        }
        assert_eq!(
            answers.judge(&other, during(0)),
            Some(Symptom::NotAtomic(during(0)))
        );
        // After more than were begun, it is something else.
        let early = printed("4 3 2 \n");
        assert_eq!(
            any.judge(&early, during(1)),
            Some(Symptom::NotAtomic(during(1)))
        );
    }

    #[test]
    fn what_was_acknowledged_and_is_missing_is_gone() {
        let oracle = oracle(&["", "a\n", "a\nb\n", "a\nb\nc\n"], false);
        let table = [
            ("b\n", 2, Symptom::Lost(during(2))),
            ("b\nc\n", 2, Symptom::Lost(during(2))),
            ("a\n", 2, Symptom::Lost(during(2))),
            ("", 1, Symptom::Lost(during(1))),
            // Something that is nowhere else is damage.
            ("a\nX\n", 2, Symptom::NotAtomic(during(2))),
            // All that was acknowledged is there.
            ("a\nb\nX\n", 2, Symptom::NotAtomic(during(2))),
        ];
        for (output, done, symptom) in table {
            let judged = oracle.judge(&printed(output), during(done));
            assert_eq!(judged, Some(symptom), "{output:?} after {done}");
        }
    }

    #[test]
    fn differences_are_told_item_by_item() {
        let oracle = oracle(&["", "a\n", "a\nb\n", "a\nb\nc\n"], false);
        let said = |output: &str, done: u64| {
            let outcome = printed(output);
            let symptom = oracle.judge(&outcome, during(done)).expect("it is wrong");
            (
                symptom.describe(&outcome),
                oracle.differences(&symptom, &outcome),
            )
        };
        let (message, notes) = said("a\n", 2);
        assert_eq!(
            message,
            r#"acknowledged data is gone: after 2 operations recovery prints "a""#
        );
        assert_eq!(
            notes,
            [
                "it is what is there after 1 operation, but 2 were acknowledged",
                r#"compared with what is there after 2 operations: "b" is missing"#,
                r#"compared with what is there after 3 operations: "b", "c" are missing"#,
            ]
        );
        let (message, notes) = said("c\nb\na\n", 2);
        assert_eq!(
            message,
            r#"recovery prints what is there after 2 or 3 operations, but in another order: "c\nb\na""#
        );
        assert_eq!(notes.len(), 2, "{notes:?}");
        let (message, notes) = said("a\nb\nX\n", 2);
        assert_eq!(
            message,
            r#"recovery prints what is there neither after 2 nor after 3 operations: "a\nb\nX""#
        );
        assert_eq!(
            notes,
            [
                r#"compared with what is there after 2 operations: "X" is too many"#,
                r#"compared with what is there after 3 operations: "X" instead of "c""#,
            ]
        );
        // Far behind: only the ends are compared.
        let outcome = printed("X\n");
        let symptom = Symptom::NotAtomic(Span { from: 0, to: 3 });
        assert_eq!(oracle.differences(&symptom, &outcome).len(), 2);
        assert!(
            symptom
                .describe(&outcome)
                .contains("after no number of operations from 0 to 3")
        );
    }

    /// Addresses are another thing in each run; what else is printed counts.
    #[test]
    fn addresses_are_no_content() {
        let mut oracle = oracle(
            &["pool 0x7f0000000000\na\n", "pool 0x7f0000000000\nb\n"],
            false,
        );
        let (elsewhere, damaged) = (
            printed("pool 0x7fff12345000\nb\n"),
            printed("pool 0x7fff12345000\nX\n"),
        );
        assert!(oracle.judge(&elsewhere, during(0)).is_some());
        if let Some(references) = &mut oracle.references {
            references.ignore_addresses();
        }
        assert_eq!(oracle.judge(&elsewhere, during(0)), None);
        assert!(oracle.judge(&damaged, during(0)).is_some());
    }
}

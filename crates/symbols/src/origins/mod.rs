//! Which program of a run, and which test, a finding belongs to.
//!
//! A run may have many programs: `brownout check -- ctest -j4` runs ctest, a shell or two, and each
//! test. What they were started with comes with the run ([`Beginning`]); which test a program
//! belongs to is said by what its runner is known to do:
//!
//! | runner | by |
//! |---|---|
//! | any | the variable `BROWNOUT_TEST` |
//! | `cargo test` | the function that Rust's test harness calls, in the call stack |
//! | nextest | its variables, or the arguments by which it runs one test |
//! | pytest | the variable that it sets while a test runs, for programs that the test starts |
//! | Bazel | its variable |
//! | ctest | the command, which the list of tests in its build folder has |
//!
//! **Guarantee.** Nothing is guessed: where a command is that of two tests, no test is named.
//!
//! **Deviation.** What a trace has was not started here, so its findings name no program.

mod ctest;

use std::collections::HashMap;

use brownout_findings::{Frame, Origin};
use brownout_trace::Beginning;
use brownout_trace::epochs::Epoch;
use brownout_trace::event::ProcessId;

use crate::Stacks;

/// Longer chains of processes are not looked at.
const ANCESTORS_MAX: usize = 64;

/// The programs of a run.
#[derive(Debug, Default)]
pub struct Programs {
    /// By process; each with the epoch from which on it was there.
    of: HashMap<ProcessId, Vec<(Epoch, Beginning)>>,
    /// What the tool itself was started with, and by whom.
    around: Vec<Beginning>,
    tests: ctest::Lists,
}

/// A program among them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    process: ProcessId,
    number: usize,
}

impl Programs {
    /// What the tool itself was started with, and what the process that has started it.
    pub fn started_by(&mut self, around: Vec<Beginning>) {
        self.around = around;
    }

    /// A program is in this process from now on.
    pub fn begin(&mut self, process: ProcessId, epoch: Epoch, what: &Beginning) {
        let programs = self.of.entry(process).or_default();
        programs.push((epoch, what.clone()));
    }

    /// What says more about code of this process than the command line of the analysis does, if
    /// anything.
    pub fn origin(
        &mut self,
        stacks: &Stacks,
        process: ProcessId,
        epoch: Epoch,
        stack: &[Frame],
    ) -> Option<Origin> {
        let place = self.find(stacks, process, epoch)?;
        let program = self.program(place)?.clone();
        let is_first = self.before(stacks, place).is_none();
        let test = rust_test(stack)
            .map(|test| ("cargo test", test))
            .or_else(|| told(&program))
            .map(|(runner, test)| (Some(runner.to_owned()), test))
            .or_else(|| Some((Some("ctest".to_owned()), self.of_ctest(stacks, place)?)));
        if is_first && test.is_none() {
            return None;
        }
        let (runner, test) = test.map_or((None, None), |(runner, test)| (runner, Some(test)));
        Some(Origin {
            test,
            runner: runner.filter(|runner| !runner.is_empty()),
            command: program.words,
            folder: (program.folder.to_str())
                .filter(|folder| !folder.is_empty())
                .map(str::to_owned),
            pid: Some(program.pid),
        })
    }

    fn program(&self, place: Place) -> Option<&Beginning> {
        Some(&self.of.get(&place.process)?.get(place.number)?.1)
    }

    /// The program that a process executed in this epoch: the last that began until then, or that
    /// of the process that made it.
    fn find(&self, stacks: &Stacks, mut process: ProcessId, mut epoch: Epoch) -> Option<Place> {
        for _ in 0..ANCESTORS_MAX {
            let programs = self.of.get(&process).map_or(&[][..], Vec::as_slice);
            let number = programs.iter().rposition(|(since, _)| *since <= epoch);
            if let Some(number) = number {
                return Some(Place { process, number });
            }
            (process, epoch) = stacks.parent_of(process)?;
        }
        None
    }

    /// The program that has started this one.
    fn before(&self, stacks: &Stacks, place: Place) -> Option<Place> {
        let Place { process, number } = place;
        if let Some(number) = number.checked_sub(1) {
            return Some(Place { process, number });
        }
        let (parent, epoch) = stacks.parent_of(process)?;
        self.find(stacks, parent, epoch)
    }

    /// The test of ctest that a program is, or is a part of.
    fn of_ctest(&mut self, stacks: &Stacks, mut place: Place) -> Option<String> {
        for _ in 0..ANCESTORS_MAX {
            let Some(before) = self.before(stacks, place) else {
                break;
            };
            let runner = self.program(before)?;
            if ctest::is_ctest(runner) {
                let (runner, program) = (runner.clone(), self.program(place)?.clone());
                return self.tests.name(&runner, &program.words);
            }
            place = before;
        }
        // The tool may be what ctest has started.
        let [own, parent] = &self.around[..] else {
            return None;
        };
        let is_ctest = ctest::is_ctest(parent);
        is_ctest.then(|| self.tests.name(parent, &own.words))?
    }
}

/// What variables say, or the arguments by which a runner runs one test: the runner, and the test.
fn told(program: &Beginning) -> Option<(&'static str, String)> {
    let variable = |name: &str| {
        let mut variables = program.variables.iter();
        let found = variables.find(|(known, value)| known == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    };
    if let Some(test) = variable("BROWNOUT_TEST") {
        return Some(("", test.to_owned()));
    }
    if variable("NEXTEST").is_some() || variable("NEXTEST_TEST_NAME").is_some() {
        let exact = program.words.iter().position(|word| word == "--exact");
        let exact = exact.and_then(|at| program.words.get(at + 1));
        let name = variable("NEXTEST_TEST_NAME").or(exact.map(String::as_str))?;
        let name = match variable("NEXTEST_BINARY_ID") {
            Some(binary) => format!("{binary} {name}"),
            None => name.to_owned(),
        };
        return Some(("nextest", name));
    }
    if let Some(test) = variable("PYTEST_CURRENT_TEST") {
        // It ends with what pytest is about: " (setup)", " (call)", " (teardown)".
        let name = test.rsplit_once(" (").map_or(test, |(name, _)| name);
        return Some(("pytest", name.to_owned()));
    }
    variable("TEST_TARGET").map(|test| ("bazel", test.to_owned()))
}

/// The test that Rust's harness runs, by its function. The harness calls it as a closure.
fn rust_test(stack: &[Frame]) -> Option<String> {
    const HARNESS: &str = "test::__rust_begin_short_backtrace";
    let function = |frame: &Frame| frame.function.clone().unwrap_or_default();
    let harness = stack
        .iter()
        .rposition(|frame| function(frame).starts_with(HARNESS))?;
    let inner = stack[..harness].iter().rev().map(function);
    let mut tests = inner.filter(|name| {
        !name.contains("FnOnce::call_once")
            && !name.contains("FnOnce<")
            && !name.ends_with("{{closure}}")
            && !name.ends_with("{closure#0}")
    });
    let test = tests.next()?;
    // As the harness calls it: without the crate.
    let (_, name) = test.split_once("::")?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use brownout_trace::event::{ContextId, Event, EventKind, TargetAddr, ThreadId};

    fn start(stacks: &mut Stacks, process: u32, parent: u32) {
        stacks.observe(&Event {
            thread: ThreadId(process),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind: EventKind::ProcessStart {
                process: ProcessId(process),
                parent: ProcessId(parent),
                pid: process,
                exe: b"",
            },
        });
    }

    fn program(words: &[&str]) -> Beginning {
        Beginning {
            pid: 7,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            ..Beginning::default()
        }
    }

    #[test]
    fn a_forked_process_executes_its_parents_program_until_it_replaces_itself() {
        let mut stacks = Stacks::new(Options::for_findings());
        let mut programs = Programs::default();
        start(&mut stacks, 1, 0);
        programs.begin(ProcessId(1), Epoch(0), &program(&["make", "test"]));
        start(&mut stacks, 2, 1);
        start(&mut stacks, 2, 1);
        programs.begin(ProcessId(2), Epoch(1), &program(&["./t", "a"]));
        let mut command = |process, epoch| {
            let origin = programs.origin(&stacks, ProcessId(process), Epoch(epoch), &[]);
            origin.map(|origin| origin.command)
        };
        assert_eq!(command(1, 0), None, "the command line says it already");
        assert_eq!(command(2, 0), None, "it is still the first program");
        assert_eq!(command(2, 1), Some(vec!["./t".into(), "a".into()]));
        assert_eq!(command(2, 5), Some(vec!["./t".into(), "a".into()]));
        assert_eq!(command(3, 0), None, "nobody knows it");
    }

    #[test]
    fn variables_name_tests() {
        let with = |variables: &[(&str, &str)], words: &[&str]| {
            let variables = variables.iter();
            told(&Beginning {
                variables: variables
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
                ..program(words)
            })
        };
        let pytest = with(&[("PYTEST_CURRENT_TEST", "t/a.py::b[x (y)] (call)")], &[]);
        assert_eq!(pytest, Some(("pytest", "t/a.py::b[x (y)]".into())));
        let words = ["/t/deps/a-0", "--exact", "m::b", "--nocapture"];
        let nextest = with(&[("NEXTEST", "1")], &words);
        assert_eq!(nextest, Some(("nextest", "m::b".into())));
        assert_eq!(with(&[], &words), None, "it may be another's argument");
        assert_eq!(with(&[("NEXTEST", "1")], &["sh"]), None);
        let own = with(&[("TEST_TARGET", "//a:b"), ("BROWNOUT_TEST", "mine")], &[]);
        assert_eq!(own, Some(("", "mine".into())));
    }

    #[test]
    fn the_function_that_rusts_harness_calls_is_the_test() {
        let frames = |names: &[&str]| -> Vec<Frame> {
            let frame = |name: &&str| Frame {
                function: Some((*name).into()),
                ..Frame::default()
            };
            names.iter().map(frame).collect()
        };
        let stack = frames(&[
            "pool::Pool::put",
            "pool::tests::keeps_what_it_is_told",
            "pool::tests::keeps_what_it_is_told::{{closure}}",
            "core::ops::function::FnOnce::call_once",
            "core::ops::function::FnOnce::call_once",
            "test::__rust_begin_short_backtrace",
            "test::run_test_in_process::{{closure}}",
        ]);
        assert_eq!(
            rust_test(&stack).as_deref(),
            Some("tests::keeps_what_it_is_told")
        );
        assert_eq!(rust_test(&frames(&["main"])), None);
    }
}

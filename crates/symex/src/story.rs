//! The path of a finding in words: which branches the input has decided, and where they have led.
//!
//! Guarantee: each branch that is named was decided so in that run, and all that were decided are
//! named or counted. The program's own are named, the first and the last of them if there are many;
//! those of the language's libraries only if there are no others, by function.

use brownout_check::Analysis;
use brownout_findings::Frame;
use brownout_findings::numbers::either;
use brownout_trace::event::{ContextId, TargetAddr, ThreadId};

use crate::modules::OwnCode;
use crate::path::{Decision, Fault, Kind, Path};

/// So many are named at most: the first, and the last.
const FIRST: usize = 8;
const LAST: usize = 16;

/// Finds the lines of addresses.
struct Lines<'a> {
    analysis: &'a mut Analysis,
    thread: ThreadId,
}

impl Lines<'_> {
    fn frame(&mut self, pc: u64) -> Option<Frame> {
        let stack = self
            .analysis
            .stack(self.thread, TargetAddr(pc), ContextId(0));
        // What the compiler has put there for somebody is of the one who wanted it.
        let own = stack.iter().position(|frame| !frame.is_standard_library());
        stack.into_iter().nth(own.unwrap_or(0))
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Where that is: the source line if it is known.
fn place(frame: &Frame) -> String {
    match (&frame.file, frame.line, &frame.function) {
        (Some(file), Some(line), _) => format!("{}:{line}", last_part(file)),
        (_, _, Some(function)) => format!("{function} ({:#x})", frame.offset),
        _ => {
            let module = frame.module.as_deref().map_or("code", last_part);
            format!("{module}+{:#x}", frame.offset)
        }
    }
}

/// Where a branch has led, beside where it is.
fn destination(from: &Frame, to: &Frame) -> String {
    match (to.line, from.file == to.file) {
        (Some(line), true) => line.to_string(),
        _ => place(to),
    }
}

fn in_words(decision: &Decision, lines: &mut Lines<'_>) -> Option<String> {
    let from = lines.frame(decision.pc)?;
    let what = match decision.kind {
        Kind::Fault(Fault::Zero) => "divides by zero".to_owned(),
        Kind::Fault(Fault::Overflow) => "has a quotient that does not fit".to_owned(),
        Kind::Fault(Fault::Before) => "leads in front of persistent memory".to_owned(),
        Kind::Fault(Fault::Behind) => "leads behind persistent memory".to_owned(),
        Kind::Branch | Kind::Jump if decision.to != 0 => {
            let to = lines.frame(decision.to)?;
            return Some(format!("{} → {}", place(&from), destination(&from, &to)));
        }
        _ => return Some(place(&from)),
    };
    Some(format!("{} {what}", place(&from)))
}

/// The same behind each other once, with how often; of many the first and the last.
fn listed(all: impl Iterator<Item = String>) -> String {
    let mut steps: Vec<(String, u64)> = Vec::new();
    for step in all {
        match steps.last_mut() {
            Some((last, times)) if *last == step => *times += 1,
            _ => steps.push((step, 1)),
        }
    }
    let text = |(step, times): &(String, u64)| match times {
        1 => step.clone(),
        times => format!("{step} ({times} times)"),
    };
    if steps.len() <= FIRST + LAST {
        let all: Vec<String> = steps.iter().map(text).collect();
        return all.join(", ");
    }
    let last = steps.len() - LAST;
    let between: u64 = steps[FIRST..last].iter().map(|(_, times)| times).sum();
    let more = format!("… ({between} more) …");
    let first = steps[..FIRST].iter().map(text);
    let last = steps[last..].iter().map(text);
    let all: Vec<String> = first.chain([more]).chain(last).collect();
    all.join(", ")
}

/// The source line of an instruction, in words.
pub fn line(pc: u64, thread: ThreadId, analysis: &mut Analysis) -> Option<String> {
    let frame = Lines { analysis, thread }.frame(pc)?;
    Some(place(&frame))
}

/// What the input has decided, in a sentence; None if it has decided nothing.
pub fn told(path: &Path, own: &OwnCode, analysis: &mut Analysis) -> Option<String> {
    let is_branch = |decision: &&Decision| match decision.kind {
        Kind::Branch | Kind::Jump | Kind::Position { .. } => true,
        Kind::Fault(_) => decision.way == 1,
        Kind::Taken | Kind::Bound => false,
    };
    let branches: Vec<&Decision> = path.decisions.iter().filter(is_branch).collect();
    if branches.is_empty() {
        return None;
    }
    let mut lines = Lines {
        analysis,
        thread: path.thread,
    };
    let is_own = |decision: &&&Decision| own.contains(decision.pc);
    let owned: Vec<&&Decision> = branches.iter().filter(is_own).collect();
    let others = branches.len() - owned.len();
    let mut text = match owned.is_empty() {
        true => {
            let function = |frame: Frame| match frame.function {
                Some(function) => function,
                None => place(&frame),
            };
            let all = branches
                .iter()
                .filter_map(|decision| lines.frame(decision.pc).map(function));
            format!("path: branches of libraries in {}", listed(all))
        }
        false => {
            let all = owned
                .iter()
                .filter_map(|decision| in_words(decision, &mut lines));
            let mut text = format!("path: {}", listed(all));
            if others > 0 {
                let branches = either(others as u64, "branch", "branches");
                text += &format!("; and {others} {branches} of libraries");
            }
            text
        }
    };
    if path.is_cut {
        text += "; what followed was not kept";
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_is_counted_and_what_is_long_is_shortened() {
        let steps = |steps: &[&str]| listed(steps.iter().map(|step| step.to_string()));
        assert_eq!(steps(&["a", "a", "b", "a"]), "a (2 times), b, a");
        let many = listed((0..40).map(|n| n.to_string()));
        assert!(many.starts_with("0, 1, 2, 3, 4, 5, 6, 7, … (16 more) …, 24, "));
        assert!(many.ends_with("38, 39"));
    }

    #[test]
    fn places_are_lines_if_they_are_known() {
        let frame = |file: Option<&str>, line, function: Option<&str>| Frame {
            function: function.map(str::to_owned),
            file: file.map(str::to_owned),
            line,
            column: None,
            module: Some("/usr/bin/prog".to_owned()),
            offset: 0x1234,
            inlined: false,
        };
        let known = frame(Some("/src/a.c"), Some(7), Some("main"));
        let later = frame(Some("/src/a.c"), Some(9), Some("main"));
        let elsewhere = frame(Some("/src/b.c"), Some(3), Some("other"));
        assert_eq!(place(&known), "a.c:7");
        assert_eq!(place(&frame(None, None, Some("main"))), "main (0x1234)");
        assert_eq!(place(&frame(None, None, None)), "prog+0x1234");
        assert_eq!(destination(&known, &later), "9");
        assert_eq!(destination(&known, &elsewhere), "b.c:3");
    }
}

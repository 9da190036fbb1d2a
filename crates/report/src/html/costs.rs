//! What write-backs and fences cost: by source line, by function, and as the tree of calls that a
//! flame graph draws.
//!
//! **Purpose.** Findings of performance say what is needless; this says how much of everything that
//! is, and who asks for it.
//!
//! **Guarantee.** Numbers are those of [`Effort`]; nothing is estimated. A line has what the frame
//! that stands for its instruction does itself (libraries and headers count for their callers); a
//! function has what it and everything that it calls does, once however often it is on the stack.
//! The tree has every listed place; what the report counts together is a branch of its own.
//!
//! **Deviations.** At most [`ROWS_MAX`] lines and functions, the most needless first, and
//! [`NODES_MAX`] branches of the tree; what is deeper or comes later counts for the branch above.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use brownout_findings::{Effort, Frame, Report};
use serde::Serialize;

use super::place::place_of;
use crate::site;

/// How many lines, and how many functions.
const ROWS_MAX: usize = 200;
/// How many branches.
const NODES_MAX: usize = 2000;
/// Deeper calls are not told apart.
const DEPTH_MAX: usize = 60;

/// What a report's write-backs and fences cost.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// All together.
    pub all: Sum,
    /// By source line.
    pub lines: Vec<Named>,
    /// By function, with what it calls.
    pub functions: Vec<Named>,
    /// By calls, from the outermost inwards.
    pub tree: Node,
}

/// How much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Lines written back that had to be.
    pub needed: u64,
    /// Lines written back that need not have been.
    pub needless: u64,
    /// Fences that complete something.
    pub fences: u64,
    /// Fences with nothing to complete.
    pub needless_fences: u64,
}

impl Sum {
    fn add(&mut self, effort: &Effort) {
        self.needed = self.needed.saturating_add(effort.needed);
        self.needless = self.needless.saturating_add(effort.needless);
        self.fences = self.fences.saturating_add(effort.fences);
        self.needless_fences = self.needless_fences.saturating_add(effort.needless_fences);
    }
}

/// Of something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Named {
    /// `list.c:3`, `push`.
    pub name: String,
    #[serde(flatten)]
    pub sum: Sum,
}

/// A call, with what it calls.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The function.
    pub name: String,
    /// Lines written back below it that had to be.
    pub needed: u64,
    /// Lines written back below it that need not have been.
    pub needless: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Node>,
}

/// Of all reports that have such numbers.
pub fn of(reports: &[Report], folder: Option<&Path>) -> Option<Costs> {
    let lists = reports
        .iter()
        .filter_map(|report| report.statistics.get(Effort::STATISTIC));
    // A report may come from anybody: what cannot be read is not shown.
    let efforts: Vec<Effort> = lists
        .filter_map(|list| serde_json::from_value::<Vec<Effort>>(list.clone()).ok())
        .flatten()
        .collect();
    if efforts.is_empty() {
        return None;
    }
    let mut costs = Costs::default();
    let mut lines: BTreeMap<String, Sum> = BTreeMap::new();
    let mut functions: BTreeMap<String, Sum> = BTreeMap::new();
    let mut nodes = 1;
    for effort in &efforts {
        costs.all.add(effort);
        let inside = site::inside_main(&effort.stack);
        // What a header does is its user's doing here: the header is the same for all.
        let own = site::site(&effort.stack).map(|at| &effort.stack[at]);
        let line = match site::including(&effort.stack).or(own) {
            Some(frame) => {
                let column = None;
                place_of(
                    &Frame {
                        column,
                        ..frame.clone()
                    },
                    folder,
                )
            }
            None => ELSEWHERE.to_owned(),
        };
        lines.entry(line).or_default().add(effort);
        let names: BTreeSet<String> = inside.iter().map(name).collect();
        for name in names {
            functions.entry(name).or_default().add(effort);
        }
        grow(&mut costs.tree, inside, effort, &mut nodes);
    }
    costs.lines = ranked(lines);
    costs.functions = ranked(functions);
    Some(costs)
}

/// What stands for places that are not listed.
const ELSEWHERE: &str = "other places";

fn name(frame: &Frame) -> String {
    match &frame.function {
        Some(function) => function.clone(),
        None => place_of(frame, None),
    }
}

fn ranked(sums: BTreeMap<String, Sum>) -> Vec<Named> {
    let mut all: Vec<Named> = sums
        .into_iter()
        .map(|(name, sum)| Named { name, sum })
        .collect();
    all.sort_by_key(|named| {
        let sum = &named.sum;
        let needless = sum.needless.saturating_add(sum.needless_fences);
        std::cmp::Reverse((needless, sum.needed.saturating_add(sum.fences)))
    });
    all.truncate(ROWS_MAX);
    all
}

/// Adds a place to the tree, outermost call first.
fn grow(root: &mut Node, stack: &[Frame], effort: &Effort, nodes: &mut usize) {
    let mut at = root;
    let add = |node: &mut Node| {
        node.needed = node.needed.saturating_add(effort.needed);
        node.needless = node.needless.saturating_add(effort.needless);
    };
    add(at);
    if effort.needed == 0 && effort.needless == 0 {
        return;
    }
    let mut names: Vec<String> = stack.iter().rev().take(DEPTH_MAX).map(name).collect();
    if names.is_empty() {
        names.push(ELSEWHERE.to_owned());
    }
    for name in names {
        let known = at.calls.iter().position(|call| call.name == name);
        let position = match known {
            Some(position) => position,
            None if *nodes >= NODES_MAX => return,
            None => {
                *nodes += 1;
                at.calls.push(Node {
                    name,
                    ..Node::default()
                });
                at.calls.len() - 1
            }
        };
        at = &mut at.calls[position];
        add(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::{Analysed, Outcome};

    fn frame(function: &str, line: u32) -> Frame {
        Frame {
            function: Some(function.into()),
            file: Some("list.c".into()),
            line: Some(line),
            ..Frame::default()
        }
    }

    fn report(efforts: &[Effort]) -> Report {
        let mut outcome = Outcome::<serde_json::Map<_, _>>::default();
        let list = serde_json::to_value(efforts).unwrap();
        outcome.statistics.insert(Effort::STATISTIC.into(), list);
        outcome.report(Analysed::by("check"))
    }

    fn effort(stack: Vec<Frame>, needed: u64, needless: u64) -> Effort {
        Effort {
            stack,
            needed,
            needless,
            ..Effort::default()
        }
    }

    #[test]
    fn lines_have_their_own_and_functions_what_they_call() {
        let push = |line| vec![frame("persist", line), frame("push", 12), frame("main", 30)];
        let recursive = vec![frame("walk", 5), frame("walk", 6), frame("main", 31)];
        let rest = Effort {
            needless_fences: 1,
            ..effort(Vec::new(), 2, 0)
        };
        let all = [
            effort(push(3), 4, 1),
            effort(push(4), 0, 8),
            effort(recursive, 1, 0),
            rest,
        ];
        let costs = of(&[report(&all)], None).expect("there are some");
        assert_eq!(
            (
                costs.all.needed,
                costs.all.needless,
                costs.all.needless_fences
            ),
            (7, 9, 1)
        );
        let told = |named: &[Named]| -> Vec<(String, u64, u64)> {
            let one = |n: &Named| (n.name.clone(), n.sum.needed, n.sum.needless);
            named.iter().map(one).collect()
        };
        let expect = |rows: &[(&str, u64, u64)]| -> Vec<(String, u64, u64)> {
            rows.iter()
                .map(|(name, a, b)| ((*name).to_owned(), *a, *b))
                .collect()
        };
        assert_eq!(
            told(&costs.lines),
            expect(&[
                ("list.c:4", 0, 8),
                ("list.c:3", 4, 1),
                ("other places", 2, 0),
                ("list.c:5", 1, 0)
            ])
        );
        assert_eq!(
            told(&costs.functions),
            expect(&[
                ("main", 5, 9),
                ("persist", 4, 9),
                ("push", 4, 9),
                ("walk", 1, 0)
            ])
        );
        // The tree has everything once: what is on a level adds up to what is above.
        fn check(node: &Node) {
            if !node.calls.is_empty() {
                let needed: u64 = node.calls.iter().map(|call| call.needed).sum();
                let needless: u64 = node.calls.iter().map(|call| call.needless).sum();
                assert_eq!((needed, needless), (node.needed, node.needless), "{node:?}");
            }
            node.calls.iter().for_each(check);
        }
        check(&costs.tree);
        assert_eq!((costs.tree.needed, costs.tree.needless), (7, 9));
        assert_eq!(costs.tree.calls[0].calls.len(), 2, "push and walk");
    }

    #[test]
    fn what_is_no_such_list_is_not_shown() {
        let mut odd = report(&[]);
        assert_eq!(of(&[odd.clone()], None), None);
        odd.statistics
            .insert(Effort::STATISTIC.into(), "no list".into());
        assert_eq!(of(&[odd], None), None);
    }
}

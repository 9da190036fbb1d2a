//! The order of findings: correctness first, then what the program itself does before what a
//! library does inside; findings of one root cause together, else as the analysis gave them.

use std::cmp::Reverse;
use std::collections::HashMap;

use brownout_findings::{BuiltIn, Finding, Frame, Role, Severity};

use crate::site;

/// Sorts; what is in order already stays.
pub fn sort(findings: &mut [Finding]) {
    let ranks: HashMap<String, usize> = ranks(findings)
        .into_iter()
        .map(|(cause, rank)| (cause.to_owned(), rank))
        .collect();
    findings.sort_by_key(|finding| (finding.severity, ranks[&finding.root_cause]));
}

/// References to the findings, sorted.
pub fn sorted(findings: &[Finding]) -> Vec<&Finding> {
    let ranks = ranks(findings);
    let mut all: Vec<&Finding> = findings.iter().collect();
    all.sort_by_key(|finding| (finding.severity, ranks[finding.root_cause.as_str()]));
    all
}

/// Findings that are alike: one rule, in one function. They are told once and then listed. The
/// first of each stands where it stood.
///
/// What a function of the program's own header does, it does for whoever includes it; so then that
/// function counts. What a library does inside is another kind than what its caller does. A finding
/// about one crash is alone: each has its own reproduction.
pub fn alike<'a>(sorted: &[&'a Finding]) -> Vec<Vec<&'a Finding>> {
    let mut kinds: Vec<Vec<&'a Finding>> = Vec::new();
    let mut seen = HashMap::new();
    for finding in sorted {
        let stack = site::causing_event(finding).map(|event| site::inside_main(&event.stack));
        let function = stack.and_then(function_of);
        let next = kinds.len();
        let at = match function {
            Some(function) if finding.crash_point.is_none() => *seen
                .entry((
                    finding.severity,
                    finding.rule.as_str(),
                    is_inside(finding),
                    function,
                ))
                .or_insert(next),
            _ => next,
        };
        match at == next {
            true => kinds.push(vec![finding]),
            false => kinds[at].push(finding),
        }
    }
    kinds
}

/// Module, source file and name of the function that an event happened in. In a library without
/// symbols, of the nearest of its functions that has a name.
fn function_of(stack: &[Frame]) -> Option<(Option<&str>, Option<&str>, &str)> {
    if let Some(frame) = site::including(stack) {
        let function = frame.function.as_deref()?;
        return Some((frame.module.as_deref(), frame.file.as_deref(), function));
    }
    let from = site::site(stack)?;
    let module = stack[from].module.as_deref();
    let same_module = |frame: &&Frame| frame.module.as_deref() == module;
    let frame = stack[from..]
        .iter()
        .take_while(same_module)
        .find(|frame| frame.function.is_some())?;
    let function = frame.function.as_deref()?;
    Some((module, frame.file.as_deref(), function))
}

/// The most important first: correctness before performance, the program's own code before what a
/// library does inside, many before few. What is equal stays in its order.
pub fn by_importance<'k, 'a>(kinds: &'k [Vec<&'a Finding>]) -> Vec<&'k [&'a Finding]> {
    let mut sorted: Vec<&[&Finding]> = kinds.iter().map(Vec::as_slice).collect();
    sorted.sort_by_key(|kind| {
        let many = match kind[0].severity {
            Severity::Correctness | Severity::Warning => kind.len() as u64,
            // What is done for nothing costs as often as it is done.
            Severity::Performance => kind.iter().map(|finding| finding.count).sum(),
        };
        // What explains others comes before them.
        let explains = kind[0].rule == BuiltIn::NoFence;
        (
            kind[0].severity,
            !explains,
            is_inside(kind[0]),
            Reverse(many),
        )
    });
    sorted
}

/// Warnings about what a library does inside, of which its user can change nothing, and the rest.
/// If there is nothing else, that is what there is to tell.
pub fn folded(kinds: Vec<Vec<&Finding>>) -> (Vec<Vec<&Finding>>, Vec<&Finding>) {
    let folds = |kind: &Vec<&Finding>| {
        kind[0].severity != Severity::Correctness && kind.iter().all(|f| is_inside(f))
    };
    if kinds.iter().all(folds) {
        return (kinds, Vec::new());
    }
    let (inside, own): (Vec<_>, Vec<_>) = kinds.into_iter().partition(folds);
    (own, inside.into_iter().flatten().collect())
}

/// What a library does inside. Logging is what the program asks the library for.
fn is_inside(finding: &Finding) -> bool {
    let asked = finding.events.first().is_some_and(|e| e.role == Role::Log);
    let first = finding.events.first();
    !asked && first.is_some_and(|event| site::in_foundation(&event.stack))
}

/// Root causes, numbered as they appear.
fn ranks(findings: &[Finding]) -> HashMap<&str, usize> {
    let mut ranks = HashMap::new();
    for finding in findings {
        let late = match is_inside(finding) {
            true => findings.len(),
            false => 0,
        };
        let next = ranks.len() + late;
        let rank = ranks.entry(finding.root_cause.as_str()).or_insert(next);
        *rank = (*rank).min(next);
    }
    ranks
}

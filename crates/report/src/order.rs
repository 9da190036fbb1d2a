//! The order of findings: correctness first, then what the program itself does before what a library does inside; findings of
//! one root cause together, else as the analysis gave them.

use std::collections::HashMap;

use brownout_findings::Finding;

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

/// Consecutive findings of one severity and root cause. A finding that knows no root cause is alone.
pub fn groups<'a>(sorted: &'a [&'a Finding]) -> impl Iterator<Item = &'a [&'a Finding]> {
    sorted.chunk_by(|a, b| {
        a.severity == b.severity && a.root_cause == b.root_cause && !a.root_cause.is_empty()
    })
}

/// Root causes, numbered as they appear.
fn ranks(findings: &[Finding]) -> HashMap<&str, usize> {
    let mut ranks = HashMap::new();
    for finding in findings {
        // Logging is what the program asks the library for.
        let asked = finding.events.first().is_some_and(|e| e.role == "log");
        let inside = finding
            .events
            .first()
            .is_some_and(|e| site::in_foundation(&e.stack));
        let late = if inside && !asked { findings.len() } else { 0 };
        let next = ranks.len() + late;
        let rank = ranks.entry(finding.root_cause.as_str()).or_insert(next);
        *rank = (*rank).min(next);
    }
    ranks
}

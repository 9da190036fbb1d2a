//! The order of findings: correctness first, findings of one root cause together, else as the analysis gave them.

use std::collections::HashMap;

use brownout_findings::Finding;

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
        let next = ranks.len();
        ranks.entry(finding.root_cause.as_str()).or_insert(next);
    }
    ranks
}

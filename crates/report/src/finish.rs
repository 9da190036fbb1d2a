//! From what an analysis says to what is shown.

use brownout_findings::{Report, Verdict};

use crate::baseline::{Baseline, new_only};
use crate::suppress::{Date, Suppressions};
use crate::{fingerprint, order};

/// Names the findings, takes out what is suppressed, then what the baseline knows, sorts the rest,
/// counts these and what of the baseline is gone, adds notes about the suppressions and the
/// baseline, and settles the verdict: `Clean` and `Findings` follow from what is left and what was
/// looked at; the other two stay, since leaving findings out makes no run complete.
pub fn finish(
    report: &mut Report,
    suppressions: Option<&Suppressions>,
    baseline: Option<&Baseline>,
    today: Date,
) {
    fingerprint::assign(&mut report.findings);
    if let Some(suppressions) = suppressions {
        let applied = suppressions.apply(std::mem::take(&mut report.findings), today);
        report.suppressed = report.suppressed.saturating_add(applied.suppressed);
        report.notes.extend(applied.notes());
        report.findings = applied.kept;
    }
    if let Some(baseline) = baseline {
        let findings = std::mem::take(&mut report.findings);
        let (new, known) = new_only(findings, &report.sources, baseline);
        report.findings = new;
        report.known = report.known.saturating_add(known);
        report.gone = Some((baseline.len() as u64).saturating_sub(known));
        report.notes.extend(baseline.note());
    }
    order::sort(&mut report.findings);
    report.verdict = match report.verdict {
        Verdict::Clean | Verdict::Findings => report.coverage.verdict(!report.findings.is_empty()),
        verdict => verdict,
    };
}

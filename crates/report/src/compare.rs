//! Two reports side by side: what is new, what is gone, what is still there.
//!
//! **Guarantee.** Findings are known again by their [fingerprints](crate::fingerprint), so that a
//! rebuild or moved lines make no difference; and, where both reports have them, by the source
//! lines to blame and the names of the bytes, so that a bug that was mended is not taken for one
//! that was made in the same function (`same.rs` has the details). A finding without a fingerprint
//! is not compared with any other. *Gone* means that the new report does not have it; where that
//! may have another reason than a repair, [`Comparison::doubts`] says so.

use std::collections::HashSet;
use std::fmt;

use brownout_findings::numbers::{counted, grouped};
use brownout_findings::{Finding, Report, Severity, Verdict};

use crate::options::Options;
use crate::order;
use crate::same::{self, Side};
use crate::terminal::one_line;
use crate::text::visible;

/// What became of a finding from one report to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only the new report has it.
    New,
    /// Only the old report has it.
    Gone,
    /// Both have it.
    Still,
}

impl Change {
    /// All, as readers want them: what needs attention first.
    pub const ALL: [Change; 3] = [Change::New, Change::Still, Change::Gone];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Change::New => "new",
            Change::Gone => "gone",
            Change::Still => "still there",
        }
    }
}

/// What has changed.
pub struct Comparison<'a> {
    /// The report before.
    pub old: &'a Report,
    /// The report after.
    pub new: &'a Report,
    /// Each finding of both, once, in the order of [`Change::ALL`]. What is still there is told as
    /// the new report tells it.
    pub findings: Vec<(Change, &'a Finding)>,
}

impl<'a> Comparison<'a> {
    /// Compares.
    pub fn of(old: &'a Report, new: &'a Report) -> Comparison<'a> {
        let partners = same::pairs(&Side::of(old), &Side::of(new));
        let is_still: HashSet<*const Finding> = (new.findings.iter().zip(&partners))
            .filter(|(_, partner)| partner.is_some())
            .map(|(finding, _)| std::ptr::from_ref(finding))
            .collect();
        let is_kept: HashSet<*const Finding> = (partners.iter().flatten())
            .map(|&at| std::ptr::from_ref(&old.findings[at]))
            .collect();
        let mut findings: Vec<(Change, &Finding)> = Vec::new();
        let now = order::sorted(&new.findings);
        for change in [Change::New, Change::Still] {
            findings.extend(now.iter().filter_map(|finding| {
                let is_known = is_still.contains(&std::ptr::from_ref(*finding));
                (is_known == (change == Change::Still)).then_some((change, *finding))
            }));
        }
        let gone = order::sorted(&old.findings).into_iter();
        let gone = gone.filter(|finding| !is_kept.contains(&std::ptr::from_ref(*finding)));
        findings.extend(gone.map(|finding| (Change::Gone, finding)));
        Comparison { old, new, findings }
    }

    /// How many there are of a sort.
    pub fn count(&self, change: Change) -> usize {
        self.findings.iter().filter(|(is, _)| *is == change).count()
    }

    /// `1 new, 1 gone, 3 still there`.
    pub fn summary(&self) -> String {
        let of =
            |change: Change| format!("{} {}", grouped(self.count(change) as u64), change.name());
        [Change::New, Change::Gone, Change::Still]
            .map(of)
            .join(", ")
    }

    /// Why what is gone may not be mended, and what is new may not be new. Sentences without final
    /// stop.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let gone = self.count(Change::Gone) > 0;
        let (old, new) = (&self.old.analysed, &self.new.analysed);
        if old.analysis != new.analysis {
            doubts.push(format!(
                "the reports are by different analyses, {} and {}, which look for different things",
                visible(&old.analysis),
                visible(&new.analysis)
            ));
        }
        if old.domain.is_some() && new.domain.is_some() && old.domain != new.domain {
            doubts.push("the reports are about different domains (--domain)".into());
        }
        if gone
            && matches!(
                self.new.verdict,
                Verdict::Incomplete | Verdict::NothingChecked
            )
        {
            doubts.push(
                "the new report has not looked at everything, so what is gone may only not have been seen"
                    .into(),
            );
        } else if gone && !self.new.coverage.is_exhaustive() {
            doubts.push(
                "the new report is bounded by what it names as not looked at, so what is gone may only not have been seen"
                    .into(),
            );
        }
        let hidden = self.new.suppressed.saturating_add(self.new.known);
        if gone && hidden > 0 {
            doubts.push(format!(
                "the new report leaves out {} that suppressions or a baseline hide, and what is gone may be among them",
                counted(hidden, "finding")
            ));
        }
        let hidden = self.old.suppressed.saturating_add(self.old.known);
        if self.count(Change::New) > 0 && hidden > 0 {
            doubts.push(format!(
                "the old report leaves out {} that suppressions or a baseline hide, and what is new may be among them",
                counted(hidden, "finding")
            ));
        }
        let unnamed = |report: &Report| report.findings.iter().any(|f| f.fingerprint.is_empty());
        if unnamed(self.old) || unnamed(self.new) {
            doubts.push("some findings have no fingerprint, and count as different".into());
        }
        doubts
    }
}

/// For people, and for scripts that look at the first word of a line.
impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = Options::default();
        for (change, finding) in &self.findings {
            let word = match change {
                Change::New => "new",
                Change::Gone => "gone",
                Change::Still => "still",
            };
            let name = match finding.fingerprint.as_str() {
                "" => "no fingerprint",
                name => name,
            };
            writeln!(
                f,
                "{word:5} {} {}: {}",
                visible(name),
                one_line(finding, &options),
                visible(&finding.message)
            )?;
        }
        for doubt in self.doubts() {
            writeln!(f, "note: {doubt}")?;
        }
        let errors = self.findings.iter().filter(|(change, finding)| {
            *change == Change::New && finding.severity == Severity::Correctness
        });
        let errors = match errors.count() {
            0 => String::new(),
            n => format!(" ({} of correctness)", grouped(n as u64)),
        };
        let summary = self.summary().replacen(" new", &format!(" new{errors}"), 1);
        writeln!(f, "brownout: {summary}")
    }
}

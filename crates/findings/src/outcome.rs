//! What every analysis comes to, and the one way from there to a report.
//!
//! ```text
//!  analysis ─▶ Outcome ─▶ Report ─▶ fingerprints, suppressions, baseline ─▶ verdict, exit status, output
//! ```
//! An analysis decides what it has found and what it has looked at. It knows nothing of reports,
//! and a report nothing of analyses: only the type of the statistics differs.
//!
//! ```
//! use brownout_findings::{Analysed, Limit, Outcome, Verdict};
//!
//! #[derive(Default, serde::Serialize)]
//! struct Statistics { lines: u64 }
//!
//! let mut outcome = Outcome::<Statistics>::default();
//! outcome.coverage.limit(Limit::Time, "the time was up");
//! let report = outcome.report(Analysed { analysis: "count".into(), ..Analysed::default() });
//! assert_eq!((report.verdict, &report.statistics["lines"]), (Verdict::Incomplete, &0.into()));
//! ```

use serde::Serialize;
use serde_json::{Map, Value};

use crate::touches::Touched;
use crate::{Analysed, Coverage, Finding, Report, SCHEMA_VERSION, Tool};

/// What an analysis came to. `S` are its numbers: a struct whose fields are the statistics of the
/// report, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome<S> {
    /// What is wrong. Fingerprints are not assigned yet.
    pub findings: Vec<Finding>,
    /// What was not looked at. By default all was.
    pub coverage: Coverage,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Numbers.
    pub statistics: S,
    /// How the program ended: "exit code 0", "signal 11"; `None` if that was not seen.
    pub ended: Option<String>,
    /// A bug of ours, in one sentence, because of which findings may be wrong or missing.
    pub bug: Option<String>,
    /// Which lines touched persistent memory, if that was counted.
    pub touched: Option<Touched>,
}

impl<S> Outcome<S> {
    /// The same with other statistics, made of these.
    pub fn map_statistics<T>(self, make: impl FnOnce(S) -> T) -> Outcome<T> {
        Outcome {
            findings: self.findings,
            coverage: self.coverage,
            notes: self.notes,
            statistics: make(self.statistics),
            ended: self.ended,
            bug: self.bug,
            touched: self.touched,
        }
    }

    /// Adds what a reader must know before the rest.
    pub fn put_notes_first(&mut self, notes: Vec<String>) {
        self.notes.splice(0..0, notes);
    }
}

impl<S: Serialize> Outcome<S> {
    /// The report of it. `analysed` says who analysed what; how the program ended is put in here.
    pub fn report(self, analysed: Analysed) -> Report {
        let statistics = match serde_json::to_value(&self.statistics) {
            Ok(Value::Object(numbers)) => numbers,
            other => {
                debug_assert!(false, "statistics have names: {other:?}");
                Map::new()
            }
        };
        Report {
            schema: SCHEMA_VERSION,
            tool: Tool {
                name: "brownout".into(),
                version: env!("CARGO_PKG_VERSION").into(),
            },
            analysed: Analysed {
                ended: self.ended,
                ..analysed
            },
            verdict: self.coverage.verdict(!self.findings.is_empty()),
            coverage: self.coverage,
            findings: self.findings,
            suppressed: 0,
            known: 0,
            gone: None,
            notes: self.notes,
            sources: Vec::new(),
            touched: self.touched,
            statistics,
        }
    }
}

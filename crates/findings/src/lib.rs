//! What an analysis has to say: plain data, the catalogue of rules, whose frame it is, and how all
//! write numbers.
//!
//! **Purpose.** Every analysis produces [`Finding`]s and one [`Report`]; only `brownout-report`
//! renders them. The types here *are* the documented JSON form (`docs/report.md`,
//! `schema/report.schema.json`).
//!
//! **Guarantee.** Nothing here looks for anything: no rule, no rendering of findings, no I/O. Two
//! decisions are made here, so that all make them alike: the verdict, of what was found and of what
//! was looked at ([`Coverage`]), and which frame of a stack stands for an event ([`blame`]).
//!
//! ```
//! use brownout_findings::{Severity, rules};
//! let rule = rules::find("missing-flush").expect("a rule");
//! assert_eq!(rule.severity, Severity::Correctness);
//! ```
#![forbid(unsafe_code)]

pub mod blame;
mod coverage;
mod finding;
pub mod numbers;
mod outcome;
mod role;
pub mod rules;
mod severity;
pub mod touched;
mod touches;
mod verdict;

pub use coverage::{Coverage, Limit, Limitation};
pub use finding::{
    Analysed, CrashFile, Effort, Event, Excerpt, Fate, Finding, Frame, NothingLost, Origin, Place,
    Replay, Report, Reproduction, SCHEMA_VERSION, Sketch, SourceText, Timeline, TimelineStep, Tool,
};
pub use outcome::Outcome;
pub use role::Role;
pub use rules::{BuiltIn, RuleId};
pub use severity::Severity;
pub use verdict::Verdict;

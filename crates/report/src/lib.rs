//! Findings for people and machines.
//!
//! **Purpose.** Takes a [`Report`] as an analysis made it, gives its findings identities that
//! survive a rebuild ([`fingerprint`]), leaves out what is suppressed ([`suppress`]) or known
//! already ([`baseline`]), and writes the rest: [`terminal`] and [`html`] for people, [`json`],
//! [`sarif`] and [`junit`] for programs, [`pmemcheck`] and [`valgrind`] for scripts that grep.
//! [`finish`] does the first part in the right order, [`render`] the second. Reports that were
//! [`saved`] can be shown again, and two of them [compared](mod@compare), and many [made
//! one](merge); [`excerpts`] are the source lines that travel with them.
//!
//! **Guarantee.** Rendering decides nothing and drops nothing silently: what is shortened or left
//! out is counted in the output. No text from a program (names, paths, source lines) reaches a
//! terminal with control characters in it. Equal reports give equal bytes; only [`terminal`],
//! [`junit`] and [`excerpts`] read files, the sources of which they show a few lines.
//!
//! **Source.** SARIF 2.1.0 (OASIS), what GitHub's code scanning asks of it, the JUnit dialect that
//! Jenkins and GitLab read, Valgrind's suppressions, pmemcheck's summary. The layout on the
//! terminal follows miri and rustc.
//!
//! ```
//! use brownout_findings::{Analysed, Report, SCHEMA_VERSION, Tool, Verdict};
//! use brownout_report::{Format, Options, render};
//!
//! let report = Report {
//!     schema: SCHEMA_VERSION,
//!     tool: Tool { name: "brownout".into(), version: "0.1.0".into() },
//!     analysed: Analysed { analysis: "check".into(), ..Analysed::default() },
//!     verdict: Verdict::Clean,
//!     coverage: Default::default(),
//!     findings: Vec::new(),
//!     suppressed: 0,
//!     known: 0,
//!     gone: None,
//!     notes: Vec::new(),
//!     sources: Vec::new(),
//!     touched: None,
//!     statistics: Default::default(),
//! };
//! let mut out = Vec::new();
//! render(&report, Format::Terminal, &Options::default(), &mut out)?;
//! assert_eq!(out, b"brownout: no findings\n");
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod baseline;
pub mod bounded;
pub mod compare;
mod diff;
pub mod excerpts;
pub mod fingerprint;
mod finish;
pub mod html;
pub mod json;
pub mod junit;
pub mod lcov;
pub mod merge;
mod options;
mod order;
mod pattern;
pub mod pmemcheck;
pub mod redact;
mod same;
pub mod sarif;
pub mod saved;
mod site;
mod source;
pub mod suppress;
pub mod terminal;
mod text;
mod timeline;
pub mod valgrind;

pub use brownout_findings::Report;
pub use finish::finish;
pub use options::{FailOn, Format, Options};
pub use text::visible;

use std::io::{self, BufWriter, Write};

/// Writes a report in the form that is asked for, through a buffer. The error is the writer's.
pub fn render(
    report: &Report,
    format: Format,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    match format {
        Format::Terminal => terminal::render(report, options, &mut out),
        Format::Json => json::render(report, &mut out),
        Format::Html => html::render(std::slice::from_ref(report), options, &mut out),
        Format::Sarif => sarif::render(report, options, &mut out),
        Format::Junit => junit::render(report, options, &mut out),
        Format::Pmemcheck => pmemcheck::render(report, options, &mut out),
        Format::Valgrind => valgrind::render(report, options, &mut out),
    }?;
    out.flush()
}

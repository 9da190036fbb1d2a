//! A page for browsers: one file that holds everything.
//!
//! **Purpose.** What a developer opens after a CI failure, sends to a colleague, or attaches to a
//! bug report: the overview, a list of findings that can be searched and filtered, and for each
//! finding its story beside its source lines, with a picture.
//!
//! A page of a campaign that goes on can be served instead of written ([`watched`]); then it asks
//! its server, and nobody else, for what is new.
//!
//! **Guarantee.** The file asks for nothing from anywhere: it has its style and its script inside,
//! and a content-security policy that allows these two, by their hashes, and nothing else. Names,
//! source lines and output of the program that was analysed may be hostile. They reach the page in
//! two ways, and neither takes them for HTML: as text of the template (`page.html`), which escapes
//! every value, and as data of the script (`escape`), which sets text and nothing else (the policy
//! also forbids, by Trusted Types, that it could do more). Control characters, bidirectional ones
//! included, are shown as escapes. Equal reports give equal pages. No file is read.
//!
//! **Source.** The HTML standard, CSP level 3, Trusted Types, WAI-ARIA 1.2.
//!
//! **Deviations.** Without JavaScript there is the overview and no list. A page of many findings is
//! as large as they are: beside the data it has less than 1 MB ([`OWN_BYTES_MAX`]).

pub mod campaign;
mod costs;
mod data;
mod escape;
mod explain;
mod picture;
mod place;

use std::collections::BTreeSet;
use std::io::{self, Write};

use askama::Template;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brownout_findings::numbers::{counted, grouped};
use brownout_findings::{Finding, Report, Severity, Verdict, rules};
use sha2::{Digest, Sha256};

use self::campaign::Campaign;
use crate::compare::{Change, Comparison};
use crate::merge::Joined;
use crate::options::Options;
use crate::terminal::last_line;

/// What a page may have beside its data.
pub const OWN_BYTES_MAX: usize = 1 << 20;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Only a page that is served has it.
const WATCH: &str = include_str!("watch.js");

/// More runs than this are not listed one by one above the findings.
const RUNS_MAX: usize = 200;

/// Writes the page of one report or of several, which become one.
pub fn render(reports: &[Report], options: &Options, out: &mut dyn Write) -> io::Result<()> {
    render_with(reports, &[], false, options, out)
}

/// As [`render`], with what the campaigns that the reports come from have reached. A page
/// `is_watched` if it is served by somebody who also gives it [`watched`] under the name
/// [`WATCHED`].
pub fn render_with(
    reports: &[Report],
    campaigns: &[Campaign],
    is_watched: bool,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let findings = reports.iter().flat_map(|report| &report.findings);
    let verdict = combined(reports);
    let worst = worst(findings.clone());
    let joined = Joined::of(reports);
    let mut data = data::of_reports(reports, &joined, options.folder.as_deref());
    data.campaigns = campaigns.iter().map(Campaign::shown).collect();
    data.watch = is_watched.then(|| version(reports));
    write(
        Page {
            title: match reports {
                [one] => shown(&data::title(one)),
                many => format!("{} reports", grouped(many.len() as u64)),
            },
            verdict_class: class(verdict, worst),
            sign: sign(verdict, worst),
            verdict: word(verdict, worst).to_owned(),
            sentence: match reports {
                [one] => shown(last_line(one).trim_start_matches("brownout: ")),
                many => claim(verdict, many, &joined),
            },
            doubts: Vec::new(),
            runs: reports.iter().take(RUNS_MAX).map(Run::of).collect(),
            more_runs: reports.len().saturating_sub(RUNS_MAX),
            explanations: explanations(findings),
            data: escape::json(&data)?,
            policy: policy(is_watched),
            is_watched,
            style: STYLE,
            script: SCRIPT,
            watch: WATCH,
        },
        out,
    )
}

/// What a watched page asks for now and then, beside it.
pub const WATCHED: &str = "now.json";

/// What has changed since the page was made: figures are drawn anew, and that there are other
/// findings is said.
pub fn watched(reports: &[Report], campaigns: &[Campaign]) -> io::Result<String> {
    #[derive(serde::Serialize)]
    struct Now {
        version: String,
        findings: usize,
        campaigns: Vec<campaign::Shown>,
    }
    escape::json(&Now {
        version: version(reports),
        findings: reports.iter().map(|report| report.findings.len()).sum(),
        campaigns: campaigns.iter().map(Campaign::shown).collect(),
    })
}

/// Tells apart which findings there are.
fn version(reports: &[Report]) -> String {
    let mut hash = Sha256::new();
    for finding in reports.iter().flat_map(|report| &report.findings) {
        hash.update(finding.rule.as_str());
        hash.update([0]);
        hash.update(&finding.fingerprint);
        hash.update([0]);
    }
    STANDARD.encode(hash.finalize())
}

/// Writes the page of two reports side by side.
pub fn compare(
    comparison: &Comparison<'_>,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let data = data::of_comparison(comparison, options.folder.as_deref());
    let all = comparison.findings.iter();
    let new = all.filter(|(change, _)| *change == Change::New);
    let new = worst(new.map(|(_, finding)| *finding));
    write(
        Page {
            title: "two reports compared".to_owned(),
            verdict_class: match new {
                Some(_) => class(Verdict::Findings, new),
                None => "compared",
            },
            sign: match new {
                Some(_) => sign(Verdict::Findings, new),
                None => sign(Verdict::Clean, None),
            },
            verdict: match new {
                Some(Severity::Performance) => "New performance findings".to_owned(),
                Some(_) => "New findings".to_owned(),
                None => "Nothing new".to_owned(),
            },
            sentence: comparison.summary(),
            doubts: comparison.doubts(),
            runs: vec![
                Run::of(comparison.old).called("Old"),
                Run::of(comparison.new).called("New"),
            ],
            more_runs: 0,
            explanations: explanations(comparison.findings.iter().map(|(_, finding)| *finding)),
            data: escape::json(&data)?,
            policy: policy(false),
            is_watched: false,
            style: STYLE,
            script: SCRIPT,
            watch: WATCH,
        },
        out,
    )
}

/// Values are escaped where they are put in, but for those that the template calls `safe`: style,
/// script, policy, the built-in pages of rules, and data that has been through [`escape`].
#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    title: String,
    verdict_class: &'static str,
    /// The same as a shape.
    sign: &'static str,
    verdict: String,
    sentence: String,
    doubts: Vec<String>,
    runs: Vec<Run>,
    more_runs: usize,
    explanations: Vec<Explanation>,
    data: String,
    policy: String,
    is_watched: bool,
    style: &'static str,
    script: &'static str,
    watch: &'static str,
}

/// The page of a rule, which the script puts under findings.
struct Explanation {
    id: &'static str,
    summary: &'static str,
    page: String,
}

/// A report in the overview. Every text is visible.
struct Run {
    name: &'static str,
    title: String,
    verdict_class: &'static str,
    summary: String,
    version: String,
    domain: Option<String>,
    ended: Option<String>,
    /// What has changed since it.
    baseline: Option<String>,
    command: Option<String>,
    limits: Vec<(&'static str, String, bool)>,
    notes: Vec<String>,
    statistics: Vec<(String, String)>,
}

impl Run {
    fn of(report: &Report) -> Run {
        let analysed = &report.analysed;
        let limits = report.coverage.told();
        Run {
            name: "",
            title: shown(&data::title(report)),
            verdict_class: class(report.verdict, worst(&report.findings)),
            summary: shown(last_line(report).trim_start_matches("brownout: ")),
            version: shown(&format!("{} {}", report.tool.name, report.tool.version)),
            domain: analysed.domain.as_deref().map(shown),
            ended: analysed.ended.as_deref().map(shown),
            baseline: against_baseline(report),
            command: (!analysed.command.is_empty()).then(|| command(&analysed.command)),
            limits: limits
                .map(|limit| (limit.kind.name(), shown(&limit.text), limit.accepted))
                .collect(),
            notes: report.notes.iter().map(|note| shown(note)).collect(),
            statistics: report
                .statistics
                .iter()
                .filter(|(_, value)| value.is_number() || value.is_boolean() || value.is_string())
                .map(|(name, value)| {
                    let value = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    (shown(name), shown(&value))
                })
                .collect(),
        }
    }

    fn called(self, name: &'static str) -> Run {
        Run { name, ..self }
    }
}

/// How a report that was made with a baseline differs from it.
fn against_baseline(report: &Report) -> Option<String> {
    let gone = report.gone?;
    let mut text = format!(
        "{} new, {} known, {} gone",
        grouped(report.findings.len() as u64),
        grouped(report.known),
        grouped(gone)
    );
    if gone > 0 {
        text += ": mended or suppressed, or the run did not come to them";
    }
    Some(text)
}

/// How much of a text the overview shows.
const CHARS_MAX: usize = 4000;

/// Text from a report, for the template.
fn shown(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", escape::visible(&text[..end])),
        None => escape::visible(text),
    }
}

/// A command line that a shell takes as it was.
fn command(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    });
    let quoted: Vec<String> = quoted.collect();
    shown(&format!("brownout {}", quoted.join(" ")))
}

/// No more than all of them together claim.
fn combined(reports: &[Report]) -> Verdict {
    let any = |wanted| reports.iter().any(|report| report.verdict == wanted);
    if any(Verdict::Findings) {
        Verdict::Findings
    } else if any(Verdict::Incomplete) {
        Verdict::Incomplete
    } else if any(Verdict::NothingChecked) {
        Verdict::NothingChecked
    } else {
        Verdict::Clean
    }
}

/// The severity of the worst of them.
fn worst<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Option<Severity> {
    let rank = |severity: &Severity| match severity {
        Severity::Correctness => 0,
        Severity::Warning => 1,
        Severity::Performance => 2,
    };
    let severities = findings.into_iter().map(|finding| finding.severity);
    severities.min_by_key(rank)
}

/// What is seen first. That a program is slower than it need be is not said as if it lost data.
fn word(verdict: Verdict, worst: Option<Severity>) -> &'static str {
    match (verdict, worst) {
        (Verdict::Clean, _) => "No findings",
        (Verdict::Findings, Some(Severity::Correctness)) => "Correctness findings",
        (Verdict::Findings, Some(Severity::Warning)) => "Warnings",
        (Verdict::Findings, Some(Severity::Performance)) => "Performance findings",
        (Verdict::Findings, None) => "Findings",
        (Verdict::NothingChecked, _) => "Nothing was checked",
        (Verdict::Incomplete, _) => "Incomplete",
    }
}

/// Those of findings are the shapes of the worst of them.
fn sign(verdict: Verdict, worst: Option<Severity>) -> &'static str {
    match (verdict, worst) {
        (Verdict::Clean, _) => "✔",
        (Verdict::Findings, Some(Severity::Warning)) => "▲",
        (Verdict::Findings, Some(Severity::Performance)) => "◆",
        (Verdict::Findings, _) => "✖",
        (Verdict::NothingChecked, _) => "○",
        (Verdict::Incomplete, _) => "…",
    }
}

fn class(verdict: Verdict, worst: Option<Severity>) -> &'static str {
    match (verdict, worst) {
        (Verdict::Clean, _) => "clean",
        (Verdict::Findings, Some(Severity::Warning)) => "warnings",
        (Verdict::Findings, Some(Severity::Performance)) => "performance",
        (Verdict::Findings, _) => "findings",
        (Verdict::NothingChecked, _) => "nothing-checked",
        (Verdict::Incomplete, _) => "incomplete",
    }
}

/// What several reports come to.
fn claim(verdict: Verdict, reports: &[Report], joined: &Joined<'_>) -> String {
    let of = |wanted: Verdict| reports.iter().filter(|r| r.verdict == wanted).count() as u64;
    let incomplete = of(Verdict::Incomplete);
    let nothing = of(Verdict::NothingChecked);
    let mut errors = 0;
    let mut others = 0;
    for told in &joined.all {
        match told.finding.severity {
            Severity::Correctness => errors += 1,
            Severity::Warning | Severity::Performance => others += 1,
        }
    }
    let mut parts = vec![match verdict {
        Verdict::Clean => "no findings in any of them".to_owned(),
        _ => format!(
            "{} of correctness and {}, each counted once",
            grouped(errors),
            counted(others, "other")
        ),
    }];
    if incomplete > 0 {
        parts.push(format!(
            "{} did not look at everything",
            grouped(incomplete)
        ));
    }
    if nothing > 0 {
        parts.push(format!("{} touched no persistent memory", grouped(nothing)));
    }
    if reports.is_empty() {
        return "there is no report".into();
    }
    parts.join("; ")
}

fn explanations<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<Explanation> {
    let named: BTreeSet<&str> = findings.map(|finding| finding.rule.as_str()).collect();
    let of = |id| rules::find(id);
    named
        .into_iter()
        .filter_map(of)
        .map(|rule| Explanation {
            id: rule.id,
            summary: rule.summary,
            page: explain::page(rule),
        })
        .collect()
}

/// Allows the style and the script of this very version, and nothing else; a watched page may also
/// ask its own server.
fn policy(is_watched: bool) -> String {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let (connect, watch) = match is_watched {
        true => ("connect-src 'self'; ", format!(" 'sha256-{}'", hash(WATCH))),
        false => ("", String::new()),
    };
    format!(
        "default-src 'none'; {connect}script-src 'sha256-{}'{watch}; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

fn write(page: Page, out: &mut dyn Write) -> io::Result<()> {
    let text = page.render().map_err(io::Error::other)?;
    out.write_all(text.as_bytes())
}

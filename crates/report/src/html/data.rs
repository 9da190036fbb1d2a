//! What the page's script gets: the findings of all reports, as one value that becomes JSON.
//!
//! **Guarantee.** Text stands here as the reports have it; the script makes it visible and never
//! takes it for HTML. Numbers that may not fit into a double are text. What needs a decision (which
//! frame stands for an event, what a picture shows) is decided here.
//!
//! **Deviations.** Frames and stacks are kept once and referred to by number: ten thousand findings
//! share most of theirs. A finding that several reports have is shown once, as
//! [`merge`](crate::merge) would have it, with all reports that have it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use brownout_findings::numbers::grouped;
use brownout_findings::touched::{Adding, Touch};
use brownout_findings::{Event, Finding, Frame, Origin, Report, SourceText};
use serde::Serialize;

use super::campaign;
use super::costs::{self, Costs};
use super::picture::{self, Picture};
use super::place::{listed, place_of};
use crate::compare::{Change, Comparison};
use crate::diff;
use crate::merge::{Joined, Told};
use crate::site;
use crate::terminal::{last_line, level};
use crate::text::base_name;

/// Everything.
#[derive(Serialize)]
pub struct Data<'a> {
    reports: Vec<Run<'a>>,
    is_comparison: bool,
    frames: Vec<FrameData<'a>>,
    stacks: Vec<Vec<usize>>,
    findings: Vec<FindingData<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<Costs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    touched: Option<TouchedData>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub campaigns: Vec<campaign::Shown>,
    /// The page is watched: which findings it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
}

/// A report without its findings.
#[derive(Serialize)]
struct Run<'a> {
    title: String,
    summary: String,
    sources: &'a [SourceText],
}

/// Which lines touched persistent memory, and which could have done so.
#[derive(Serialize)]
struct TouchedData {
    /// What was done at all, or could have been.
    sorts: Vec<&'static str>,
    files: Vec<TouchedFile>,
    unknown: u64,
}

#[derive(Serialize)]
struct TouchedFile {
    file: String,
    lines: Vec<TouchedLine>,
}

#[derive(Serialize)]
struct TouchedLine {
    line: u32,
    /// `0` for what it could have done and was not seen to do.
    times: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Serialize)]
struct FrameData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    /// `src/list.c:3:9`, `libx.so+0x12`.
    at: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    inlined: bool,
}

#[derive(Serialize)]
struct FindingData<'a> {
    rule: &'a str,
    severity: &'static str,
    level: &'static str,
    message: &'a str,
    fingerprint: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<String>,
    /// What it is listed under.
    file: String,
    at: String,
    /// As `at`, without folders and column.
    short: String,
    /// Which reports have it; the first one tells it.
    reports: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'static str>,
    events: Vec<EventData<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    help: &'a [String],
    /// A sketch of what would mend it, as lines of a diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    sketch: Option<Vec<String>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notes: &'a [String],
    /// In which tests and programs it was seen.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    origins: &'a [Origin],
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    native: Option<Native<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pictures: Vec<Picture>,
}

#[derive(Serialize)]
struct Native<'a> {
    command: &'a str,
    gdb: &'a str,
    status: &'a str,
    stdout: &'a str,
    confirmed: bool,
}

#[derive(Serialize)]
struct EventData<'a> {
    role: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<String>,
    /// `pool+0x40..0x48`.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<usize>,
    /// Which frame of the stack stands for the event, and which one includes its header.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shown: Vec<usize>,
}

/// Frames and stacks, each once.
#[derive(Default)]
struct Shared<'a> {
    frames: HashMap<&'a Frame, usize>,
    all_frames: Vec<&'a Frame>,
    stacks: HashMap<Vec<usize>, usize>,
}

impl<'a> Shared<'a> {
    fn stack(&mut self, stack: &'a [Frame]) -> Option<usize> {
        if stack.is_empty() {
            return None;
        }
        let mut numbers = Vec::with_capacity(stack.len());
        for frame in stack {
            let next = self.all_frames.len();
            let number = *self.frames.entry(frame).or_insert(next);
            if number == next {
                self.all_frames.push(frame);
            }
            numbers.push(number);
        }
        let next = self.stacks.len();
        Some(*self.stacks.entry(numbers).or_insert(next))
    }
}

/// Of one report or several, whose findings are told as `joined` has them.
pub fn of_reports<'a>(
    reports: &'a [Report],
    joined: &'a Joined<'_>,
    folder: Option<&Path>,
) -> Data<'a> {
    let mut shared = Shared::default();
    let mut findings: Vec<FindingData<'a>> = Vec::new();
    for Told {
        finding,
        reports: having,
    } in &joined.all
    {
        let sources = &reports[having[0]].sources;
        findings.push(told(
            finding,
            having.clone(),
            None,
            &mut shared,
            sources,
            folder,
        ));
    }
    // Each report has them in order. Several are told as one, errors first.
    let rank = |severity: &str| {
        ["correctness", "warning", "performance"]
            .iter()
            .position(|s| *s == severity)
    };
    findings.sort_by_key(|finding| rank(finding.severity));
    let costs = costs::of(reports, folder);
    Data {
        costs,
        touched: touched(reports, folder),
        ..whole(reports.iter(), findings, shared, false, folder)
    }
}

/// Of two reports that are compared.
pub fn of_comparison<'a>(comparison: &Comparison<'a>, folder: Option<&Path>) -> Data<'a> {
    let mut shared = Shared::default();
    let findings = comparison.findings.iter().map(|(change, finding)| {
        let reports = match change {
            Change::New => vec![1],
            Change::Gone => vec![0],
            Change::Still => vec![1, 0],
        };
        let sources = match change {
            Change::Gone => &comparison.old.sources,
            Change::New | Change::Still => &comparison.new.sources,
        };
        let change = Some(change.name());
        told(finding, reports, change, &mut shared, sources, folder)
    });
    let findings = findings.collect();
    whole(
        [comparison.old, comparison.new].into_iter(),
        findings,
        shared,
        true,
        folder,
    )
}

fn whole<'a>(
    reports: impl Iterator<Item = &'a Report>,
    findings: Vec<FindingData<'a>>,
    shared: Shared<'a>,
    is_comparison: bool,
    folder: Option<&Path>,
) -> Data<'a> {
    let mut stacks = vec![Vec::new(); shared.stacks.len()];
    for (numbers, at) in shared.stacks {
        stacks[at] = numbers;
    }
    Data {
        reports: reports
            .map(|report| Run {
                title: title(report),
                summary: last_line(report).replacen("brownout: ", "", 1),
                sources: &report.sources,
            })
            .collect(),
        is_comparison,
        frames: shared
            .all_frames
            .into_iter()
            .map(|frame| FrameData {
                function: frame.function.as_deref(),
                file: frame.file.as_deref(),
                line: frame.line,
                at: place_of(frame, folder),
                inlined: frame.inlined,
            })
            .collect(),
        stacks,
        findings,
        costs: None,
        touched: None,
        campaigns: Vec::new(),
        watch: None,
    }
}

/// The lines that touched persistent memory in all runs of all reports that counted them, and those
/// that were not seen to do what they could.
fn touched(reports: &[Report], folder: Option<&Path>) -> Option<TouchedData> {
    let mut counted = reports.iter().filter_map(|r| r.touched.as_ref()).peekable();
    counted.peek()?;
    let mut adding = Adding::default();
    counted.cloned().for_each(|touched| adding.all_of(touched));
    let total = adding.total();
    let mut sorts = BTreeSet::new();
    let mut files: BTreeMap<&str, BTreeMap<u32, BTreeMap<&'static str, u64>>> = BTreeMap::new();
    for file in total.files.iter().chain(&total.missed) {
        // A line of a header or a template is one, whatever the functions are that it became a part
        // of.
        let lines = files.entry(&file.file).or_default();
        for line in &file.lines {
            let times_of = lines.entry(line.line).or_default();
            for (touch, times) in &line.times {
                sorts.insert(*touch);
                let count = times_of.entry(touch.name()).or_default();
                *count = count.saturating_add(*times);
            }
        }
    }
    let files = files.into_iter().map(|(file, lines)| {
        let lines = lines.into_iter().map(|(line, times)| TouchedLine {
            line,
            times: (times.into_iter())
                .map(|(touch, times)| (touch, grouped(times)))
                .collect(),
            text: text_of(reports, file, line),
        });
        TouchedFile {
            file: listed(file, folder),
            lines: lines.collect(),
        }
    });
    Some(TouchedData {
        sorts: sorts.into_iter().map(Touch::name).collect(),
        files: files.collect(),
        unknown: total.unknown,
    })
}

/// A line of a source file, if a report has it.
fn text_of(reports: &[Report], file: &str, line: u32) -> Option<String> {
    let sources = reports.iter().flat_map(|report| &report.sources);
    let mut excerpts = sources
        .filter(|source| source.file == file)
        .flat_map(|source| &source.excerpts);
    excerpts.find_map(|excerpt| {
        let at = line.checked_sub(excerpt.line)?;
        excerpt.text.get(at as usize).cloned()
    })
}

/// `check of ./list pool`.
pub fn title(report: &Report) -> String {
    let analysed = &report.analysed;
    let what = match (&analysed.trace, analysed.program.is_empty()) {
        (Some(trace), _) => trace.clone(),
        (None, false) => analysed.program.join(" "),
        (None, true) => "an unknown program".into(),
    };
    format!("{} of {what}", analysed.analysis)
}

/// `list.c:3 in push`.
fn short(frame: &Frame) -> String {
    let place = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", base_name(file)),
        (Some(file), None) => base_name(file).to_owned(),
        (None, _) => place_of(frame, None),
    };
    match &frame.function {
        Some(function) => format!("{place} in {function}"),
        None => place,
    }
}

fn told<'a>(
    finding: &'a Finding,
    reports: Vec<usize>,
    change: Option<&'static str>,
    shared: &mut Shared<'a>,
    sources: &[SourceText],
    folder: Option<&Path>,
) -> FindingData<'a> {
    let frame = site::of_finding(finding);
    let file = frame.map(|frame| match (&frame.file, &frame.module) {
        (Some(file), _) => listed(file, folder),
        (None, Some(module)) => base_name(module).to_owned(),
        (None, None) => String::new(),
    });
    let at = frame.map(|frame| {
        let mut at = place_of(frame, folder);
        if let Some(function) = &frame.function {
            at += &format!(" in {function}");
        }
        at
    });
    FindingData {
        rule: finding.rule.as_str(),
        severity: finding.severity.name(),
        level: level(finding.severity),
        message: &finding.message,
        fingerprint: &finding.fingerprint,
        seen: (finding.count > 1).then(|| grouped(finding.count)),
        file: file.unwrap_or_default(),
        at: at.unwrap_or_default(),
        short: frame.map(short).unwrap_or_default(),
        reports,
        change,
        events: finding
            .all_events()
            .map(|event| event_data(event, shared))
            .collect(),
        help: &finding.help,
        sketch: finding
            .sketch
            .as_ref()
            .and_then(|sketch| diff::of(sketch, sources, &listed(&sketch.file, folder))),
        notes: &finding.notes,
        origins: &finding.origins,
        replay: finding
            .replay
            .as_ref()
            .map(|replay| replay.command.as_str()),
        native: finding.reproduction.as_ref().map(|native| Native {
            command: &native.command,
            gdb: &native.gdb,
            status: &native.status,
            stdout: &native.stdout,
            confirmed: native.confirmed,
        }),
        pictures: picture::of(finding),
    }
}

fn event_data<'a>(event: &'a Event, shared: &mut Shared<'a>) -> EventData<'a> {
    let stack = event.stack.as_slice();
    let site = site::site(stack);
    let user = site::including(stack)
        .and_then(|user| stack.iter().position(|frame| std::ptr::eq(frame, user)));
    EventData {
        role: event.role.name(),
        text: &event.text,
        thread: event.thread,
        index: event.index.map(grouped),
        place: event.place.as_ref().map(|place| {
            let end = u128::from(place.offset) + u128::from(place.size);
            let bytes = format!("{}+{:#x}..{end:#x}", base_name(&place.file), place.offset);
            match &place.name {
                Some(name) => format!("{name}, {bytes}"),
                None => bytes,
            }
        }),
        stack: shared.stack(stack),
        shown: site.into_iter().chain(user).collect(),
    }
}

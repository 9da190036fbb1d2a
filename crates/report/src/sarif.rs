//! SARIF 2.1.0, for editors and code hosts.
//!
//! **Purpose.** One run with the catalogue of rules, and one result for each finding: location,
//! related locations, code flow and stacks of its numbered events, fingerprints. Can be uploaded to
//! GitHub's code scanning as it is.
//!
//! **Guarantee.** Valid by the official schema, whatever the report holds (a property test says
//! so). Files below the current folder have relative URIs with the base `%SRCROOT%`; others have
//! absolute ones.
//!
//! **Deviations.**
//!
//! 1. GitHub refuses results without a file and a line. Where no source line is known, the location
//!    is line 1 of the module or program, and `properties` has the offset.
//! 2. Columns are bytes, as debug information gives them; SARIF counts characters. They differ
//!    after non-ASCII text.
//! 3. GitHub adds `primaryLocationLineHash` itself; giving our own would draw a warning on every
//!    upload.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use brownout_findings::{Event, Finding, Frame, Report, RuleId, Severity, Verdict, rules};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::options::Options;
use crate::terminal::level;
use crate::{order, site};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// What stands for the tool where its package names no home page.
const TOOL: &str = "urn:brownout:tool";
const BASE: &str = "%SRCROOT%";

/// What stands in a path as it is. A colon in a first segment would look like a scheme.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Writes the report.
pub fn render(report: &Report, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let rules = Rules::new(report);
    let bases = options.folder.as_ref().map(|folder| {
        let mut uri = file_uri(folder);
        if !uri.ends_with('/') {
            uri.push('/');
        }
        json!({ BASE: { "uri": uri } })
    });
    let run = Run {
        tool: json!({ "driver": {
            "name": report.tool.name,
            "version": report.tool.version,
            "semanticVersion": report.tool.version,
            "informationUri": information(),
            "rules": rules.descriptors(),
        }}),
        automation_details: json!({
            "id": format!("{}-{}/", report.tool.name, report.analysed.analysis),
        }),
        original_uri_base_ids: bases,
        invocations: [invocation(report, options)],
        results: Results {
            context: Context { report, options },
            rules: &rules,
        },
        properties: json!({
            "verdict": report.verdict,
            "analysed": report.analysed,
            "suppressed": report.suppressed,
            "known": report.known,
            "statistics": report.statistics,
        }),
    };
    let log = Log {
        schema: SCHEMA,
        version: "2.1.0",
        runs: [run],
    };
    serde_json::to_writer(&mut *out, &log)?;
    writeln!(out)
}

/// Where to read about the tool.
fn information() -> &'static str {
    Some(env!("CARGO_PKG_HOMEPAGE"))
        .filter(|page| !page.is_empty())
        .unwrap_or(TOOL)
}

#[derive(Serialize)]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    tool: Value,
    automation_details: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_uri_base_ids: Option<Value>,
    invocations: [Value; 1],
    results: Results<'a>,
    properties: Value,
}

/// Results are made while they are written: all of them at once take a gigabyte for ten thousand
/// findings.
struct Results<'a> {
    context: Context<'a>,
    rules: &'a Rules<'a>,
}

impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let findings = order::sorted(&self.context.report.findings);
        let result = |finding| self.context.result(finding, self.rules);
        serializer.collect_seq(findings.into_iter().map(result))
    }
}

fn invocation(report: &Report, options: &Options) -> Value {
    let limits = report.coverage.told().map(|limitation| {
        let level = match limitation.accepted {
            true => "note",
            false => "warning",
        };
        let text = format!("{}: {}", limitation.kind.name(), limitation.text);
        json!({ "level": level, "message": { "text": text } })
    });
    let notes = report
        .notes
        .iter()
        .map(|note| json!({ "level": "note", "message": { "text": note } }));
    let notes: Vec<Value> = limits
        .chain(notes)
        .chain(verdict_notification(report, options))
        .collect();
    json!({
        "executionSuccessful": !options.fail_on.falls_short(report),
        "toolExecutionNotifications": notes,
    })
}

/// The catalogue, and after it rules that only findings name.
struct Rules<'a> {
    foreign: Vec<(&'a str, Severity)>,
}

impl<'a> Rules<'a> {
    fn new(report: &'a Report) -> Rules<'a> {
        let mut foreign: Vec<(&str, Severity)> = Vec::new();
        for finding in &report.findings {
            let known = finding.rule.built_in().is_some()
                || foreign.iter().any(|(id, _)| finding.rule == *id);
            if !known {
                foreign.push((finding.rule.as_str(), finding.severity));
            }
        }
        Rules { foreign }
    }

    fn index(&self, rule: &RuleId) -> Option<usize> {
        let foreign = || self.foreign.iter().position(|(other, _)| rule == other);
        match rule.built_in() {
            Some(built_in) => Some(built_in as usize),
            None => Some(rules::RULES.len() + foreign()?),
        }
    }

    fn descriptors(&self) -> Vec<Value> {
        let built_in = rules::RULES.iter().map(|rule| {
            let mut descriptor = descriptor(rule.id, rule.severity, rule.default_on);
            descriptor["shortDescription"] = json!({ "text": rule.summary });
            descriptor["fullDescription"] = json!({ "text": rule.summary });
            descriptor["help"] = json!({ "text": rule.page, "markdown": rule.page });
            descriptor
        });
        let foreign = self.foreign.iter().map(|&(id, severity)| {
            let mut descriptor = descriptor(id, severity, true);
            descriptor["shortDescription"] = json!({ "text": id });
            descriptor
        });
        built_in.chain(foreign).collect()
    }
}

fn descriptor(id: &str, severity: Severity, on: bool) -> Value {
    let mut descriptor = json!({
        "id": id,
        "defaultConfiguration": { "enabled": on, "level": level(severity) },
        "properties": {
            "tags": ["persistent-memory", severity.name()],
            "problem.severity": level(severity),
        },
    });
    if let Some(name) = name(id) {
        descriptor["name"] = name.into();
    }
    descriptor
}

/// `missing-flush` as `MissingFlush`. Microsoft's validator wants a name that is not the id,
/// whatever their cases are: `crash` has none.
fn name(id: &str) -> Option<String> {
    let words = id.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let name: String = words
        .flat_map(|word| {
            let mut letters = word.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            first.chain(letters)
        })
        .collect();
    let is_other = name.to_lowercase() != id.to_lowercase();
    (is_other && !name.is_empty()).then_some(name)
}

struct Context<'a> {
    report: &'a Report,
    options: &'a Options,
}

impl Context<'_> {
    fn result(&self, finding: &Finding, rules: &Rules) -> Value {
        let events: Vec<&Event> = finding.all_events().collect();
        let mut text = finding.message.clone();
        for help in &finding.help {
            text += "\nhelp: ";
            text += help;
        }
        let mut result = json!({
            "ruleId": finding.rule,
            "level": level(finding.severity),
            "message": { "text": text },
            "locations": [self.location(site::of_finding(finding))],
            "occurrenceCount": finding.count.clamp(1, i64::MAX as u64),
            "partialFingerprints": {
                "brownout/v1": finding.fingerprint,
                "brownoutRootCause/v1": finding.root_cause,
            },
            "properties": self.properties(finding),
        });
        if let Some(index) = rules.index(&finding.rule) {
            result["ruleIndex"] = index.into();
        }
        if !events.is_empty() {
            let stacks: Vec<Value> = (1..)
                .zip(&events)
                .filter(|(_, event)| !event.stack.is_empty())
                .map(|(number, event)| self.stack(number, event))
                .collect();
            let related = (1..).zip(&events).map(|(number, event)| {
                let mut location = self.event_location(event);
                location["id"] = json!(number);
                location
            });
            result["relatedLocations"] = related.collect();
            result["codeFlows"] = json!([{ "threadFlows": self.thread_flows(&events) }]);
            result["stacks"] = stacks.into();
        }
        result
    }

    fn properties(&self, finding: &Finding) -> Map<String, Value> {
        let mut properties = Map::new();
        properties.insert("severity".into(), finding.severity.name().into());
        if !finding.help.is_empty() {
            properties.insert("help".into(), json!(finding.help));
        }
        if !finding.notes.is_empty() {
            properties.insert("notes".into(), json!(finding.notes));
        }
        if !finding.origins.is_empty() {
            properties.insert("origins".into(), json!(finding.origins));
        }
        if let Some(replay) = &finding.replay {
            properties.insert("replay".into(), json!(replay));
        }
        properties
    }

    /// One flow a thread; the execution order says how they interleave.
    fn thread_flows(&self, events: &[&Event]) -> Vec<Value> {
        let mut flows: Vec<(Option<u32>, Vec<Value>)> = Vec::new();
        for (number, event) in (1..).zip(events) {
            let step = json!({
                "location": self.event_location(event),
                "executionOrder": number,
                "kinds": [event.role],
                "properties": step_properties(event),
            });
            match flows.iter_mut().find(|(thread, _)| *thread == event.thread) {
                Some((_, steps)) => steps.push(step),
                None => flows.push((event.thread, vec![step])),
            }
        }
        let flow = |(thread, steps): (Option<u32>, Vec<Value>)| {
            let id = thread.map_or("program".into(), |thread| format!("thread {thread}"));
            json!({ "id": id, "locations": steps })
        };
        flows.into_iter().map(flow).collect()
    }

    fn event_location(&self, event: &Event) -> Value {
        let frame = site::site(&event.stack).map(|at| &event.stack[at]);
        let mut location = self.location(frame);
        location["message"] = json!({ "text": event.text });
        location
    }

    fn stack(&self, number: u64, event: &Event) -> Value {
        let frames: Vec<Value> = event
            .stack
            .iter()
            .map(|frame| {
                let mut out = json!({ "location": self.location(Some(frame)) });
                if let Some(module) = &frame.module {
                    out["module"] = json!(module);
                }
                if let Some(thread) = event.thread {
                    out["threadId"] = json!(thread);
                }
                out
            })
            .collect();
        // The number keeps two equal stacks apart: SARIF wants them unique.
        json!({ "message": { "text": format!("({number}) {}", event.text) }, "frames": frames })
    }

    /// A location that GitHub accepts: it always has a file and a line.
    fn location(&self, frame: Option<&Frame>) -> Value {
        let source = frame.and_then(|frame| {
            let file = frame.file.as_deref().filter(|file| !file.is_empty())?;
            Some((file, frame.line.filter(|line| *line > 0)))
        });
        let (file, line) = source.unwrap_or_else(|| (self.stand_in(frame), None));
        let mut region = json!({ "startLine": line.unwrap_or(1) });
        let column = frame.and_then(|frame| frame.column);
        if let (Some(column @ 1..), Some(_)) = (column, line) {
            region["startColumn"] = column.into();
        }
        let mut location = json!({
            "physicalLocation": { "artifactLocation": self.artifact(file), "region": region },
        });
        if let Some(frame) = frame {
            if let Some(function) = &frame.function {
                location["logicalLocations"] =
                    json!([{ "fullyQualifiedName": function, "kind": "function" }]);
            }
            location["properties"] = json!({ "offset": format!("{:#x}", frame.offset) });
            if frame.inlined {
                location["properties"]["inlined"] = true.into();
            }
        }
        location
    }

    /// A file to point at where no source file is known.
    fn stand_in<'b>(&'b self, frame: Option<&'b Frame>) -> &'b str {
        let module = frame.and_then(|frame| frame.module.as_ref());
        let program = self.report.analysed.program.first();
        module
            .or(program)
            .or(self.report.analysed.trace.as_ref())
            .map(String::as_str)
            .filter(|path| !path.is_empty())
            .unwrap_or("unknown")
    }

    fn artifact(&self, path: &str) -> Value {
        let folder = self.options.folder.as_deref();
        if let Some(inside) = site::below(path, folder) {
            let uri = encoded(&inside);
            return match folder {
                Some(_) => json!({ "uri": uri, "uriBaseId": BASE }),
                None if inside.is_absolute() => json!({ "uri": file_uri(&inside) }),
                None => json!({ "uri": uri }),
            };
        }
        let path = Path::new(path);
        let full = site::normal(&folder.map_or(path.to_path_buf(), |folder| folder.join(path)));
        match full.is_absolute() {
            true => json!({ "uri": file_uri(&full) }),
            false => json!({ "uri": encoded(&full) }),
        }
    }
}

fn verdict_notification(report: &Report, options: &Options) -> Option<Value> {
    let (level, text) = match report.verdict {
        Verdict::Clean | Verdict::Findings => return None,
        Verdict::NothingChecked => {
            let level = match options.fail_on.nothing_checked {
                true => "error",
                false => "warning",
            };
            (level, "no persistent memory was touched")
        }
        Verdict::Incomplete => ("error", "not everything was looked at; the rest is unknown"),
    };
    Some(json!({ "level": level, "message": { "text": text } }))
}

fn step_properties(event: &Event) -> Value {
    let mut properties = Map::new();
    if let Some(index) = event.index {
        properties.insert("index".into(), index.into());
    }
    if let Some(place) = &event.place {
        properties.insert("place".into(), json!(place));
    }
    properties.into()
}

fn encoded(path: &Path) -> String {
    percent_encode(path.as_os_str().as_bytes(), PATH).to_string()
}

fn file_uri(path: &Path) -> String {
    format!("file://{}", encoded(path))
}

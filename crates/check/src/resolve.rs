//! From numbers to words: call stacks, places, suggestions.

use std::collections::HashMap;

use brownout_findings::numbers::{counted, grouped};
use brownout_findings::{Event, Finding, Frame, Place};
use brownout_model::keys;
use brownout_symbols::{C_LIBRARY, Stacks};
use brownout_trace::event::{ContextId, ThreadId};

use crate::checker::Checker;
use crate::collect::{Raw, RawEvent};
use crate::source::Sources;

/// Turns what was collected into findings, correctness first. Fingerprints are the report's to assign.
pub fn findings(
    checkers: &mut [Checker],
    stacks: &mut Stacks,
    text_frames: &mut dyn FnMut(ContextId) -> Vec<String>,
) -> Vec<Finding> {
    let mut sources = Sources::default();
    let mut findings: Vec<Weighed> = Vec::new();
    for checker in checkers {
        for raw in std::mem::take(&mut checker.collector.raw) {
            findings.push(finding(checker, stacks, text_frames, &mut sources, raw));
        }
    }
    findings.retain(|weighed| !is_noise(&weighed.finding));
    let mut findings = merge(findings);
    if findings.iter().any(|finding| finding.rule == "no-fence") {
        // Where a fence is missing between two write-backs, nobody should be told to leave one out.
        findings.retain(|finding| finding.rule != "redirtied-line");
    }
    // What explains others comes before them.
    let key = |finding: &Finding| (finding.severity, finding.rule != "no-fence");
    findings.sort_by(|a, b| (key(a), &a.rule).cmp(&(key(b), &b.rule)));
    findings
}

/// The C library fences after its own non-temporal copies, whatever they copy. And what completes write-backs by chance counts as a
/// fence, except at the program's exit.
fn is_noise(finding: &Finding) -> bool {
    // A locked instruction that the program makes itself may be meant as the fence.
    let completed = finding.events.iter().find(|e| e.role == "completed");
    let at_exit = |frame: &Frame| is_libc(frame) && frame.function.as_deref() == Some("exit");
    if completed.is_some_and(|event| !event.stack.iter().any(at_exit)) {
        return true;
    }
    let in_libc = |event: &Event| event.stack.first().is_some_and(is_libc);
    finding.rule == "empty-fence" && finding.events.first().is_some_and(in_libc)
}

/// A finding, and the bytes (or lines) that its occurrences concern.
struct Weighed {
    finding: Finding,
    amount: u64,
}

/// Findings that read the same are one: contexts that differ in return addresses of one line, a copy that the C library makes
/// with several instructions.
fn merge(findings: Vec<Weighed>) -> Vec<Finding> {
    let mut merged: Vec<Weighed> = Vec::with_capacity(findings.len());
    let mut seen = HashMap::new();
    for weighed in findings {
        let finding = &weighed.finding;
        let stack = finding.events.first().map_or(&[][..], |event| &event.stack);
        let places: Vec<_> = stack
            .iter()
            .filter(|frame| !is_libc(frame))
            .map(|frame| match frame.line {
                Some(_) => (frame.function.clone(), frame.file.clone(), frame.line, 0),
                None => (
                    frame.function.clone(),
                    frame.module.clone(),
                    None,
                    frame.offset,
                ),
            })
            .collect();
        let next = merged.len();
        let at = match places.is_empty() {
            true => next,
            false => *seen.entry((finding.rule.clone(), places)).or_insert(next),
        };
        if at == next {
            merged.push(weighed);
        } else {
            merged[at].finding.count += weighed.finding.count;
            merged[at].amount += weighed.amount;
        }
    }
    merged.into_iter().map(weight_note).collect()
}

fn weight_note(
    Weighed {
        mut finding,
        amount,
    }: Weighed,
) -> Finding {
    if finding.count > 1 && amount > 0 {
        let what = match finding.rule.as_str() {
            "clean-flush" | "double-flush" | "oversized-flush" | "redirtied-line" | "no-fence" => {
                "lines"
            }
            _ => "bytes",
        };
        finding
            .notes
            .push(format!("{} {what} in all", grouped(amount)));
    }
    finding
}

fn is_libc(frame: &Frame) -> bool {
    frame.module.as_deref().is_some_and(|path| {
        let name = path.rsplit('/').next().unwrap_or(path);
        C_LIBRARY.iter().any(|start| name.starts_with(start))
    })
}

fn finding(
    checker: &Checker,
    stacks: &mut Stacks,
    text_frames: &mut dyn FnMut(ContextId) -> Vec<String>,
    sources: &mut Sources,
    raw: Raw,
) -> Weighed {
    let events: Vec<Event> = raw
        .events
        .iter()
        .map(|raw| event(checker, stacks, text_frames, raw))
        .collect();
    let mut help = raw.help;
    let by_msync = checker.persists_by_msync();
    help.extend(suggestion(&raw.rule, by_msync, &events, sources));
    let finding = Finding {
        rule: raw.rule,
        severity: raw.severity,
        message: raw.message,
        fingerprint: String::new(),
        root_cause: String::new(),
        count: raw.count,
        events,
        help,
        notes: raw.notes,
        crash_point: None,
        reproduction: None,
        replay: None,
    };
    Weighed {
        finding,
        amount: raw.bytes,
    }
}

fn event(
    checker: &Checker,
    stacks: &mut Stacks,
    text_frames: &mut dyn FnMut(ContextId) -> Vec<String>,
    raw: &RawEvent,
) -> Event {
    let site = checker.sites.site(raw.tag);
    let text = text_frames(site.context);
    let mut stack: Vec<Frame> = match (raw.tag.0, text.is_empty()) {
        (0, _) => Vec::new(),
        (_, false) => text.iter().map(|text| frame_of_text(text)).collect(),
        (_, true) => {
            let symbols = stacks.stack_of(
                site.process,
                checker.sites.epoch(raw.tag),
                site.pc,
                site.context,
            );
            symbols.into_iter().map(Frame::from).collect()
        }
    };
    // An annotation stands where it was written, not in the header that makes it.
    let own = stack.iter().position(|frame| !is_annotation(frame));
    stack.drain(..own.unwrap_or(0));
    Event {
        role: raw.role.to_owned(),
        text: raw.text.clone(),
        thread: raw.thread.map(|ThreadId(number)| number),
        // Traces number events from 0.
        index: raw.moment.map(|moment| moment.0.saturating_sub(1)),
        place: raw.place.map(|(range, addr)| {
            let (file, offset) = keys::place(range.start());
            let known = checker.files.get(&file);
            let address = match addr.0 {
                0 => known.map_or(0, |file| file.address(offset)),
                addr => addr,
            };
            Place {
                file: known.map(|file| file.path.clone()).unwrap_or_default(),
                offset,
                size: range.len(),
                address,
            }
        }),
        stack,
    }
}

/// Code of this project's own headers and crate.
fn is_annotation(frame: &Frame) -> bool {
    let file = frame.file.as_deref().unwrap_or_default();
    let name = file.rsplit('/').next().unwrap_or(file);
    let function = frame.function.as_deref().unwrap_or_default();
    let function = function.trim_start_matches('<');
    matches!(name, "brownout.h" | "pmtest.h" | "pmtest.hh")
        || function.starts_with("brownout_annotations::")
}

/// A frame as Valgrind writes it: `0x109189: insert (list.c:20)`, `0x109189: insert (in /usr/lib/libx.so)`.
fn frame_of_text(text: &str) -> Frame {
    let (address, rest) = match text.split_once(": ") {
        Some((address, rest)) if address.starts_with("0x") => (address, rest),
        _ => ("", text),
    };
    let offset = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap_or(0);
    let (function, place) = match rest.rsplit_once(" (") {
        Some((function, place)) => (function, place.trim_end_matches(')')),
        None => (rest, ""),
    };
    let module = place.strip_prefix("in ").map(str::to_owned);
    let line = place
        .rsplit_once(':')
        .and_then(|(_, line)| line.parse().ok());
    let file = line.and_then(|_: u32| place.rsplit_once(':').map(|(file, _)| file.to_owned()));
    Frame {
        function: (!function.is_empty() && function != "???").then(|| function.to_owned()),
        file,
        line,
        module,
        offset,
        ..Frame::default()
    }
}

/// `list.c:41`, or what there is.
fn where_is(frame: &Frame) -> String {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => {
            let name = file.rsplit('/').next().unwrap_or(file);
            format!("{name}:{line}")
        }
        _ => {
            let module = frame.module.as_deref().unwrap_or("?");
            let name = module.rsplit('/').next().unwrap_or(module);
            format!("{name}+{:#x}", frame.offset)
        }
    }
}

/// The frame to talk about: the innermost with a source line, past the copying of the C library and of standard libraries.
fn own_frame(event: &Event) -> Option<&Frame> {
    let is_own = |frame: &&Frame| {
        let file = frame.file.as_deref().unwrap_or("/usr/");
        let is_elsewhere = !file.starts_with('/') || file.starts_with("/usr/");
        frame.line.is_some() && !is_elsewhere && !frame.is_standard_library()
    };
    let has_line = |frame: &&Frame| frame.line.is_some();
    let mut frames = event.stack.iter();
    frames
        .find(is_own)
        .or(event.stack.iter().find(has_line))
        .or(event.stack.first())
}

/// As [`own_frame`], but best in the source file of `other`: wrappers such as `persist` say little.
fn own_frame_near<'a>(event: &'a Event, other: &Frame) -> Option<&'a Frame> {
    let same_file = |frame: &&Frame| frame.line.is_some() && frame.file == other.file;
    event.stack.iter().find(same_file).or(own_frame(event))
}

/// The nearest place where what is missing would be right.
fn suggestion(
    rule: &str,
    by_msync: bool,
    events: &[Event],
    sources: &mut Sources,
) -> Option<String> {
    let of = |role: &str| events.iter().find(|event| event.role == role);
    match rule {
        "no-fence" => {
            let text = "fence (sfence, pmem_drain) after each group of write-backs, before what depends on it is stored";
            return Some(text.to_owned());
        }
        "flush-outside-pm" if of("target").is_some() => {
            let text = "if what the pointer points to was meant, give the write-back the pointer, not its address";
            return Some(text.to_owned());
        }
        "redirtied-line" => {
            let text = "store all of the line first, then write it back once";
            return Some(text.to_owned());
        }
        _ => {}
    }
    let store = of("store")?;
    let own = own_frame(store)?;
    let what = match (&own.file, own.line) {
        (Some(file), Some(line)) => sources.destination(file, line, own.column),
        _ => None,
    };
    let size = store.place.as_ref().map_or(0, |place| place.size);
    let bytes = counted(size, "byte");
    let (object, object_here) = match &what {
        Some(expression) => {
            let object = format!("{bytes} at {expression}");
            (object.clone(), object)
        }
        None => (
            format!("the {bytes} stored at {}", where_is(own)),
            format!("the {bytes}"),
        ),
    };
    let before_return = || match &own.function {
        Some(function) => format!("before returning from {function}, {}", where_is(own)),
        None => format!("after {}", where_is(own)),
    };
    if by_msync
        && matches!(
            rule,
            "missing-flush" | "tx-not-persisted" | "not-persisted" | "not-ordered"
        )
    {
        return Some(format!(
            "msync the page of {object_here} {}",
            before_return()
        ));
    }
    let fence = of("fence").and_then(|event| own_frame_near(event, own));
    let flush = of("flush").and_then(|event| own_frame_near(event, own));
    match rule {
        "missing-flush" | "tx-not-persisted" | "not-persisted" | "not-ordered" => {
            match (flush, fence) {
                (Some(flush), _) => Some(format!(
                    "fence after the write-back at {} to complete it for {object}",
                    where_is(flush)
                )),
                (None, Some(fence)) => Some(format!(
                    "write back {object} before the fence at {}, which then completes it",
                    where_is(fence)
                )),
                (None, None) => Some(format!("persist {object_here} {}", before_return())),
            }
        }
        "missing-fence" => Some(match flush {
            Some(flush) => format!(
                "fence in the same thread after the write-back at {}, {}",
                where_is(flush),
                before_return()
            ),
            None => format!("fence in the same thread {}", before_return()),
        }),
        "tx-unlogged-store" => Some(format!("log {object} in the transaction before the store")),
        "store-outside-tx" => Some(format!("begin a transaction before {}", where_is(own))),
        "overwritten-unpersisted" => Some(format!(
            "persist what {} stored before it is overwritten",
            of("earlier-store")
                .and_then(own_frame)
                .map_or_else(|| "the earlier store".to_owned(), where_is)
        )),
        _ => None,
    }
}

//! From numbers to words: call stacks, places, suggestions.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use brownout_findings::numbers::{counted, grouped};
use brownout_findings::rules::BuiltIn;
use brownout_findings::{Effort, Event, Finding, Frame, Origin, Place, Role, blame};
use brownout_model::{ByteRange, Tag, keys};
use brownout_symbols::{Programs, Stacks};
use brownout_trace::event::{ContextId, ThreadId};

use crate::checker::Checker;
use crate::collect::{Raw, RawEvent};
use crate::sites::Work;
use crate::sketch;
use crate::source::Sources;

/// Where words for numbers come from.
pub struct Words<'a> {
    pub stacks: &'a mut Stacks,
    pub programs: &'a mut Programs,
    /// The call stack of a context, innermost first, in recordings whose stacks are text.
    pub text_frames: &'a mut dyn FnMut(ContextId) -> Vec<String>,
}

/// Turns what was collected into findings, correctness first. Fingerprints are the report's to
/// assign.
pub fn findings(checkers: &mut [Checker], words: &mut Words<'_>) -> Vec<Finding> {
    let mut sources = Sources::default();
    let mut findings: Vec<Weighed> = Vec::new();
    for checker in checkers {
        for raw in std::mem::take(&mut checker.collector.raw) {
            findings.push(finding(checker, words, &mut sources, raw));
        }
    }
    findings.retain(|weighed| !is_noise(&weighed.finding));
    let mut findings = merge(findings);
    reconcile(&mut findings);
    if findings
        .iter()
        .any(|finding| finding.rule == BuiltIn::NoFence)
    {
        // Where a fence is missing between two write-backs, nobody should be told to leave one out.
        findings.retain(|finding| finding.rule != BuiltIn::RedirtiedLine);
    }
    // What explains others comes before them.
    let key = |finding: &Finding| (finding.severity, finding.rule != BuiltIn::NoFence);
    findings.sort_by(|a, b| (key(a), &a.rule).cmp(&(key(b), &b.rule)));
    findings
}

/// The C library fences after its own non-temporal copies, whatever they copy. And what completes
/// write-backs by chance counts as a fence, except at the program's exit.
fn is_noise(finding: &Finding) -> bool {
    // A locked instruction that the program makes itself may be meant as the fence.
    let completed = finding.events.iter().find(|e| e.role == Role::Completed);
    let at_exit =
        |frame: &Frame| blame::is_c_library(frame) && frame.function.as_deref() == Some("exit");
    if completed.is_some_and(|event| !event.stack.iter().any(at_exit)) {
        return true;
    }
    let in_libc = |event: &Event| event.stack.first().is_some_and(blame::is_c_library);
    finding.rule == BuiltIn::EmptyFence && finding.events.first().is_some_and(in_libc)
}

/// A finding, and the bytes (or lines) that its occurrences concern.
struct Weighed {
    finding: Finding,
    amount: u64,
}

/// Findings that read the same are one: contexts that differ in return addresses of one line, a
/// copy that the C library makes with several instructions.
fn merge(findings: Vec<Weighed>) -> Vec<Finding> {
    let mut merged: Vec<Weighed> = Vec::with_capacity(findings.len());
    let mut seen = HashMap::new();
    for weighed in findings {
        let finding = &weighed.finding;
        let stack = finding.events.first().map_or(&[][..], |event| &event.stack);
        let places: Vec<_> = stack
            .iter()
            .filter(|frame| !blame::is_c_library(frame))
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
            merged[at].finding.seen_in(weighed.finding.origins);
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
        let what = match finding.rule.built_in() {
            Some(
                BuiltIn::CleanFlush
                | BuiltIn::DoubleFlush
                | BuiltIn::OversizedFlush
                | BuiltIn::RedirtiedLine
                | BuiltIn::NoFence,
            ) => "lines",
            _ => "bytes",
        };
        finding
            .notes
            .push(format!("{} {what} in all", grouped(amount)));
    }
    finding
}

fn finding(checker: &Checker, words: &mut Words<'_>, sources: &mut Sources, raw: Raw) -> Weighed {
    let events: Vec<Event> = raw
        .events
        .iter()
        .map(|raw| event(checker, words, raw))
        .collect();
    let origin = origin(checker, words, &raw.events, &events);
    let mut help = raw.help;
    let by_msync = checker.persists_by_msync();
    let rule = raw.rule.built_in();
    help.extend(rule.and_then(|rule| suggestion(rule, by_msync, &events, sources)));
    let sketch = rule
        .filter(|_| !by_msync && !is_lock(&events, sources))
        .and_then(|rule| sketch::of(rule, &events, sources));
    let finding = Finding {
        count: raw.count,
        events,
        help,
        sketch,
        notes: raw.notes,
        origins: Vec::from_iter(origin),
        ..Finding::new(raw.rule, raw.severity, raw.message)
    };
    Weighed {
        finding,
        amount: raw.bytes,
    }
}

/// The program that the first event happened in that has a place in the code.
fn origin(
    checker: &Checker,
    words: &mut Words<'_>,
    raw: &[RawEvent],
    events: &[Event],
) -> Option<Origin> {
    let (raw, event) = raw.iter().zip(events).find(|(raw, _)| raw.tag.0 != 0)?;
    let (site, epoch) = (checker.sites.site(raw.tag), checker.sites.epoch(raw.tag));
    let Words {
        stacks, programs, ..
    } = words;
    programs.origin(stacks, site.process, epoch, &event.stack)
}

/// The call stack of a site, innermost first.
fn stack_of(checker: &Checker, words: &mut Words<'_>, tag: Tag) -> Vec<Frame> {
    let site = checker.sites.site(tag);
    let text = (words.text_frames)(site.context);
    let mut stack: Vec<Frame> = match (tag.0, text.is_empty()) {
        (0, _) => Vec::new(),
        (_, false) => text.iter().map(|text| frame_of_text(text)).collect(),
        (_, true) => {
            let symbols = words.stacks.stack_of(
                site.process,
                checker.sites.epoch(tag),
                site.pc,
                site.context,
            );
            symbols.into_iter().map(Frame::from).collect()
        }
    };
    // An annotation stands where it was written, not in the header that makes it.
    let own = stack.iter().position(|frame| !is_annotation(frame));
    stack.drain(..own.unwrap_or(0));
    stack
}

/// More places are told together.
const EFFORTS_MAX: usize = 100;

/// Who writes back and fences how much: the most needless first, then the most.
pub fn efforts(checker: &Checker, words: &mut Words<'_>) -> Vec<Effort> {
    let mut all: Vec<(Tag, Work)> = checker.sites.at_work().collect();
    all.sort_by_key(|(tag, work)| {
        let needless = work.needless + work.needless_fences;
        Reverse((needless, work.needed + work.fences, Reverse(tag.0)))
    });
    let effort = |stack, work: Work| Effort {
        stack,
        needed: work.needed,
        needless: work.needless,
        fences: work.fences,
        needless_fences: work.needless_fences,
    };
    let rest = all.split_off(all.len().min(EFFORTS_MAX));
    let mut told: Vec<Effort> = Vec::new();
    for (tag, work) in all {
        let more = effort(stack_of(checker, words, tag), work);
        // Instructions of one line read the same.
        let is_same = |known: &&mut Effort| same_lines(&known.stack, &more.stack);
        match told.iter_mut().find(is_same) {
            Some(known) => known.add(&more),
            None => told.push(more),
        }
    }
    let mut others = Effort::default();
    for (_, work) in rest {
        others.add(&effort(Vec::new(), work));
    }
    if others != Effort::default() {
        told.push(others);
    }
    told
}

fn same_lines(a: &[Frame], b: &[Frame]) -> bool {
    let line = |frame: &Frame| {
        let offset = match frame.line {
            Some(_) => 0,
            None => frame.offset,
        };
        (
            frame.function.clone(),
            frame.file.clone(),
            frame.line,
            offset,
        )
    };
    a.iter().map(line).eq(b.iter().map(line))
}

fn event(checker: &Checker, words: &mut Words<'_>, raw: &RawEvent) -> Event {
    let stack = stack_of(checker, words, raw.tag);
    let name = raw
        .place
        .and_then(|(range, _)| name(checker, words, raw, range));
    Event {
        role: raw.role,
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
                name,
            }
        }),
        stack,
    }
}

/// What the program calls these bytes: the name that it has registered for them, else what its
/// store says.
fn name(
    checker: &Checker,
    words: &mut Words<'_>,
    raw: &RawEvent,
    range: ByteRange,
) -> Option<String> {
    if let Some(name) = checker.registered.name(range, raw.moment) {
        return Some(name);
    }
    let is_access = matches!(
        raw.role,
        Role::Store | Role::EarlierStore | Role::LaterStore | Role::Load
    );
    let site = checker.sites.site(raw.tag);
    let epoch = checker.sites.epoch(raw.tag);
    (is_access && raw.tag.0 != 0)
        .then(|| {
            let Words { stacks, .. } = words;
            stacks.accessed(site.process, epoch, site.pc, range.len())
        })
        .flatten()
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

/// A frame as Valgrind writes it: `0x109189: insert (list.c:20)`, `0x109189: insert (in
/// /usr/lib/libx.so)`.
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

/// The frame to talk about. What a header of the program does, it does for whoever includes it:
/// only there can it be mended.
fn user_frame(event: &Event) -> Option<&Frame> {
    blame::including(&event.stack).or_else(|| blame::frame(&event.stack))
}

/// As [`user_frame`], but best in the source file of `other`: wrappers such as `persist` say
/// little.
fn frame_near<'a>(event: &'a Event, other: &Frame) -> Option<&'a Frame> {
    let same_file = |frame: &&Frame| frame.line.is_some() && frame.file == other.file;
    event
        .stack
        .iter()
        .find(same_file)
        .or_else(|| user_frame(event))
}

/// Where two events happened, in words that differ: if both are in one helper, its callers.
fn told_apart(a: &Event, b: &Event) -> (String, String) {
    let own = |event: &Event| {
        let stack = blame::inside_main(&event.stack);
        let from = blame::site(stack).unwrap_or(0);
        stack[from..]
            .iter()
            .filter(|frame| frame.line.is_some())
            .map(blame::spoken)
            .collect::<Vec<_>>()
    };
    let (a_places, b_places) = (own(a), own(b));
    let differ = a_places.iter().zip(&b_places).find(|(a, b)| a != b);
    match differ {
        Some((a, b)) => (a.clone(), b.clone()),
        None => (blame::place(&a.stack), blame::place(&b.stack)),
    }
}

/// Whether the programmer's words speak of a lock.
fn speaks_of_lock(text: &str) -> bool {
    const WORDS: [&str; 9] = [
        "lock", "locks", "locked", "unlock", "mutex", "rwlock", "spinlock", "latch", "spin",
    ];
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .flat_map(|word| {
            // `pageLock`.
            let last = word.rfind(|c: char| c.is_ascii_uppercase()).unwrap_or(0);
            [word, &word[last..]]
        })
        .any(|word| WORDS.contains(&word.to_ascii_lowercase().as_str()))
}

/// Whether what is stored may be a lock, which must not become persistent.
fn is_lock(events: &[Event], sources: &mut Sources) -> bool {
    let Some(store) = events.iter().find(|event| event.role == Role::Store) else {
        return false;
    };
    let Some(own) = blame::frame(&store.stack) else {
        return false;
    };
    let expression = match (&own.file, own.line) {
        (Some(file), Some(line)) => sources.text(file, line),
        _ => None,
    };
    let function = own.function.as_deref().unwrap_or_default();
    let size = store.place.as_ref().map_or(0, |place| place.size);
    size <= LOCK_BYTES_MAX && (speaks_of_lock(function) || expression.is_some_and(speaks_of_lock))
}

/// What would mend it, at the nearest place where that is right.
fn suggestion(
    rule: BuiltIn,
    by_msync: bool,
    events: &[Event],
    sources: &mut Sources,
) -> Option<String> {
    let of = |role: Role| events.iter().find(|event| event.role == role);
    let place_of = |role: Role| of(role).and_then(user_frame).map(blame::spoken);
    match rule {
        BuiltIn::NoFence => {
            let text = "fence (sfence, pmem_drain) after each group of write-backs, before what depends on it is stored";
            return Some(text.to_owned());
        }
        BuiltIn::FlushOutsidePm if of(Role::Target).is_some() => {
            let text = "if what the pointer points to was meant, give the write-back the pointer, not its address";
            return Some(text.to_owned());
        }
        BuiltIn::RedirtiedLine => {
            let text = "store all of the line first, then write it back once";
            return Some(text.to_owned());
        }
        _ => {}
    }
    if let Some(what) = wasted(rule, events) {
        return Some(what);
    }
    let store = of(Role::Store)?;
    let own = blame::frame(&store.stack)?;
    let user = user_frame(store)?;
    let what = match (&own.file, own.line) {
        (Some(file), Some(line)) => sources.destination(file, line, own.column),
        _ => None,
    };
    let size = store.place.as_ref().map_or(0, |place| place.size);
    let bytes = counted(size, "byte");
    // In a header the expression is in terms of its parameters, which say nothing elsewhere.
    let (object, object_here) = match what.filter(|_| std::ptr::eq(own, user)) {
        Some(expression) => {
            let object = format!("{bytes} at {expression}");
            (object.clone(), object)
        }
        None => match store.place.as_ref().and_then(|place| place.name.as_ref()) {
            Some(name) => (
                format!("the {bytes} of {name} stored at {}", blame::spoken(user)),
                format!("the {bytes} of {name}"),
            ),
            None => (
                format!("the {bytes} stored at {}", blame::spoken(user)),
                format!("the {bytes}"),
            ),
        },
    };
    let before_return = || match (&user.function, user.line) {
        (Some(function), Some(_)) => {
            format!("before returning from {function}, {}", blame::spoken(user))
        }
        (Some(function), None) => format!("before returning from {function}"),
        (None, _) => format!("after {}", blame::spoken(user)),
    };
    if matches!(
        rule,
        BuiltIn::MissingFlush
            | BuiltIn::MissingFence
            | BuiltIn::TxUnloggedStore
            | BuiltIn::TxNotPersisted
    ) && is_lock(events, sources)
    {
        return Some(format!(
            "if {object} are a lock, initialise it whenever the file is opened, and say brownout_exclude there: made persistent, it \
             would stay locked after a crash"
        ));
    }
    if rule == BuiltIn::NotOrdered
        && let Some(early) = of(Role::LaterStore)
    {
        let (late_place, early_place) = told_apart(store, early);
        let persist = match by_msync {
            true => "msync",
            false => "persist",
        };
        // In which order they were stored: traces number events.
        return Some(match (store.index, early.index) {
            (Some(late), Some(early)) if early < late => format!(
                "store at {early_place} only when what is stored at {late_place} is persistent: now it is stored first"
            ),
            _ => match of(Role::Flush).and_then(|flush| frame_near(flush, user)) {
                Some(flush) if !by_msync => format!(
                    "fence between the write-back at {} and the store at {early_place}, which can persist first",
                    blame::spoken(flush)
                ),
                _ => format!(
                    "{persist} what is stored at {late_place} before the store at {early_place}, which can persist first"
                ),
            },
        });
    }
    if by_msync
        && matches!(
            rule,
            BuiltIn::MissingFlush
                | BuiltIn::TxNotPersisted
                | BuiltIn::NotPersisted
                | BuiltIn::NotOrdered
        )
    {
        return Some(format!(
            "msync the page of {object_here} {}",
            before_return()
        ));
    }
    if rule == BuiltIn::UnpersistedPublication {
        let persist = match by_msync {
            true => "msync",
            false => "persist",
        };
        let unlock = of(Role::Unlock).and_then(|event| frame_near(event, user));
        return Some(match unlock {
            Some(unlock) => format!(
                "{persist} {object} before giving the lock back at {}",
                blame::spoken(unlock)
            ),
            None => format!(
                "{persist} {object} before another thread can read them, or let the reader write back what it reads and fence before it \
                 makes anything of it"
            ),
        });
    }
    let fence = of(Role::Fence).and_then(|event| frame_near(event, user));
    let flush = of(Role::Flush).and_then(|event| frame_near(event, user));
    match rule {
        BuiltIn::NotPersisted if flush.is_none() => {
            let assertion = of(Role::Assertion)?;
            let elsewhere = assertion.thread.is_some() && assertion.thread != store.thread;
            Some(match elsewhere {
                true => format!(
                    "persist {object_here} {}: another thread relies on it",
                    before_return()
                ),
                false => format!(
                    "persist {object} before {}, where it is relied on",
                    frame_near(assertion, user).map(blame::spoken)?
                ),
            })
        }
        BuiltIn::MissingFlush
        | BuiltIn::TxNotPersisted
        | BuiltIn::NotPersisted
        | BuiltIn::NotOrdered => match (flush, fence) {
            (Some(flush), _) => Some(format!(
                "fence after the write-back at {} to complete it for {object}",
                blame::spoken(flush)
            )),
            (None, Some(fence)) => Some(format!(
                "write back {object} before the fence at {}, which then completes it",
                blame::spoken(fence)
            )),
            (None, None) => Some(format!("persist {object_here} {}", before_return())),
        },
        BuiltIn::MissingFence => Some(match flush {
            Some(flush) => format!(
                "fence in the same thread after the write-back at {}, {}",
                blame::spoken(flush),
                before_return()
            ),
            None => format!("fence in the same thread {}", before_return()),
        }),
        BuiltIn::TxUnloggedStore => {
            Some(format!("log {object} in the transaction before the store"))
        }
        BuiltIn::StoreOutsideTx => Some(format!(
            "begin a transaction before {}, and log {object_here} in it",
            blame::spoken(user)
        )),
        BuiltIn::OverwrittenUnpersisted => Some(format!(
            "persist what is stored at {} before it is overwritten at {}",
            place_of(Role::EarlierStore).unwrap_or_else(|| "the earlier place".to_owned()),
            blame::spoken(user)
        )),
        _ => None,
    }
}

/// Locks are at most so large: pthread's.
const LOCK_BYTES_MAX: u64 = 56;

/// What to leave out. Not said of what a library does inside: its user cannot change that.
fn wasted(rule: BuiltIn, events: &[Event]) -> Option<String> {
    let first = events.first()?;
    let is_log = matches!(
        rule,
        BuiltIn::DuplicateLog | BuiltIn::FreshLog | BuiltIn::CrossTxOverlap
    );
    if !is_log && blame::in_foundation(&first.stack) {
        return None;
    }
    let here = user_frame(first).map(blame::spoken)?;
    let both = |role: Role| {
        let earlier = events.iter().find(|event| event.role == role)?;
        Some(told_apart(first, earlier))
    };
    Some(match rule {
        BuiltIn::CleanFlush => format!(
            "leave out the write-back at {here}, or make it after the store that it is meant for, with that store's bytes"
        ),
        BuiltIn::OversizedFlush => {
            format!("give the write-back at {here} only the bytes that were stored to")
        }
        BuiltIn::DoubleFlush => match both(Role::EarlierFlush) {
            Some((here, earlier)) => format!(
                "leave out the write-back at {earlier} or the one at {here}: a line needs one after its last store"
            ),
            None => format!("leave out the write-back at {here}"),
        },
        BuiltIn::EmptyFence => format!(
            "leave out the fence at {here}, unless it orders something between threads; it completes only what its own thread has \
             written back before"
        ),
        BuiltIn::DuplicateLog => match both(Role::EarlierLog) {
            Some((here, earlier)) => {
                format!("leave out what is logged at {here}: {earlier} has logged it")
            }
            None => format!("leave out what is logged at {here}"),
        },
        BuiltIn::FreshLog => format!(
            "leave out what is logged at {here}: if the transaction fails, what it has allocated is freed as it is"
        ),
        BuiltIn::CrossTxOverlap => match both(Role::EarlierLog) {
            Some((here, other)) => format!(
                "let the transactions at {here} and {other} exclude each other, by a lock that is held until they end"
            ),
            None => return None,
        },
        BuiltIn::TransientData => format!(
            "keep what is stored at {here} in ordinary memory; if its content matters after a crash, it must be written back"
        ),
        _ => return None,
    })
}

/// Where one rule finds that a line is never made persistent, and another that it need not be there
/// at all, both say so.
fn reconcile(findings: &mut [Finding]) {
    let store = |finding: &Finding| {
        let event = finding
            .events
            .iter()
            .find(|event| event.role == Role::Store)?;
        Some(blame::line(&event.stack))
    };
    let transient: HashSet<String> = findings
        .iter()
        .filter(|finding| finding.rule == BuiltIn::TransientData)
        .filter_map(store)
        .collect();
    for finding in findings.iter_mut() {
        let is_same = |line: String| transient.contains(&line);
        if finding.rule == BuiltIn::MissingFlush
            && store(finding).is_some_and(is_same)
            && let Some(help) = finding.help.last_mut()
        {
            finding.sketch = None;
            *help = format!(
                "if it need not survive a crash, keep it in ordinary memory, or say so by brownout_exclude; else {help}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_known_by_their_names() {
        for text in [
            "&pool->lock",
            "spin_unlock",
            "pageLock = 0;",
            "t->mutex.word = 1",
        ] {
            assert!(speaks_of_lock(text), "{text}");
        }
        for text in [
            "block->next",
            "clock = 1",
            "&pool->blocks[i]",
            "flock_of_sheep",
            "",
        ] {
            assert!(!speaks_of_lock(text), "{text}");
        }
    }
}

//! Identities of findings that survive a rebuild.
//!
//! **Purpose.** A suppression or a baseline must know a finding again after lines have moved, the
//! program was built elsewhere, or libraries lie at other addresses. [`assign`] gives each finding
//! a *fingerprint*, and a *root cause* that findings of one store line share.
//!
//! **Guarantee.** A fingerprint depends on the rule, the roles of the events, and the names of
//! functions and modules on their stacks; not on events that only explain the others (stores that
//! came too early or too late, where a file was found), nor on lines, columns, addresses, paths,
//! messages, counts or threads. No two findings of a call get the same one. The order of the
//! findings does not matter, unless they agree in everything that is looked at.
//!
//! **Deviations.**
//!
//! 1. A frame without a function is named by its module and offset, and so changes with a rebuild.
//!    There is nothing better to go by.
//! 2. Findings that differ only in lines are numbered in the order of their lines. If one of them
//!    goes, the ones after it move up: the number of known findings stays right, but which of them
//!    is called new may not.
//! 3. Frames outside `main` do not count: a system update would change them.
//! 4. Clones that compilers make (`f.constprop.0`, `f.part.1`) count as the function itself.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use brownout_findings::{Event, Finding, Frame, Role};

use crate::site;
use crate::text::base_name;

/// Number of hexadecimal digits. 64 bits: among 100,000 findings a chance collision has odds of 1
/// to 3 billion.
pub const DIGITS: usize = 16;

/// Fills `fingerprint` and `root_cause` of every finding.
pub fn assign(findings: &mut [Finding]) {
    let fingerprints = fingerprints(findings);
    for (finding, fingerprint) in findings.iter_mut().zip(fingerprints) {
        finding.fingerprint = fingerprint;
    }
    let causes = root_causes(findings);
    for (finding, cause) in findings.iter_mut().zip(causes) {
        finding.root_cause = cause;
    }
}

/// True for text that [`assign`] could have made.
pub fn is_fingerprint(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn fingerprints(findings: &[Finding]) -> Vec<String> {
    let mut alike: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, finding) in findings.iter().enumerate() {
        alike.entry(kind(finding)).or_default().push(at);
    }
    let mut out = vec![String::new(); findings.len()];
    for (base, mut members) in alike {
        // Stable: what compares equal keeps the order of the list.
        members.sort_by(|&a, &b| by_place(&findings[a], &findings[b]));
        for (ordinal, &at) in members.iter().enumerate() {
            // The first keeps the plain hash, so that it does not change when a second one appears.
            out[at] = match ordinal {
                0 => base.clone(),
                _ => {
                    let mut hash = Hash::new("fingerprint-ordinal");
                    hash.text(&base);
                    hash.number(ordinal as u64);
                    hash.finish()
                }
            };
        }
    }
    out
}

/// The same for findings that only lines, bytes and numbers tell apart: the fingerprint of the
/// first of them.
pub(crate) fn kind(finding: &Finding) -> String {
    let mut hash = Hash::new("fingerprint");
    hash.text(finding.rule.as_str());
    for event in finding.events.iter().filter(|event| !explains(event)) {
        hash.text(event.role.name());
        let frames = site::inside_main(&event.stack);
        hash.number(frames.len() as u64);
        for frame in frames {
            hash.frame(frame);
        }
    }
    hash.finish()
}

/// Whether an event only explains what the others say. Which crash of a cause is looked into first
/// depends on the machine's load, and with it what else is found to blame.
fn explains(event: &Event) -> bool {
    matches!(event.role, Role::Early | Role::Late | Role::Lookup)
}

/// Compares by file, line and offset of the frames, then by all else that tells two findings apart.
fn by_place(a: &Finding, b: &Finding) -> Ordering {
    fn events(finding: &Finding) -> impl Iterator<Item = &Event> {
        finding.all_events()
    }
    fn places(finding: &Finding) -> impl Iterator<Item = (Option<&str>, Option<u32>, u64)> {
        events(finding)
            .flat_map(|event| &event.stack)
            .map(|frame| (frame.file.as_deref(), frame.line, frame.offset))
    }
    fn bytes(finding: &Finding) -> impl Iterator<Item = (&str, u64, u64)> {
        events(finding)
            .flat_map(|event| &event.place)
            .map(|place| (place.file.as_str(), place.offset, place.size))
    }
    places(a)
        .cmp(places(b))
        .then_with(|| bytes(a).cmp(bytes(b)))
        .then_with(|| a.message.cmp(&b.message))
        .then_with(|| b.count.cmp(&a.count))
}

/// A line of code in terms of its function: file and line, or the offset where they are unknown.
type Line<'a> = (Option<(&'a str, u32)>, u64);

fn line(frame: &Frame) -> Line<'_> {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => (Some((file, line)), 0),
        _ => (None, frame.offset),
    }
}

fn function(frame: &Frame) -> (&str, Option<&str>) {
    let module = frame.module.as_deref().map_or("", base_name);
    (module, frame.function.as_deref().map(plain_name))
}

fn root_causes(findings: &[Finding]) -> Vec<String> {
    let sites: Vec<Option<&Frame>> = findings
        .iter()
        .map(|finding| {
            let stack = &site::causing_event(finding)?.stack;
            Some(&stack[site::cause(stack)?])
        })
        .collect();
    let mut lines: BTreeMap<_, BTreeSet<Line>> = BTreeMap::new();
    for frame in sites.iter().flatten() {
        lines
            .entry(function(frame))
            .or_default()
            .insert(line(frame));
    }
    let ordinals: HashMap<_, u64> = lines
        .into_iter()
        .flat_map(|(function, lines)| lines.into_iter().map(move |line| (function, line)).zip(0..))
        .collect();
    let cause = |(site, finding): (&Option<&Frame>, &Finding)| {
        let mut hash = Hash::new("root-cause");
        match site {
            Some(frame) => {
                hash.frame(frame);
                hash.number(ordinals[&(function(frame), line(frame))]);
            }
            // Nothing is known about where it comes from; so nothing else comes from there.
            None => hash.text(&finding.fingerprint),
        }
        hash.finish()
    };
    sites.iter().zip(findings).map(cause).collect()
}

/// The function as the programmer knows it.
pub(crate) fn plain_name(function: &str) -> &str {
    const CLONES: [&str; 8] = [
        ".constprop.",
        ".isra.",
        ".part.",
        ".cold",
        ".llvm.",
        ".lto_priv.",
        ".localalias",
        " [clone ",
    ];
    CLONES
        .iter()
        .filter_map(|mark| function.find(mark))
        .filter(|&at| at > 0)
        .min()
        .map_or(function, |at| &function[..at])
}

/// A hash of fields, each with its length, so that no two lists of fields look the same.
struct Hash(blake3::Hasher);

impl Hash {
    /// The number is the version of what goes into the hash.
    fn new(what: &str) -> Hash {
        let mut hash = Hash(blake3::Hasher::new());
        hash.text("brownout-1");
        hash.text(what);
        hash
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn frame(&mut self, frame: &Frame) {
        let (module, function) = function(frame);
        self.text(module);
        match function {
            Some(function) => self.text(function),
            // Without a module the offset is an address of one run only.
            None if frame.module.is_none() => self.text("?"),
            None => self.text(&format!("+{:x}", frame.offset)),
        }
    }

    fn finish(self) -> String {
        let mut digits = self.0.finalize().to_hex().to_string();
        digits.truncate(DIGITS);
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::Severity;

    fn frame(function: Option<&str>, line: u32) -> Frame {
        Frame {
            function: function.map(Into::into),
            file: Some("/build/a/list.c".into()),
            line: Some(line),
            column: Some(5),
            module: Some("/build/a/prog".into()),
            offset: 0x1000 + u64::from(line),
            inlined: false,
        }
    }

    fn finding(rule: &str, stack: Vec<Frame>) -> Finding {
        Finding {
            rule: rule.into(),
            severity: Severity::Correctness,
            message: "m".into(),
            fingerprint: String::new(),
            root_cause: String::new(),
            count: 1,
            events: vec![Event {
                role: Role::Store,
                text: "stored here".into(),
                stack,
                ..Event::default()
            }],
            help: Vec::new(),
            notes: Vec::new(),
            crash_point: None,
            reproduction: None,
            origins: Vec::new(),
            timeline: None,
            sketch: None,
            replay: None,
        }
    }

    fn push(line: u32) -> Finding {
        finding(
            "missing-flush",
            vec![frame(Some("push"), line), frame(Some("main"), 90)],
        )
    }

    fn of(mut findings: Vec<Finding>) -> Vec<(String, String)> {
        assign(&mut findings);
        let pair = |f: Finding| (f.fingerprint, f.root_cause);
        findings.into_iter().map(pair).collect()
    }

    /// Fingerprints stand in files that users keep. If this test fails, either undo the change or
    /// raise the version in `Hash::new` and say in the changelog that suppressions must be made
    /// anew.
    #[test]
    fn fingerprints_do_not_change_between_versions() {
        let all = of(vec![push(10), push(20)]);
        assert_eq!(all[0].0, "f675bbc9e2990f3d");
        assert_eq!(all[1].0, "b262fded41e46853");
        assert_eq!(all[0].1, "b332f8acddbf2fd0");
    }

    #[test]
    fn a_rebuild_that_moves_everything_keeps_both() {
        let before = of(vec![push(10), push(20)]);
        let mut moved = vec![push(110), push(127)];
        for finding in &mut moved {
            finding.message = "other words".into();
            finding.count = 7;
            for frame in &mut finding.events[0].stack {
                frame.file = Some("/elsewhere/list.c".into());
                frame.module = Some("/elsewhere/prog".into());
                frame.offset += 0x777;
                frame.column = None;
                frame.inlined = true;
            }
        }
        let last = moved[0].events[0].stack.len();
        moved[0].events[0]
            .stack
            .insert(last, frame(Some("__libc_start_main"), 1));
        moved[0].events[0].stack[0].function = Some("push.constprop.0".into());
        assert_eq!(of(moved), before);
    }

    #[test]
    fn order_of_the_list_does_not_matter() {
        let mut ahead = of(vec![push(10), push(20), push(30)]);
        ahead.reverse();
        assert_eq!(of(vec![push(30), push(20), push(10)]), ahead);
    }

    #[test]
    fn what_differs_in_kind_differs() {
        let base = push(10);
        let other_rule = finding("missing-fence", base.events[0].stack.clone());
        let other_caller = finding(
            "missing-flush",
            vec![frame(Some("push"), 10), frame(Some("other"), 90)],
        );
        let mut other_module = push(10);
        other_module.events[0].stack[0].module = Some("libx.so".into());
        let mut other_role = push(10);
        other_role.events[0].role = Role::Flush;
        let mut two_events = push(10);
        two_events.events.push(Event::default());
        let all = [
            base,
            other_rule,
            other_caller,
            other_module,
            other_role,
            two_events,
        ];
        let prints: BTreeSet<String> = all
            .iter()
            .map(|f| of(vec![f.clone()])[0].0.clone())
            .collect();
        assert_eq!(prints.len(), all.len());
    }

    #[test]
    fn even_full_duplicates_get_different_fingerprints() {
        let all = of(vec![
            push(10),
            push(10),
            finding("x", vec![]),
            finding("x", vec![]),
        ]);
        let prints: BTreeSet<_> = all.iter().map(|pair| &pair.0).collect();
        assert_eq!(prints.len(), 4);
        assert_eq!(all[0].1, all[1].1);
        assert_ne!(all[2].1, all[3].1);
    }

    #[test]
    fn one_store_line_is_one_root_cause_whatever_the_rule_and_caller() {
        let by_other = finding(
            "overwritten-unpersisted",
            vec![frame(Some("push"), 10), frame(Some("other"), 91)],
        );
        let mut copied = push(10);
        copied.events[0].stack.insert(
            0,
            Frame {
                function: Some("memcpy".into()),
                module: Some("/lib/libc.so.6".into()),
                ..Frame::default()
            },
        );
        let mut flush_first = push(10);
        flush_first.events.insert(
            0,
            Event {
                role: Role::Flush,
                stack: vec![frame(Some("f"), 1)],
                ..Event::default()
            },
        );
        let all = of(vec![push(10), by_other, copied, flush_first, push(20)]);
        assert!(all[..4].iter().all(|pair| pair.1 == all[0].1));
        assert_ne!(all[4].1, all[0].1);
    }

    #[test]
    fn frames_without_functions_go_by_module_and_offset() {
        let at = |offset| {
            let mut bare = frame(None, 1);
            bare.offset = offset;
            finding("x", vec![bare])
        };
        assert_ne!(of(vec![at(1)])[0].0, of(vec![at(2)])[0].0);
        let lost = |offset| {
            finding(
                "x",
                vec![Frame {
                    offset,
                    ..Frame::default()
                }],
            )
        };
        assert_eq!(of(vec![lost(1)])[0].0, of(vec![lost(2)])[0].0);
    }
}

//! What is wrong with an execution, found once over a whole campaign.
//!
//! Looked at are: what check's rules say, death by a signal, and a run that does not end. Rules
//! find the same things in nearly every run, and to give a finding its words takes a hundred times
//! as long as a run. So what was found is first told apart by rule and code ([`Watch::site`]); only
//! what was not seen before gets its words, and a fingerprint, which decides whether it is really
//! new.
//!
//! A run that gives up or hangs has no place in the code at which that happens. Such runs are told
//! apart by how they end, by what was printed last (without numbers, which differ from image to
//! image), and by the last place that did something to persistent memory. So one known failure does
//! not hide others; and so that a program that prints what it finds does not give hundreds of
//! findings, only so many of one ending are kept ([`VARIANTS_MAX`], [`HANGS_MAX`]), whatever run
//! shows them. What other workers and earlier parts of the campaign have found counts as soon as it
//! is heard of; so workers may go beyond that by what they find at the same time.

use std::collections::BTreeMap;

use brownout_check::{Analysis, Options};
use brownout_findings::rules::BuiltIn;
use brownout_findings::{Event, Finding, Frame, Role, Severity};
use brownout_images::ImageId;
use brownout_symbols::{Options as SymbolOptions, Stacks};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::sanitizer::{self, Reported};
use crate::traces::Place;
use brownout_stage::{Ran, is_fault, signal_name};

/// So many findings of one exit code are kept, if they differ in what was printed and in what was
/// done last.
const VARIANTS_MAX: u32 = 24;
/// And so many hangs: each costs many times as long as another run.
const HANGS_MAX: u32 = 8;

/// In front of what a program has printed last.
const SAYS: &str = "it says: ";

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Not at all, in the time that it had.
    Hang,
    /// Whoever uses the tool has ended it.
    Stopped,
}

/// A run that has ended.
#[derive(Clone, Copy)]
pub struct Ended<'r> {
    /// What it did.
    pub ran: &'r Ran,
    /// How it ended.
    pub ending: Ending,
    /// What it printed on its standard error; on its standard output, if that is all that a failing
    /// recovery has said.
    pub printed: &'r [u8],
    /// Its image is what a crash has left.
    pub after_crash: bool,
    /// Of the run of a seed.
    pub of_seed: bool,
    /// What it did last to persistent memory.
    pub last: Option<Place>,
}

impl Ended<'_> {
    /// It has not come to its input after a crash.
    pub fn is_in_recovery(&self) -> bool {
        self.after_crash && !self.ran.watch.has_input
    }
}

/// A finding, and what shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Found {
    /// In words.
    pub finding: Finding,
    /// What shows it.
    pub case: Case,
    /// The seeds themselves have shown it: their runs, or what recovery makes of crashes of these.
    pub by_seed: bool,
    /// An exploration has shown it: it takes a crash of the case's run to see.
    pub by_exploration: bool,
    /// The user's detector that has shown it, a shell command.
    #[serde(default)]
    pub detector: Option<String>,
    /// What the crash has left that an exploration has tried, if it is kept.
    #[serde(default)]
    pub crash: Option<ImageId>,
    /// How many executions the campaign had made when it was found.
    pub execution: u64,
    /// How many milliseconds it had taken when it was written down.
    #[serde(default)]
    pub milliseconds: u64,
}

impl Found {
    /// Whoever runs its test case natively sees how it ends.
    pub fn ends_badly(&self) -> bool {
        let bad = [
            BuiltIn::Crash,
            BuiltIn::Hang,
            BuiltIn::RecoveryCrash,
            BuiltIn::RecoveryError,
            BuiltIn::RecoveryHang,
        ];
        let is_bad = bad.iter().any(|rule| self.finding.rule == *rule);
        is_bad && !self.by_exploration
    }

    /// The program does not end.
    pub fn is_hang(&self) -> bool {
        let rule = &self.finding.rule;
        *rule == BuiltIn::Hang || *rule == BuiltIn::RecoveryHang
    }
}

/// See the module's header.
pub struct Judge {
    check: Options,
    /// Knows the program from earlier runs; away while a run is looked at.
    stacks: Option<Stacks>,
    symbols: SymbolOptions,
    known: FxHashSet<u64>,
    /// How many findings have the same end ([`same_end`]).
    variants: FxHashMap<u64, u32>,
    found: BTreeMap<String, Found>,
    /// Fingerprints that are new since they were last taken.
    new: Vec<String>,
    /// The user's own test cases.
    pub seeds: FxHashSet<Case>,
}

fn hashed(value: impl std::hash::Hash) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What tells findings apart over a campaign: the rule, and the lines (or addresses) of what
/// happened. What is only slow has as many call stacks as there are ways to it; of these only its
/// place counts, and from where its module was called.
pub fn key(finding: &Finding) -> String {
    if let Some(key) = key_of_end(finding) {
        return format!("{key:016x}");
    }
    let is_wrong = finding.severity == Severity::Correctness;
    let events = match is_wrong {
        true => &finding.events[..],
        false => finding.events.get(..1).unwrap_or_default(),
    };
    let frames = events.iter().flat_map(|event| {
        let first = event.stack.first().map(|frame| &frame.module);
        let outside = event.stack.iter().position(|f| Some(&f.module) != first);
        let counts = move |at: usize| match is_wrong {
            true => at < 8,
            false => at == 0 || Some(at) == outside,
        };
        let frames = event.stack.iter().enumerate();
        let frames = frames.filter(move |(at, _)| counts(*at));
        frames.map(move |(_, frame)| {
            let place = match frame.line {
                Some(line) => (frame.file.clone(), u64::from(line)),
                None => (frame.module.clone(), frame.offset),
            };
            (event.role.name(), frame.function.clone(), place)
        })
    });
    let frames: Vec<_> = frames.collect();
    let hash = hashed((
        finding.rule.as_str(),
        &frames,
        frames.is_empty().then_some(&finding.message),
    ));
    format!("{hash:016x}")
}

/// It has no place at which it happens.
fn has_no_place(finding: &Finding) -> bool {
    let has_none = |event: &Event| event.role == Role::Symptom && event.stack.is_empty();
    finding.rule != BuiltIn::Detected && finding.events.first().is_some_and(has_none)
}

/// The same for what has no place at which it happens.
fn key_of_end(finding: &Finding) -> Option<u64> {
    if !has_no_place(finding) {
        return None;
    }
    let said = said(finding);
    let stack = finding.events.get(1).map_or(&[][..], |last| &last.stack);
    let first = stack.first().map(|frame| &frame.module);
    let outside = stack.iter().find(|frame| Some(&frame.module) != first);
    let place = |frame: &Frame| {
        let at = match frame.line {
            Some(line) => (frame.file.clone(), u64::from(line)),
            None => (frame.module.clone(), frame.offset),
        };
        (frame.function.clone(), at)
    };
    let places: Vec<_> = stack.iter().take(2).chain(outside).map(place).collect();
    Some(hashed((
        finding.rule.as_str(),
        &finding.message,
        plain(said.unwrap_or_default()),
        places,
    )))
}

/// What a run without a place of its end has in common with others that end like it.
fn hash_of_end(rule: &str, message: &str) -> u64 {
    hashed((rule, message))
}

/// The same of a finding, and how many of these are enough; nothing if it has a place, or is no
/// run's own.
fn same_end(found: &Found) -> Option<(u64, u32)> {
    let finding = &found.finding;
    if found.by_exploration || found.detector.is_some() || !has_no_place(finding) {
        return None;
    }
    let most = match found.is_hang() {
        true => HANGS_MAX,
        false => VARIANTS_MAX,
    };
    Some((hash_of_end(finding.rule.as_str(), &finding.message), most))
}

/// What is wrong with a run that ends in this way, and the words for it, if anything is.
fn wrong_end(ending: Ending, in_recovery: bool) -> Option<(BuiltIn, String)> {
    Some(match ending {
        Ending::Signal(signal) if !is_fault(signal) => return None,
        Ending::Signal(signal) if in_recovery => (
            BuiltIn::RecoveryCrash,
            format!(
                "after a crash the program is killed by {} before it reads its input",
                signal_name(signal)
            ),
        ),
        Ending::Signal(signal) => (
            BuiltIn::Crash,
            format!("the program is killed by {}", signal_name(signal)),
        ),
        Ending::Hang if in_recovery => (
            BuiltIn::RecoveryHang,
            "after a crash the program does not come to the point where it reads its input"
                .to_owned(),
        ),
        Ending::Hang => (BuiltIn::Hang, "the program does not end".to_owned()),
        Ending::Code(code) if in_recovery && code != 0 => (
            BuiltIn::RecoveryError,
            format!(
                "after a crash the program gives up with exit code {code} before it reads its input"
            ),
        ),
        Ending::Code(_) | Ending::Stopped => return None,
    })
}

/// What the program has printed last, if the finding has it.
fn said(finding: &Finding) -> Option<&str> {
    let mut notes = finding.notes.iter();
    notes.find_map(|note| note.strip_prefix(SAYS))
}

/// Where it happens: function, file and line.
fn place_of_symptom(finding: &Finding) -> Option<(Option<&str>, Option<&str>, Option<u32>)> {
    let symptom = finding
        .events
        .iter()
        .find(|event| event.role == Role::Symptom)?;
    let frame = symptom.stack.first()?;
    Some((frame.function.as_deref(), frame.file.as_deref(), frame.line))
}

/// A line without what differs from image to image: numbers, and words that have digits or
/// characters beyond ASCII in them.
fn plain(line: &str) -> String {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut plain = String::new();
    for piece in line.split_inclusive(|c: char| !in_word(c)) {
        let word = piece.trim_end_matches(|c: char| !in_word(c));
        let is_number = |word: &str| word.chars().any(|c| !c.is_ascii() || c.is_ascii_digit());
        if !is_number(word) {
            plain += word;
        } else if !plain.ends_with('#') {
            plain.push('#');
        }
        let between = piece[word.len()..].chars();
        plain.extend(between.filter(|c| c.is_ascii_graphic() || *c == ' '));
    }
    plain
}

/// The last line that is not empty.
fn last_line(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.map_or(String::new(), |line| line.chars().take(200).collect())
}

impl Judge {
    /// One that has seen nothing.
    pub fn new(check: Options, symbols: SymbolOptions) -> Judge {
        Judge {
            check,
            stacks: None,
            symbols,
            known: FxHashSet::default(),
            found: BTreeMap::new(),
            variants: FxHashMap::default(),
            new: Vec::new(),
            seeds: FxHashSet::default(),
        }
    }

    /// What is to look at the next run.
    pub fn analysis(&mut self) -> Analysis {
        let stacks = self.stacks.take();
        let stacks = stacks.unwrap_or_else(|| Stacks::new(self.symbols.clone()));
        Analysis::again(self.check, stacks)
    }

    /// A run that did not end in the same way was seen before, or there were enough of these.
    pub fn knows_hang(&self, ended: &Ended<'_>) -> bool {
        let Some((rule, message)) = wrong_end(Ending::Hang, ended.is_in_recovery()) else {
            return false;
        };
        let end = hash_of_end(rule.id(), &message);
        self.known.contains(&self.end(end, ended)) || self.is_enough(end, HANGS_MAX)
    }

    /// What tells a run without a place of its end apart from others that end like it.
    fn end(&self, end: u64, ended: &Ended<'_>) -> u64 {
        let watch = &ended.ran.watch;
        let last = ended.last;
        let place = last.map(|last| {
            let outside = watch.place_and_caller(last.pc, last.context);
            (outside, watch.place_and_caller(last.caller, last.context))
        });
        hashed((end, plain(&last_line(ended.printed)), place))
    }

    fn is_enough(&self, end: u64, most: u32) -> bool {
        self.variants.get(&end).is_some_and(|count| *count >= most)
    }

    /// All that was found.
    pub fn found(&self) -> impl Iterator<Item = (&String, &Found)> {
        self.found.iter()
    }

    /// Whether something was found since that was last asked for.
    pub fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    /// What was found since the last call, by its key.
    pub fn take_new(&mut self) -> Vec<(String, Found)> {
        let keys = std::mem::take(&mut self.new);
        keys.into_iter()
            .filter_map(|key| self.found.get(&key).cloned().map(|found| (key, found)))
            .collect()
    }

    /// Something that an earlier part of the campaign, or another worker, has found.
    pub fn adopt(&mut self, key: String, found: Found) {
        if !self.found.contains_key(&key) {
            self.add(key, found);
        }
    }

    /// What is not there yet.
    fn add(&mut self, key: String, found: Found) {
        if let Some((end, _)) = same_end(&found) {
            *self.variants.entry(end).or_default() += 1;
        }
        self.found.insert(key, found);
    }

    /// Keeps a finding, if it is new, and there are not enough of its kind. `of_seed`: the case's
    /// image is what a crash of a seed's run has left.
    pub fn keep(&mut self, finding: Finding, case: &Case, of_seed: bool) {
        let recovers = |rule: BuiltIn| finding.rule == rule;
        let in_recovery = [
            BuiltIn::RecoveryCrash,
            BuiltIn::RecoveryError,
            BuiltIn::RecoveryHang,
        ];
        let in_recovery = in_recovery.into_iter().any(recovers);
        let by_seed = in_recovery && (of_seed || self.is_known_of_seed(&finding));
        self.keep_by(Found {
            by_seed,
            ..self.of(finding, case)
        });
    }

    /// Whether crashes of a seed's run have recovery fail in the same way, as far as they were
    /// tried, in an exploration or otherwise.
    fn is_known_of_seed(&self, finding: &Finding) -> bool {
        let said = plain(said(finding).unwrap_or_default());
        let place = place_of_symptom(finding);
        let mut of_seeds = self.found.values().filter(|found| {
            found.by_seed && found.finding.rule == finding.rule && found.detector.is_none()
        });
        // A line that is but a number is in every message that has one.
        let has_words = said.chars().any(char::is_alphabetic);
        of_seeds.any(|known| match place {
            Some(_) => place_of_symptom(&known.finding) == place,
            None => has_words && plain(&known.finding.message).contains(&said),
        })
    }

    /// The same for what an exploration of the case has found; `crash` is what the crash has left.
    pub fn keep_explored(&mut self, mut finding: Finding, case: &Case, crash: Option<ImageId>) {
        // Its crash image lies in a folder that is gone when the exploration is. The campaign's own
        // command makes it again.
        if let Some(seen) = finding.reproduction.take().filter(|seen| seen.confirmed) {
            let status = seen.status;
            finding.notes.push(format!(
                "recovery was run natively on what the crash leaves, and ended the same way: {status}"
            ));
        }
        self.keep_by(Found {
            by_exploration: true,
            crash,
            ..self.of(finding, case)
        });
    }

    /// The same for what a detector of the user's has found, a shell command.
    pub fn keep_detected(&mut self, finding: Finding, case: &Case, detector: &str) {
        self.keep_by(Found {
            detector: Some(detector.to_owned()),
            ..self.of(finding, case)
        });
    }

    fn of(&self, finding: Finding, case: &Case) -> Found {
        Found {
            finding,
            case: case.clone(),
            by_seed: false,
            by_exploration: false,
            detector: None,
            crash: None,
            execution: 0,
            milliseconds: 0,
        }
    }

    fn keep_by(&mut self, mut found: Found) {
        let key = key(&found.finding);
        let is_enough = |(end, most)| self.is_enough(end, most);
        if self.found.contains_key(&key) || same_end(&found).is_some_and(is_enough) {
            return;
        }
        found.by_seed |= self.seeds.contains(&found.case);
        self.add(key.clone(), found);
        self.new.push(key);
    }

    /// Looks at a run that has ended, and keeps what is new.
    pub fn look(&mut self, case: &Case, ended: Ended<'_>, analysis: Analysis) {
        for finding in self.findings(&ended, analysis, true) {
            self.keep(finding, case, ended.of_seed);
        }
    }

    /// Everything that a run shows, by its keys; also what is known, and of what there is enough.
    /// What is new is kept: it counts as seen from now on.
    pub fn keys(&mut self, case: &Case, ended: Ended<'_>, analysis: Analysis) -> Vec<String> {
        let mut keys = Vec::new();
        for finding in self.findings(&ended, analysis, false) {
            keys.push(key(&finding));
            self.keep(finding, case, ended.of_seed);
        }
        keys
    }

    /// What a run shows; with `only_new`, nothing if all of it looks like what was seen before.
    fn findings(
        &mut self,
        ended: &Ended<'_>,
        mut analysis: Analysis,
        only_new: bool,
    ) -> Vec<Finding> {
        let watch = &ended.ran.watch;
        // What a program had not made persistent when it was ended from outside says nothing.
        let is_cut = matches!(ended.ending, Ending::Hang | Ending::Stopped);
        let mut is_new = !only_new;
        let sightings = match is_cut {
            true => Vec::new(),
            false => analysis.close(),
        };
        for sighting in sightings {
            let sites = sighting.sites.iter();
            // See `key`.
            let sites: Vec<u64> = match sighting.severity {
                Severity::Correctness => sites
                    .map(|(pc, context)| watch.site(*pc, *context))
                    .collect(),
                _ => sites
                    .take(1)
                    .map(|(pc, context)| watch.place_and_caller(*pc, *context))
                    .collect(),
            };
            is_new |= self.known.insert(hashed((sighting.rule.as_str(), sites)));
        }
        let mut findings = Vec::new();
        findings.extend(self.ending(ended, &mut analysis, only_new));
        if !is_new || is_cut {
            self.stacks = Some(analysis.into_stacks());
            return findings;
        }
        let (outcome, stacks) = analysis.finish_keeping();
        self.stacks = Some(stacks);
        findings.extend(outcome.findings);
        findings
    }

    /// What the way in which it ended says.
    fn ending(
        &mut self,
        ended: &Ended<'_>,
        analysis: &mut Analysis,
        only_new: bool,
    ) -> Option<Finding> {
        let (ending, printed) = (ended.ending, ended.printed);
        let watch = &ended.ran.watch;
        let in_recovery = ended.is_in_recovery();
        if let Some(reported) = sanitizer::read(printed, !matches!(ending, Ending::Code(0))) {
            return self.reported(reported, in_recovery, only_new);
        }
        let (rule, message) = wrong_end(ending, in_recovery)?;
        let end = hash_of_end(rule.id(), &message);
        let mut finding = Finding::new(rule, rule.rule().severity, message.clone());
        let mut symptom = Event::new(Role::Symptom, message);
        match (ending, watch.signal) {
            (Ending::Signal(_), Some((_, pc, context))) => {
                let site = watch.site(pc, context);
                if !self.known.insert(hashed((rule.id(), site))) && only_new {
                    return None;
                }
                symptom.stack = analysis.stack(watch.thread, pc, context);
                finding.events.push(symptom);
            }
            _ => {
                if !self.known.insert(self.end(end, ended)) && only_new {
                    return None;
                }
                finding.events.push(symptom);
                if let Some(last) = ended.last {
                    let text = "the last that it did to persistent memory before that";
                    let mut event = Event::new(Role::Event, text);
                    event.stack = analysis.stack(last.thread, last.pc, last.context);
                    finding.events.push(event);
                }
            }
        }
        let said = last_line(printed);
        if !said.is_empty() {
            finding.notes.push(format!("{SAYS}{said}"));
        }
        Some(finding)
    }
}

impl Judge {
    /// What a sanitizer in the program says.
    fn reported(
        &mut self,
        reported: Reported,
        in_recovery: bool,
        only_new: bool,
    ) -> Option<Finding> {
        let rule = match in_recovery {
            true => BuiltIn::RecoveryCrash,
            false => BuiltIn::Crash,
        };
        let Reported { message, stack } = reported;
        let mut event = Event::new(Role::Symptom, message.clone());
        event.stack = stack;
        let mut finding = Finding::new(rule, rule.rule().severity, message);
        finding.events.push(event);
        let is_new = self.known.insert(hashed((rule.id(), key(&finding))));
        (is_new || !only_new).then_some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_no_two_lines_apart() {
        let same = [
            ("entry 5 is bad", "entry 17 is bad"),
            ("at 0x7fff12: no header", "at 0x12: no header"),
            ("pool.3 (8 of 9)", "pool.4 (1 of 12)"),
            ("key '\u{fffd}\u{fffd}' is odd", "key '\u{fffd}' is odd"),
        ];
        for (one, other) in same {
            assert_eq!(plain(one), plain(other));
        }
        assert_ne!(plain("the head is bad"), plain("the tail is bad"));
        assert_eq!(plain("a_b: c-d"), "a_b: c-d");
        assert_eq!(plain(""), "");
    }

    #[test]
    fn ends_differ_by_code_words_and_place() {
        let finding = |message: &str, said: &str, line: u32| {
            let mut finding = Finding::new(BuiltIn::RecoveryError, Severity::Correctness, message);
            finding.events.push(Event::new(Role::Symptom, message));
            let mut last = Event::new(Role::Event, "last");
            last.stack.push(Frame {
                file: Some("map.c".into()),
                line: Some(line),
                ..Frame::default()
            });
            finding.events.push(last);
            finding.notes.push(format!("{SAYS}{said}"));
            finding
        };
        let one = finding("exit code 1", "bad head 5", 7);
        assert_eq!(key(&one), key(&finding("exit code 1", "bad head 6", 7)));
        for other in [
            finding("exit code 2", "bad head 5", 7),
            finding("exit code 1", "bad tail 5", 7),
            finding("exit code 1", "bad head 5", 8),
        ] {
            assert_ne!(key(&one), key(&other));
        }
    }

    fn judge() -> Judge {
        Judge::new(Options::default(), SymbolOptions::default())
    }

    fn case() -> Case {
        Case {
            image: format!("{:032x}", 1).parse().expect("an id"),
            input: b"x\n".to_vec(),
        }
    }

    /// What a run without a place of its end shows.
    fn of_end(ending: Ending, after_crash: bool, said: &str) -> Finding {
        let (rule, message) = wrong_end(ending, after_crash).expect("it is wrong");
        let mut finding = Finding::new(rule, rule.rule().severity, message.clone());
        finding.events.push(Event::new(Role::Symptom, message));
        finding.notes.push(format!("{SAYS}{said}"));
        finding
    }

    /// A word that no other number gives.
    fn word(number: u32) -> String {
        let letter = |place: u32| char::from(b'a' + (number / 26u32.pow(place) % 26) as u8);
        [letter(1), letter(0)].iter().collect()
    }

    #[test]
    fn there_is_enough_of_each_end() {
        let mut judge = judge();
        for number in 0..60 {
            let said = word(number);
            for ending in [Ending::Hang, Ending::Code(1), Ending::Code(2)] {
                judge.keep(of_end(ending, true, &said), &case(), false);
            }
            judge.keep(of_end(Ending::Hang, false, &said), &case(), false);
        }
        let count = |judge: &Judge, part: &str| {
            let messages = judge.found().map(|(_, found)| &found.finding.message);
            messages.filter(|message| message.contains(part)).count() as u32
        };
        assert_eq!(count(&judge, "exit code 1"), VARIANTS_MAX);
        assert_eq!(count(&judge, "exit code 2"), VARIANTS_MAX);
        assert_eq!(count(&judge, "does not come to"), HANGS_MAX);
        assert_eq!(count(&judge, "does not end"), HANGS_MAX);
        // What there is of it after a resume counts.
        let mut resumed = self::judge();
        for (key, found) in judge.take_new() {
            resumed.adopt(key.clone(), found.clone());
            resumed.adopt(key, found);
        }
        for number in 60..90 {
            let said = word(number);
            resumed.keep(of_end(Ending::Hang, false, &said), &case(), false);
            resumed.keep(of_end(Ending::Code(1), true, &said), &case(), false);
            resumed.keep(of_end(Ending::Code(3), true, &said), &case(), false);
        }
        assert_eq!(count(&resumed, "exit code 1"), VARIANTS_MAX);
        assert_eq!(count(&resumed, "exit code 3"), VARIANTS_MAX);
        assert_eq!(count(&resumed, "does not end"), HANGS_MAX);
    }

    #[test]
    fn what_only_a_number_says_is_not_known_of_a_seed() {
        let mut judge = judge();
        let mut of_seed = of_end(Ending::Code(1), true, "");
        of_seed.message = "recovery says: 17 keys are lost".into();
        judge.keep(of_seed, &case(), true);
        judge.take_new();
        for (said, is_known) in [("5", false), ("(3)", false), ("8 keys are lost", true)] {
            judge.keep(of_end(Ending::Code(1), true, said), &case(), false);
            let new = judge.take_new();
            let by_seed: Vec<bool> = new.iter().map(|(_, found)| found.by_seed).collect();
            assert_eq!(by_seed, [is_known], "{said}");
        }
    }
}

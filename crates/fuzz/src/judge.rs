//! What is wrong with an execution, found once over a whole campaign.
//!
//! Looked at are: what check's rules say, death by a signal, and a run that does not end. Rules find the same things in nearly every run, and to give a
//! finding its words takes a hundred times as long as a run. So what was found is first told apart by rule and code ([`Watch::site`]); only what
//! was not seen before gets its words, and a fingerprint, which decides whether it is really new.

use std::collections::BTreeMap;

use brownout_check::{Analysis, Options};
use brownout_findings::rules::BuiltIn;
use brownout_findings::{Event, Finding, Role, Severity};
use brownout_symbols::{Options as SymbolOptions, Stacks};
use brownout_trace::event::{ContextId, TargetAddr};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::sanitizer::{self, Reported};
use brownout_stage::{Ran, is_fault, signal_name};

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
    /// What it printed on its standard error.
    pub printed: &'r [u8],
    /// Its image is what a crash has left.
    pub after_crash: bool,
}

/// A finding, and what shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Found {
    /// In words.
    pub finding: Finding,
    /// What shows it.
    pub case: Case,
    /// The seeds themselves have shown it.
    pub by_seed: bool,
    /// An exploration has shown it: it takes a crash of the case's run to see.
    pub by_exploration: bool,
    /// The user's detector that has shown it, a shell command.
    #[serde(default)]
    pub detector: Option<String>,
    /// Which execution of the campaign has shown it.
    pub execution: u64,
}

/// See the module's header.
pub struct Judge {
    check: Options,
    /// Knows the program from earlier runs; away while a run is looked at.
    stacks: Option<Stacks>,
    symbols: SymbolOptions,
    known: FxHashSet<u64>,
    found: BTreeMap<String, Found>,
    /// Fingerprints that are new since they were last taken.
    new: Vec<String>,
    /// Executions that were looked at.
    pub executions: u64,
    /// Seeds are being run.
    pub is_seed: bool,
}

fn hashed(value: impl std::hash::Hash) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What tells findings apart over a campaign: the rule, and the lines (or addresses) of what happened. What is only slow has as many call stacks as there are ways to
/// it; of these only its place counts, and from where its module was called.
pub fn key(finding: &Finding) -> String {
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

impl Judge {
    /// One that has seen nothing.
    pub fn new(check: Options, symbols: SymbolOptions) -> Judge {
        Judge {
            check,
            stacks: None,
            symbols,
            known: FxHashSet::default(),
            found: BTreeMap::new(),
            new: Vec::new(),
            executions: 0,
            is_seed: false,
        }
    }

    /// What is to look at the next run.
    pub fn analysis(&mut self) -> Analysis {
        let stacks = self.stacks.take();
        let stacks = stacks.unwrap_or_else(|| Stacks::new(self.symbols.clone()));
        Analysis::again(self.check, stacks)
    }

    /// A run that did not end was seen before.
    pub fn knows_hang(&self) -> bool {
        let is_hang = |found: &Found| found.finding.rule == BuiltIn::Hang;
        self.found.values().any(is_hang)
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
        self.found.entry(key).or_insert(found);
    }

    /// Keeps a finding, if it is new. Of two cases that show the same, the smaller one on the shallower image is kept by whoever minimises.
    pub fn keep(&mut self, finding: Finding, case: &Case) {
        self.keep_by(finding, case, false, None);
    }

    /// The same for what an exploration of the case has found.
    pub fn keep_explored(&mut self, mut finding: Finding, case: &Case) {
        // Its crash image lies in a folder that is gone when the exploration is. The campaign's own command makes it again.
        if let Some(seen) = finding.reproduction.take().filter(|seen| seen.confirmed) {
            let status = seen.status;
            finding.notes.push(format!(
                "recovery was run natively on what the crash leaves, and ended the same way: {status}"
            ));
        }
        self.keep_by(finding, case, true, None);
    }

    /// The same for what a detector of the user's has found, a shell command.
    pub fn keep_detected(&mut self, finding: Finding, case: &Case, detector: &str) {
        self.keep_by(finding, case, false, Some(detector.to_owned()));
    }

    fn keep_by(
        &mut self,
        finding: Finding,
        case: &Case,
        by_exploration: bool,
        detector: Option<String>,
    ) {
        let key = key(&finding);
        if self.found.contains_key(&key) {
            return;
        }
        let found = Found {
            finding,
            case: case.clone(),
            by_seed: self.is_seed,
            by_exploration,
            detector,
            execution: self.executions,
        };
        self.found.insert(key.clone(), found);
        self.new.push(key);
    }

    /// Looks at a run that has ended, and keeps what is new.
    pub fn look(&mut self, case: &Case, ended: Ended<'_>, analysis: Analysis) {
        self.executions += 1;
        for finding in self.findings(&ended, analysis, true) {
            self.keep(finding, case);
        }
    }

    /// Everything that a run shows, by its keys; also what is known.
    pub fn keys(&mut self, ended: Ended<'_>, analysis: Analysis) -> Vec<String> {
        let findings = self.findings(&ended, analysis, false);
        findings.iter().map(key).collect()
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
        let Ended {
            ran,
            ending,
            printed,
            after_crash,
        } = *ended;
        let watch = &ran.watch;
        let in_recovery = after_crash && !watch.has_input;
        if let Some(reported) = sanitizer::read(printed, !matches!(ending, Ending::Code(0))) {
            return self.reported(reported, in_recovery, only_new);
        }
        let (rule, message) = match ending {
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
        };
        let (pc, context) = match (ending, watch.signal) {
            (Ending::Signal(_), Some((_, pc, context))) => (pc, context),
            _ => (TargetAddr(0), ContextId(0)),
        };
        let site = watch.site(pc, context);
        if !self.known.insert(hashed((rule.id(), site))) && only_new {
            return None;
        }
        let mut event = Event::new(Role::Symptom, message.clone());
        if pc != TargetAddr(0) {
            event.stack = analysis.stack(watch.thread, pc, context);
        }
        let mut finding = Finding::new(rule, rule.rule().severity, message);
        finding.events.push(event);
        let last = String::from_utf8_lossy(printed);
        if let Some(line) = last.lines().rev().find(|line| !line.trim().is_empty()) {
            let line: String = line.chars().take(200).collect();
            finding.notes.push(format!("it says: {line}"));
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

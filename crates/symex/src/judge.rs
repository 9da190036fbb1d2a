//! What is wrong with a path, found once over a whole search.
//!
//! Looked at are what check's rules say, and death by a signal. Rules find the same in nearly every
//! run, and to give a finding its words takes far longer than a run; so what was found is first
//! told apart by rule and code, and only what was not seen before gets its words.

use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use brownout_check::{Analysis, Options};
use brownout_findings::rules::BuiltIn;
use brownout_findings::{Event, Finding, Role, Severity};
use brownout_host::ExitStatus;
use brownout_stage::{Ran, is_fault, signal_name};
use brownout_symbols::{Options as SymbolOptions, Stacks};
use brownout_trace::event::{ContextId, TargetAddr};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use serde::{Deserialize, Serialize};

use crate::modules::OwnCode;
use crate::path::Path;
use crate::story;

/// All that it takes to see a finding again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// What the program reads.
    pub input: Vec<u8>,
    /// What tells the finding apart from others.
    key: u64,
    /// It takes a crash of the run to see it.
    #[serde(default)]
    pub by_exploration: bool,
}

impl Proof {
    /// Whether both are of one finding.
    pub fn is_same(&self, other: &Proof) -> bool {
        self.key == other.key
    }
}

/// A finding, and the input that shows it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The finding.
    pub finding: Finding,
    /// The input.
    pub proof: Proof,
    /// The first input shows it.
    pub by_first: bool,
    /// The last path that was kept on the way to it, by its number.
    pub behind: Option<usize>,
}

/// See the module's header.
pub struct Judge {
    check: Options,
    /// Custom rules, and their options.
    plugins: Vec<(PathBuf, String)>,
    /// What there is to say of them.
    pub notes: Vec<String>,
    /// Knows the program from earlier runs; away while a run is looked at.
    stacks: Option<Stacks>,
    known: FxHashSet<u64>,
    /// All that was found.
    pub found: Vec<(u64, Found)>,
    looked: u64,
    /// The paths of inputs that are to be explored, in words.
    stories: FxHashMap<Vec<u8>, String>,
}

/// A run that has ended, and what is known of it.
pub struct Ended<'r> {
    /// What the program has read.
    pub input: &'r [u8],
    /// What it did.
    pub ran: &'r Ran,
    /// It was ended from outside, and what it had not made persistent says nothing.
    pub is_cut: bool,
    /// It does not end: it was given time enough.
    pub is_hang: bool,
    /// What lies where it has faulted.
    pub near: Option<String>,
    /// What its input has decided.
    pub path: &'r Path,
    /// It will be explored.
    pub is_explored: bool,
}

fn hashed(value: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What is said of one run is said once of all.
fn note(notes: &mut Vec<String>, text: String) {
    if !notes.contains(&text) {
        notes.push(text);
    }
}

/// What tells findings apart: the rule, and the lines (or addresses) of what happened. Of what is
/// only slow, the innermost place.
fn key(finding: &Finding) -> u64 {
    let depth = match finding.severity {
        Severity::Correctness => 8,
        _ => 1,
    };
    let frames = finding.events.iter().flat_map(|event| {
        event
            .stack
            .iter()
            .take(depth)
            .map(|frame| match frame.line {
                Some(line) => (frame.file.clone(), u64::from(line)),
                None => (frame.module.clone(), frame.offset),
            })
    });
    let frames: Vec<_> = frames.collect();
    let message = frames.is_empty().then_some(&finding.message);
    hashed((finding.rule.as_str(), &frames, message))
}

impl Judge {
    /// One that has seen nothing.
    pub fn new(check: Options, plugins: Vec<(PathBuf, String)>) -> Judge {
        Judge {
            check,
            plugins,
            notes: Vec::new(),
            stacks: None,
            known: FxHashSet::default(),
            found: Vec::new(),
            looked: 0,
            stories: FxHashMap::default(),
        }
    }

    /// What is to look at the next run.
    pub fn analysis(&mut self) -> Analysis {
        let stacks = self.stacks.take();
        let stacks = stacks.unwrap_or_else(|| Stacks::new(SymbolOptions::default()));
        let mut analysis = Analysis::again(self.check, stacks);
        for (path, options) in &self.plugins {
            if let Err(error) = analysis.load_rule(path, options) {
                note(&mut self.notes, error.to_string());
            }
        }
        analysis
    }

    /// The run does not count.
    pub fn put_back(&mut self, analysis: Analysis) {
        self.stacks = Some(analysis.into_stacks());
    }

    /// A run that does not end was seen.
    pub fn knows_hang(&self) -> bool {
        self.known.contains(&hashed(BuiltIn::Hang.id()))
    }

    /// Whether that was found.
    pub fn has(&self, proof: &Proof) -> bool {
        self.found.iter().any(|(key, _)| *key == proof.key)
    }

    /// Whether an error was found.
    pub fn has_error(&self) -> bool {
        self.numbers().0 > 0
    }

    /// How many errors were found, and how many others.
    pub fn numbers(&self) -> (u64, u64) {
        let is_error = |found: &&(u64, Found)| found.1.finding.severity == Severity::Correctness;
        let errors = self.found.iter().filter(is_error).count();
        (errors as u64, (self.found.len() - errors) as u64)
    }

    /// Looks at a run that has ended.
    pub fn look(&mut self, ended: Ended<'_>, own: &OwnCode, mut analysis: Analysis) {
        let Ended {
            input,
            ran,
            is_cut,
            is_hang,
            near,
            path,
            is_explored,
        } = ended;
        let by_first = self.looked == 0;
        self.looked += 1;
        let mut findings = Vec::new();
        if let (ExitStatus::Signal(signal), false) = (ran.outcome.status, is_cut)
            && is_fault(signal)
        {
            let rule = BuiltIn::Crash;
            let message = format!("the program is killed by {}", signal_name(signal));
            let (pc, context) = match ran.watch.signal {
                Some((_, pc, context)) => (pc, context),
                None => (TargetAddr(0), ContextId(0)),
            };
            let site = ran.watch.site(pc, context);
            if self.known.insert(hashed((rule.id(), signal, site))) {
                let mut event = Event::new(Role::Symptom, message.clone());
                if pc != TargetAddr(0) {
                    event.stack = analysis.stack(ran.watch.thread, pc, context);
                }
                let mut finding = Finding::new(rule, rule.rule().severity, message);
                finding.events.push(event);
                finding.notes.extend(near);
                findings.push(finding);
            }
        }
        if is_hang && self.known.insert(hashed(BuiltIn::Hang.id())) {
            let rule = BuiltIn::Hang;
            let message = "the program does not end".to_owned();
            let mut finding = Finding::new(rule, rule.rule().severity, message.clone());
            finding.events.push(Event::new(Role::Symptom, message));
            findings.push(finding);
        }
        let mut is_new = false;
        if !is_cut {
            for sighting in analysis.close() {
                let sites = sighting.sites.iter().map(|(pc, context)| (pc.0, context.0));
                let count = match sighting.severity {
                    Severity::Correctness => usize::MAX,
                    _ => 1,
                };
                let sites: Vec<_> = sites.take(count).collect();
                is_new |= self.known.insert(hashed((sighting.rule.as_str(), sites)));
            }
            for complaint in analysis.complaints() {
                note(&mut self.notes, complaint.clone());
            }
        }
        let story = match is_new || is_explored || !findings.is_empty() {
            true => story::told(path, own, &mut analysis),
            false => None,
        };
        if let (Some(story), true) = (&story, is_explored) {
            self.stories.insert(input.to_vec(), story.clone());
        }
        match is_new {
            true => {
                let (outcome, stacks) = analysis.finish_keeping();
                self.stacks = Some(stacks);
                findings.extend(outcome.findings);
            }
            false => self.stacks = Some(analysis.into_stacks()),
        }
        for mut finding in findings {
            finding.notes.extend(story.clone());
            self.keep(finding, input, by_first, false);
        }
    }

    /// Keeps what an exploration of the run on an input has found.
    pub fn keep_explored(&mut self, mut finding: Finding, input: &[u8]) {
        // Its crash image lies in a folder that is gone when the exploration is. The token makes it
        // again.
        if let Some(seen) = finding.reproduction.take().filter(|seen| seen.confirmed) {
            let status = seen.status;
            finding.notes.push(format!(
                "recovery was run natively on what the crash leaves, and ended the same way: {status}"
            ));
        }
        finding.notes.extend(self.stories.get(input).cloned());
        self.keep(finding, input, false, true);
    }

    /// An input was explored, and will not be again.
    pub fn was_explored(&mut self, input: &[u8]) {
        self.stories.remove(input);
    }

    fn keep(&mut self, finding: Finding, input: &[u8], by_first: bool, by_exploration: bool) {
        {
            let key = key(&finding);
            match self.found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => known.finding.count += 1,
                None => self.found.push((
                    key,
                    Found {
                        finding,
                        proof: Proof {
                            input: input.to_vec(),
                            key,
                            by_exploration,
                        },
                        by_first,
                        behind: None,
                    },
                )),
            }
        }
    }
}

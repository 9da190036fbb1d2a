//! Settles what one run can only suspect: does it matter that this store was never made persistent?
//!
//! A finding of `check` is *confirmed* if exploration has found a crash state in which recovery
//! fails (natively, too) and in which a store of the same line of code is among those whose loss is
//! needed for that; *harmless* if all crash states were explored and there is none, because
//! recovery never reads what was stored, or does the same without it; else *unsettled*. So nothing
//! is called harmless if anything was left out ([`Coverage`](brownout_findings::Coverage)),
//! accepted or not, or if a failing crash state that has lost the store was not looked into. One
//! thing may be left out: further crashes, in recovery. That is named where something is called
//! harmless.

use std::collections::{BTreeMap, BTreeSet};

use brownout_findings::{BuiltIn, Coverage, Event, Finding, Frame, Limit, Role, Severity, blame};
use brownout_host::LaunchError;
use brownout_model::{Choices, Survivors};

use crate::finding::{self, Found, Resolvers};
use crate::minimise::Minimal;
use crate::options::Exploration;
use crate::recording::Did;
use crate::search::{Failure, Search};
use crate::view::{Image, Narrowed};

/// So many crash states are tried for one line.
const TRIES_MAX: usize = 400;

/// Rules whose findings exploration can settle.
const CONFIRMABLE: [BuiltIn; 3] = [
    BuiltIn::MissingFlush,
    BuiltIn::MissingFence,
    BuiltIn::OverwrittenUnpersisted,
];

/// The line of code whose stores a finding of `check` suspects, if exploration can settle it.
pub fn suspect(finding: &Finding) -> Option<String> {
    match finding
        .rule
        .built_in()
        .is_some_and(|rule| CONFIRMABLE.contains(&rule))
    {
        true => stored_at(finding).map(blame::line),
        false => None,
    }
}

/// Settles the findings of `check` that can be.
pub fn settle(findings: &mut Vec<Finding>, exploration: &Exploration) {
    let mut dismissed = BTreeSet::new();
    findings.retain_mut(|finding| {
        let Some(line) = suspect(finding) else {
            return true;
        };
        let is_it = |(stack, _): &&(Vec<Frame>, usize)| blame::line(stack) == line;
        let mut blamed = exploration.blamed.iter().filter(is_it).peekable();
        let is_blamed = blamed.peek().is_some();
        let witness = blamed
            .map(|(_, at)| &exploration.findings[*at].0)
            .find(|witness| witness.reproduction.as_ref().is_some_and(|r| r.confirmed));
        match witness {
            Some(witness) => confirm(finding, witness),
            None if is_blamed => finding.notes.push(
                "unsettled: recovery fails without this store, but that was not seen natively on the same image"
                    .into(),
            ),
            None if lacks_states(&exploration.coverage) => {
                let limits = left_out(exploration);
                let note = format!("unsettled: not all crash states were explored ({limits})");
                finding.notes.push(note);
            }
            None if exploration.unsettled.contains(&line) => finding.notes.push(
                "unsettled: recovery fails in crash states that lack this store, and not all of them were looked into".into(),
            ),
            None => {
                dismiss(finding, &left_out(exploration));
                // Once is enough.
                return dismissed.insert(line);
            }
        }
        true
    });
}

/// Whether a crash of the recorded run may have left something that was not tried. That somebody
/// can live with that, or that nobody asks for it, does not make it known.
fn lacks_states(coverage: &Coverage) -> bool {
    let mut limits = coverage.limitations.iter();
    limits.any(|limit| limit.kind != Limit::Depth)
}

/// What was not explored, in words.
fn left_out(exploration: &Exploration) -> String {
    let limits = exploration.coverage.limitations.iter();
    let limits: Vec<&str> = limits.map(|limit| limit.text.as_str()).collect();
    limits.join("; ")
}

/// For each suspected line that no finding blames yet: a crash state that fails if its store, and
/// what was stored to the same unit afterwards, is lost, and does not if the unit survives. The
/// smallest set of another finding may have left it out. Where no crash state fails there is
/// nothing to look for.
pub fn witnesses(
    search: &mut Search<'_>,
    suspects: &[String],
    found: &[Found],
) -> Result<Witnesses, LaunchError> {
    let mut witnesses = Witnesses::default();
    if search.ledger.all_is_well() {
        return Ok(witnesses);
    }
    let mut resolvers = Resolvers::default();
    let mut moments: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let recording = &search.layers[0].recording;
    for (step, moment) in recording.steps.iter().zip(1..) {
        if suspects.is_empty() || !matches!(step.did, Did::Store(..)) {
            continue;
        }
        let line = blame::line(&resolvers.stack(0, recording, step.site));
        moments.entry(line).or_default().insert(moment);
    }
    let unexplained = std::mem::take(&mut search.ledger.unexplained);
    for line in suspects {
        let is_blamed = |found: &Found| found.lost_sites.iter().any(|s| blame::line(s) == *line);
        let Some(moments) = moments.get(line) else {
            continue;
        };
        if found.iter().chain(&witnesses.found).any(is_blamed) {
            continue;
        }
        let is_lost = moments.iter().any(|moment| unexplained.contains(moment));
        match witness(search, &mut resolvers, moments)? {
            Witness::Found(found) => witnesses.found.push(*found),
            Witness::None if !is_lost => {}
            Witness::None | Witness::NotAllTried => {
                witnesses.unsettled.insert(line.clone());
            }
        }
    }
    Ok(witnesses)
}

/// What came of looking for crash states that blame the suspects.
#[derive(Default)]
pub struct Witnesses {
    pub found: Vec<Found>,
    /// Lines that may matter or not: not all that could tell was tried.
    pub unsettled: BTreeSet<String>,
}

enum Witness {
    Found(Box<Found>),
    None,
    NotAllTried,
}

fn witness(
    search: &mut Search<'_>,
    resolvers: &mut Resolvers,
    moments: &BTreeSet<u64>,
) -> Result<Witness, LaunchError> {
    let mut tries = 0;
    for point in 0..search.layers[0].recording.points.len() as u32 {
        let view = search.view(0, point);
        let files = search.layers[0].recording.points[point as usize]
            .files
            .clone();
        for unit in view.open().to_vec() {
            let Some(choices) = view.choices(unit) else {
                continue;
            };
            for without in before(choices, moments) {
                if tries == TRIES_MAX || search.ledger.stopped.is_some() {
                    return Ok(Witness::NotAllTried);
                }
                tries += 1;
                let mut image = Image::newest(&view, &Narrowed::new(), &files);
                image.survivors.insert(unit, without);
                let Some(failing) = judged(search, &image)? else {
                    continue;
                };
                let saved = Image::newest(&view, &Narrowed::new(), &files);
                if judged(search, &saved)?.is_some() {
                    continue;
                }
                let (outcome, symptom) = failing;
                let failure = Failure {
                    layer: 0,
                    point,
                    narrowed: Narrowed::new(),
                    symptom: symptom.clone(),
                };
                let minimal = Minimal {
                    image,
                    outcome,
                    symptom,
                    survivors: Vec::new(),
                };
                let mut found = finding::build(search, resolvers, &failure, minimal)?;
                finding::explain(search, resolvers, &mut found)?;
                return Ok(Witness::Found(Box::new(found)));
            }
        }
    }
    Ok(match search.ledger.stopped {
        Some(_) => Witness::NotAllTried,
        None => Witness::None,
    })
}

/// For each store of those moments in a unit: what survives if it is the first that is lost.
fn before(choices: &Choices, moments: &BTreeSet<u64>) -> Vec<Survivors> {
    let (mut ordered, mut unordered) = (0, 0);
    let mut survivors = Vec::new();
    for write in choices.writes() {
        let mut without = choices.newest();
        if write.unordered {
            without.unordered[unordered] = false;
            unordered += 1;
        } else {
            without.ordered = ordered;
            ordered += 1;
        }
        if !write.certain && moments.contains(&write.moment.0) {
            survivors.push(without);
        }
    }
    survivors
}

fn judged(
    search: &mut Search<'_>,
    image: &Image,
) -> Result<Option<(u32, crate::oracle::Symptom)>, LaunchError> {
    let Some(outcome) = search.evaluate(0, image)? else {
        return Ok(None);
    };
    let done = search.done(0, image.view.point);
    let symptom = search
        .settings
        .oracle
        .judge(&search.known.outcomes[outcome as usize], done);
    Ok(symptom.map(|symptom| (outcome, symptom)))
}

/// The stack of the store that a finding is about.
fn stored_at(finding: &Finding) -> Option<&[Frame]> {
    let is_store = |event: &&Event| event.role == Role::Store;
    let store = finding.events.iter().find(is_store);
    store.map(|event| event.stack.as_slice())
}

fn confirm(finding: &mut Finding, witness: &Finding) {
    finding
        .notes
        .insert(0, format!("confirmed: {}", witness.message));
    finding.crash_point.clone_from(&witness.crash_point);
    finding.reproduction.clone_from(&witness.reproduction);
    let shown = [Role::Load, Role::Symptom];
    let consequences = witness.events.iter().filter(|e| shown.contains(&e.role));
    finding.events.extend(consequences.cloned());
}

/// Recovery does not need what was stored, as far as was looked.
fn dismiss(finding: &mut Finding, left_out: &str) {
    let not_tried = match left_out.is_empty() {
        true => String::new(),
        false => format!(" that was tried ({left_out})"),
    };
    finding.notes.insert(
        0,
        format!(
            "harmless: {} was found by one run, but recovery does the same in every crash state without this store{not_tried}",
            finding.rule
        ),
    );
    finding.rule = BuiltIn::TransientData.into();
    finding.severity = Severity::Performance;
    finding.message = "what is stored here is never made persistent, and recovery does not need it: it could live in DRAM".into();
    finding.help =
        vec!["keep it in ordinary memory, or say brownout_exclude() if it must lie here".into()];
}

#[cfg(test)]
mod tests {
    use brownout_model::{
        Config, Event as ModelEvent, FlushKind, History, Key, Line, Op, Thread, Unit, Write,
    };

    use super::*;

    const AT: Key = Key(0x1000);

    fn choices(ops: Vec<Op<'static>>) -> Choices {
        let mut history = History::new(Config::default());
        for op in ops {
            history
                .apply(&ModelEvent::new(Thread(1), op))
                .expect("values are there");
        }
        history.choices(Unit(AT.0 / 64)).expect("it was stored to")
    }

    fn write(offset: u64, value: u8) -> Write<'static> {
        Write::new(Key(AT.0 + offset), vec![value; 8])
    }

    /// What nobody has to be told about may still hide the crash that shows what a store is for.
    #[test]
    fn only_what_was_explored_is_known() {
        let mut coverage = Coverage::default();
        assert!(!lacks_states(&coverage));
        coverage.spare(Limit::Depth, "2 recoveries were not cut short");
        assert!(!lacks_states(&coverage), "that is told apart");
        coverage.spare(Limit::Checksummed, "8 torn contents were not tried");
        assert!(coverage.open().is_empty() && lacks_states(&coverage));
    }

    /// Losing an ordinary store loses those after it in the same line; an unordered one goes alone.
    #[test]
    fn what_survives_if_a_store_is_the_first_to_be_lost() {
        let choices = choices(vec![
            Op::Store(write(0, 1)),
            Op::NtStore(write(8, 2)),
            Op::Store(write(16, 3)),
            Op::NtStore(write(24, 4)),
            Op::Store(write(32, 5)),
        ]);
        let kept = |moment: u64| -> Vec<u8> {
            let all = before(&choices, &BTreeSet::from([moment]));
            assert_eq!(all.len(), 1, "moment {moment}");
            let content = choices.content(&all[0]);
            (0..5).map(|word| content[word * 8]).collect()
        };
        assert_eq!(kept(1), [0, 2, 0, 4, 0]);
        assert_eq!(kept(2), [1, 0, 3, 4, 5]);
        assert_eq!(kept(3), [1, 2, 0, 4, 0]);
        assert_eq!(kept(4), [1, 2, 3, 0, 5]);
        assert_eq!(kept(5), [1, 2, 3, 4, 0]);
        assert_eq!(before(&choices, &BTreeSet::from([2, 5])).len(), 2);
        assert!(before(&choices, &BTreeSet::from([6])).is_empty());
    }

    /// What has certainly survived cannot be lost, even where an uncertain store comes before it.
    #[test]
    fn certain_stores_are_never_lost() {
        let line = Line::of(AT);
        let kind = FlushKind::Clflush;
        let choices = choices(vec![
            Op::NtStore(write(0, 1)),
            Op::Store(write(8, 2)),
            Op::Flush { kind, line },
            Op::Store(write(16, 3)),
        ]);
        let all = before(&choices, &BTreeSet::from([1, 2, 4]));
        let contents: Vec<[u8; 3]> = all
            .iter()
            .map(|survivors| choices.content(survivors))
            .map(|content| [content[0], content[8], content[16]])
            .collect();
        assert_eq!(contents, [[0, 2, 3], [1, 2, 0]]);
    }
}

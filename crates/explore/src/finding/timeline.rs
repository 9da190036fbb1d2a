//! What the run did to the lines in question, until the power failed.
//!
//! **Guarantee.** What became of each store is the model's answer for this very crash: lost is what
//! [`Lost`] has, durable is what no crash at this point could lose. Steps that are left out are
//! counted where they are missing.
//!
//! **Deviations.** At most [`LINES_MAX`] lines and [`STEPS_MAX`] steps; the lost stores that
//! findings tell come first, then what is nearest to the crash.

use std::collections::{BTreeMap, BTreeSet};

use brownout_findings::{Fate, Role, Timeline, TimelineStep, blame as whose};
use brownout_model::{ByteRange, Moment};
use brownout_trace::event::ThreadId;

use super::resolvers::Resolvers;
use super::stages::{LOST_SHOWN, Lost, Scene};
use crate::line::LineKey;
use crate::recording::{Did, Step};

/// How many lines are looked at.
const LINES_MAX: usize = 12;
/// How many steps are told.
const STEPS_MAX: usize = 48;

/// The steps on the lines of lost stores, and of those stores that are named besides.
pub fn timeline(
    scene: &Scene<'_>,
    lost: &Lost,
    besides: &[Moment],
    resolvers: &mut Resolvers,
) -> Option<Timeline> {
    let steps = &scene.recording.steps;
    let before = usize::try_from(scene.point.moment).unwrap_or(usize::MAX);
    let before = &steps[..before.min(steps.len())];
    let of = |moment: &Moment| before.get(usize::try_from(moment.0).ok()?.checked_sub(1)?);
    let named = besides.iter().filter_map(of).filter_map(stored);
    let ranges = lost.stores.iter().map(|(_, range)| *range).chain(named);
    let lines = lines_of(ranges);
    if lines.is_empty() {
        return None;
    }
    let touched = touching(before, &lines);
    let mut important: BTreeSet<usize> = BTreeSet::new();
    let told = lost.moments.iter().map(|(moment, _)| moment);
    for moment in told.take(LOST_SHOWN).chain(besides) {
        important.extend((moment.0 as usize).checked_sub(1));
    }
    let kept = chosen(&touched, &important);
    let fates = Fates::of(scene, lost, &lines);
    let mut out = Vec::new();
    let mut skipped = 0;
    for at in touched {
        if !kept.contains(&at) {
            skipped += 1;
            continue;
        }
        let step = &before[at];
        let (role, range) = match step.did {
            Did::Store(range, _) => (Role::Store, Some(range)),
            Did::Flush(range) => (Role::Flush, Some(range)),
            Did::Sync(range) => (Role::Sync, Some(range)),
            Did::Fence => (Role::Fence, None),
        };
        let stack = resolvers.stack(scene.layer, scene.recording, step.site);
        out.push(TimelineStep {
            role,
            thread: step.site.thread.0,
            index: step.site.event,
            place: range.map(|range| scene.place(step, range)),
            fate: match role {
                Role::Store => range.map(|range| fates.of_store(Moment(at as u64 + 1), range)),
                _ => None,
            },
            at: whose::place(&stack),
            skipped: std::mem::take(&mut skipped),
        });
    }
    Some(Timeline {
        steps: out,
        nothing_lost: None,
    })
}

fn stored(step: &Step) -> Option<ByteRange> {
    match step.did {
        Did::Store(range, _) => Some(range),
        _ => None,
    }
}

/// The first lines of these ranges.
fn lines_of(ranges: impl Iterator<Item = ByteRange>) -> BTreeSet<LineKey> {
    let mut lines = BTreeSet::new();
    for range in ranges {
        let (first, last) = (range.start().0, range.end().0.saturating_sub(1));
        for line in LineKey::of(first).0..=LineKey::of(last).0 {
            if lines.len() == LINES_MAX {
                return lines;
            }
            lines.insert(LineKey(line));
        }
    }
    lines
}

/// Positions of the steps that do something to a line: stores to it, write-backs of it, and the
/// fences that may complete these.
fn touching(steps: &[Step], lines: &BTreeSet<LineKey>) -> Vec<usize> {
    let touches = |range: ByteRange| {
        let (first, last) = (range.start().0, range.end().0.saturating_sub(1));
        lines
            .range(LineKey::of(first)..=LineKey::of(last.max(first)))
            .next()
            .is_some()
    };
    let mut pending: BTreeSet<ThreadId> = BTreeSet::new();
    let mut out = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let is_one = match step.did {
            Did::Store(range, _) => {
                let is_one = touches(range);
                if is_one {
                    // It may be non-temporal, and then needs a fence, too.
                    pending.insert(step.site.thread);
                }
                is_one
            }
            Did::Flush(range) => {
                let is_one = touches(range);
                if is_one {
                    pending.insert(step.site.thread);
                }
                is_one
            }
            Did::Sync(range) => touches(range),
            Did::Fence => pending.remove(&step.site.thread),
        };
        if is_one {
            out.push(at);
        }
    }
    out
}

/// Which of the steps are told.
fn chosen(touched: &[usize], important: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut kept: BTreeSet<usize> = touched
        .iter()
        .filter(|at| important.contains(at))
        .take(STEPS_MAX)
        .copied()
        .collect();
    for at in touched.iter().rev() {
        if kept.len() == STEPS_MAX {
            break;
        }
        kept.insert(*at);
    }
    kept
}

/// What became of stores.
struct Fates {
    /// Bytes that are gone, by the store.
    gone: BTreeMap<Moment, u64>,
    /// Stores that another crash at this point could have lost.
    open: BTreeSet<Moment>,
}

impl Fates {
    fn of(scene: &Scene<'_>, lost: &Lost, lines: &BTreeSet<LineKey>) -> Fates {
        let mut fates = Fates {
            gone: lost.gone.clone(),
            open: BTreeSet::new(),
        };
        for line in lines {
            let Some(choices) = scene.image.view.choices_of(*line) else {
                continue;
            };
            let worst = choices.open().oldest();
            let open = choices.lost(&worst).into_iter().map(|write| write.moment);
            fates.open.extend(open);
        }
        fates
    }

    fn of_store(&self, moment: Moment, range: ByteRange) -> Fate {
        match self.gone.get(&moment) {
            Some(gone) if *gone < range.len() => Fate::LostInPart,
            Some(_) => Fate::Lost,
            None if self.open.contains(&moment) => Fate::Survived,
            None => Fate::Durable,
        }
    }
}

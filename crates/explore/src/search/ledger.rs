//! The books of a search: how much was looked at, what failed, what was left out, and why it ended.

use std::collections::BTreeSet;
use std::time::Duration;

use brownout_findings::{Coverage, Limit};
use rustc_hash::FxHashMap;

use super::alike::Alike;
use super::item::Place;
use super::layers::{Crash, Layers};
use crate::execution::Execution;
use crate::oracle::{Symptom, signal_name};
use crate::view::Narrowed;

/// With so many failing crash states, a failure point is left.
const FAILING_AT_POINT: u64 = 32;
/// If so many fail in all, earlier.
const FAILING_MANY: u64 = 300;
const FAILING_LATER: u64 = 3;
/// A second failure of the same kind may be of another cause; a hundredth tells nothing new.
const OF_ONE_KIND: u64 = 2;

/// Something wrong, in one crash state.
#[derive(Clone)]
pub struct Failure {
    pub layer: usize,
    pub point: u32,
    pub narrowed: Narrowed,
    pub symptom: Symptom,
}

/// Numbers of a search.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Failure points of the recorded run.
    pub failure_points: u64,
    /// Failure points whose states are all settled, of all runs.
    pub points_done: u64,
    /// Uncertain lines, added up over all failure points.
    pub uncertain_lines: u64,
    /// Recoveries that were run.
    pub executions: u64,
    /// Crash states whose outcome was known without running it.
    pub saved: u64,
    /// Failure points of recoveries.
    pub nested_points: u64,
    /// Recoveries that read in another order when they were run again, and ended alike.
    pub unsteady: u64,
    /// Torn contents of bulks that were not followed.
    pub sampled: u64,
    /// Torn contents that were not followed because a checksum seems to give them away.
    pub checksummed: u64,
    /// Crash states of each failure point, as logarithms to the base 2.
    pub eager_log2: Vec<f64>,
    /// Events of all recoveries.
    pub recovery_events: u64,
    /// Time that they took, one after the other.
    pub recovery_time: Duration,
    /// Known outcomes that were verified by running them.
    pub self_tested: u64,
    /// Recoveries that were cut short.
    pub nested_runs: u64,
    /// Recoveries that could have been, and were not.
    pub nested_skipped: u64,
    /// Parts of failure points that were left because enough of their crash states fail.
    pub abandoned: u64,
    /// Distinct paths: recoveries that read or saw something different.
    pub paths: u64,
    /// Executions of an earlier exploration that was interrupted.
    pub resumed: u64,
}

/// Why the search ended before all was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    Time,
    Asked,
    /// A recovery was lost by a bug of ours.
    Bug,
    /// As many recoveries were run as somebody wants.
    Enough,
}

/// What was still to be done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOver {
    /// Failure points.
    Points,
    /// So many recoveries were still to be cut short in turn.
    Recoveries(usize),
    /// Outcomes were still to be compared with those of other runs.
    SelfTest,
}

/// Failures that are surely of one kind: those beyond the first are only counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    layer: bool,
    symptom: Symptom,
    crash_pc: u64,
    crash_context: u32,
    lost: Vec<u64>,
}

/// See the module's header.
#[derive(Default)]
pub struct Ledger {
    pub statistics: Statistics,
    /// Those that are worth being looked into: a few of each kind.
    pub failures: Vec<Failure>,
    kinds: FxHashMap<Kind, u64>,
    /// Crash states that fail, in all and by failure point.
    failing: u64,
    failing_at: FxHashMap<Place, u64>,
    /// Distinct outcomes of each failure point: run, point, number of the outcome. Kept if the
    /// settings say so.
    pub outcomes: BTreeSet<(usize, u32, u32)>,
    /// Crash states that were settled, by failure point of the recorded run. Kept if the settings
    /// say so.
    pub crashed: FxHashMap<u32, u64>,
    /// Crash states after which recovery ends well, to be cut short in turn. Kept if the settings
    /// say so.
    pub survived: Alike,
    /// Crashes whose recoveries did something different, and the numbers of the outcomes; as many
    /// as the settings say.
    pub distinct: Vec<(Crash, u32)>,
    /// Stores of the recorded run (their moments) that are lost in failing crash states into which
    /// nobody looks. Kept if the settings say so.
    pub unexplained: BTreeSet<u64>,
    pub notes: BTreeSet<String>,
    /// What was not explored, as far as it is known while the search goes on.
    pub coverage: Coverage,
    /// Why the search has ended early.
    pub stopped: Option<Halt>,
    /// What went wrong with us: nothing more is tried then, and what was found is reported.
    pub bug: Option<String>,
    /// What was not done because the search was stopped.
    pub left_over: Option<LeftOver>,
}

impl Ledger {
    /// A recovery was run.
    pub fn account(&mut self, execution: &Execution, turns: bool) {
        self.statistics.recovery_events += execution.events;
        self.statistics.recovery_time += execution.wall;
        if let Some(signal) = execution.helper_killed
            && execution.outcome.status.killed_by().is_none()
        {
            self.notes.insert(format!(
                "a process that recovery had started was killed by {}, and recovery went on",
                signal_name(signal)
            ));
        }
        if execution.threads > 1 {
            let order = match turns {
                true => "in one order of many, the same each time",
                false => "whose order is not controlled",
            };
            self.coverage.spare(
                Limit::Interleaving,
                format!("recovery accesses persistent memory in several threads, {order}"),
            );
        }
    }

    /// A recovery did something different. Those that come to an end of their own take the place of
    /// those that do not.
    pub fn distinct(&mut self, crash: &Crash, outcome: u32, most: usize) {
        if self.distinct.len() < most {
            self.distinct.push((crash.clone(), outcome));
            return;
        }
        if most == 0 || self.distinct.iter().any(|(_, other)| *other == outcome) {
            return;
        }
        let mut seen = BTreeSet::new();
        let again = |(_, other): &(Crash, u32)| !seen.insert(*other);
        if let Some(at) = self.distinct.iter().position(again) {
            self.distinct.remove(at);
            self.distinct.push((crash.clone(), outcome));
        }
    }

    /// A crash state fails. Gives the failure back if there are enough of its kind already.
    pub fn failed(&mut self, layers: &Layers, failure: Failure) -> Option<Failure> {
        self.failing += 1;
        let place = (failure.layer, failure.point);
        *self.failing_at.entry(place).or_default() += 1;
        let count = self.kinds.entry(kind_of(layers, &failure)).or_default();
        *count += 1;
        if *count > OF_ONE_KIND {
            return Some(failure);
        }
        self.failures.push(failure);
        None
    }

    /// Nobody will look into this one: what it has lost is kept in mind.
    pub fn pass_over(&mut self, layers: &Layers, failure: &Failure) {
        if failure.layer > 0 {
            return;
        }
        let view = layers.view(failure.layer, failure.point);
        for (unit, cuts) in &failure.narrowed {
            let (Some(choices), Some(cut)) = (view.choices(*unit), cuts.iter().max()) else {
                continue;
            };
            let lost = choices.lost(&cut.newest());
            self.unexplained
                .extend(lost.iter().map(|write| write.moment.0));
        }
    }

    /// Whether no crash state that was tried fails.
    pub fn all_is_well(&self) -> bool {
        self.failing_at.is_empty()
    }

    /// Whether enough crash states of a failure point fail: losses combine, and their combinations
    /// tell nothing new.
    pub fn is_hopeless(&self, place: Place) -> bool {
        let enough = match self.failing {
            0..FAILING_MANY => FAILING_AT_POINT,
            _ => FAILING_LATER,
        };
        self.failing_at.get(&place).is_some_and(|n| *n >= enough)
    }
}

fn kind_of(layers: &Layers, failure: &Failure) -> Kind {
    let recording = &layers[failure.layer].recording;
    let site = recording.points[failure.point as usize].site;
    let view = layers.view(failure.layer, failure.point);
    let mut lost: Vec<u64> = failure
        .narrowed
        .iter()
        .filter_map(|(unit, cuts)| {
            let choices = view.choices(*unit)?;
            let survivors = cuts.iter().max()?.newest();
            let lost = choices.lost(&survivors);
            let first = lost.first()?;
            Some(recording.steps.get(first.moment.0 as usize - 1)?.site.pc.0)
        })
        .collect();
    lost.sort_unstable();
    lost.dedup();
    Kind {
        layer: failure.layer > 0,
        symptom: failure.symptom.kind(),
        crash_pc: site.map_or(0, |s| s.pc.0),
        crash_context: site.map_or(0, |s| s.context.0),
        lost,
    }
}

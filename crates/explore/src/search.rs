//! The search: every distinct recovery of every failure point, each run once.
//!
//! ```text
//!  failure point ─▶ item (what is left of its crash states) ─▶ walk along the trie
//!                      ▲                                        │ known outcome ─▶ judge
//!                      │ one item for each content that         │ under way     ─▶ wait for it
//!                      └──── an uncertain read may see ◀────────┤
//!                                                               └ unknown ─▶ run one image of what is left ─▶ trie
//! ```
//! Guarantee: when the queue is empty, every crash state of every failure point has an outcome that an execution has shown,
//! but for reads that were sampled (see [`Sampling`]), which are counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brownout_findings::{Coverage, Limit};
use brownout_host::LaunchError;
use brownout_model::{Cut, LineBytes, Unit};
use brownout_trace::event::FileId;
use rustc_hash::FxHashMap;

use crate::execution::{Acknowledged, Execution, Setting};
use crate::executor::{Answer, Executor, Request, Want};
use crate::journal::{Entry, Journal};
use crate::oracle::{Oracle, Span, Symptom, signal_name};
use crate::outcome::{Outcome, Status};
use crate::recording::{RecordOptions, Recording};
use crate::trie::{NodeId, Reached, Read, Trie};
use crate::view::{FileState, Files, Image, Narrowed, Seen, View};

mod item;
mod sampler;

use item::{Bulk, BulkClass, Item, Place};
use sampler::Sampler;
pub use sampler::Sampling;

/// An execution that does not fit those before it is tried again so often.
const RETRIES: u32 = 2;

/// With so many failing crash states, a failure point is left.
const FAILING_AT_POINT: u64 = 32;
/// If so many fail in all, earlier.
const FAILING_MANY: u64 = 300;
const FAILING_LATER: u64 = 3;

/// A run: the recorded one, or a recovery that is itself cut short.
pub struct Layer {
    pub recording: Recording,
    /// The crash that this recovery followed.
    pub parent: Option<Crash>,
}

/// A crash: where, and what it left.
#[derive(Clone)]
pub struct Crash {
    pub layer: usize,
    pub point: u32,
    pub image: Image,
}

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
    /// Torn contents that were not followed because a checksum gives them away.
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

/// What is told while it runs.
pub trait Progress: Send {
    /// Called often.
    fn progress(&mut self, statistics: &Statistics, failures: usize, left: Option<Duration>);
}

/// Nobody listens.
impl Progress for () {
    fn progress(&mut self, _: &Statistics, _: usize, _: Option<Duration>) {}
}

/// Why the search ended before all was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    Time,
    Asked,
    /// A recovery was lost by a bug of ours.
    Bug,
}

/// What was still to be done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOver {
    /// Failure points.
    Points,
    /// So many recoveries were still to be cut short in turn.
    Recoveries(usize),
}

/// Tells something about a failure point of the recorded run.
type Tells<T> = Box<dyn Fn(&Recording, u32) -> T + Send>;

type TrieKey = (Arc<Files>, Acknowledged);

/// See the module's header.
pub struct Search<'p> {
    pub layers: Vec<Layer>,
    pub oracle: Oracle,
    pub setting: Arc<Setting>,
    executor: Box<dyn Executor + 'p>,
    pub outcomes: Vec<Outcome>,
    outcome_ids: FxHashMap<Outcome, u32>,
    tries: Vec<Trie>,
    trie_ids: BTreeMap<TrieKey, usize>,
    queue: Vec<Item>,
    running: FxHashMap<u64, (Item, usize, NodeId, Image)>,
    waiting: FxHashMap<(usize, NodeId), Vec<Item>>,
    /// Items of a failure point that are not settled yet.
    left: FxHashMap<(usize, u32), usize>,
    pub sampler: Sampler,
    pub failures: Vec<Failure>,
    failure_keys: FxHashMap<FailureKey, u64>,
    /// Crash states that fail, in all and by failure point.
    failing: u64,
    failing_at: FxHashMap<Place, u64>,
    pub statistics: Statistics,
    pub notes: BTreeSet<String>,
    /// What was not explored, as far as it is known while the search goes on.
    pub coverage: Coverage,
    pub deadline: Option<Instant>,
    pub stopped: Option<Halt>,
    /// What went wrong with us: nothing more is tried then, and what was found is reported.
    pub bug: Option<String>,
    /// What was not done because the search was stopped.
    pub left_over: Option<LeftOver>,
    /// Distinct outcomes of each failure point, if somebody wants them.
    pub outcome_log: Option<BTreeSet<(usize, u32, u32)>>,
    /// Which input lines or outputs were acknowledged, for a checker.
    pub acknowledgements: Tells<Acknowledged>,
    /// How many whole operations may be there after a crash at a failure point of the recorded run.
    pub operations: Tells<Span>,
    /// Images of executions, to be cut short in turn.
    pub executed: Vec<Crash>,
    pub keep_executed: bool,
    /// Stores of the recorded run (their moments) that are lost in failing crash states into which nobody looks, if somebody wants
    /// them.
    pub unexplained: BTreeSet<u64>,
    pub keep_unexplained: bool,
    /// Where executions are written down.
    pub journal: Option<Journal>,
    progress: &'p mut dyn Progress,
    told: Instant,
    rng: u64,
    pub self_test: u64,
    self_test_queue: VecDeque<(Item, u32)>,
}

/// Failures that are surely of one kind: those beyond the first are only counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FailureKey {
    layer: bool,
    symptom: Symptom,
    crash_pc: u64,
    crash_context: u32,
    lost: Vec<u64>,
}

impl<'p> Search<'p> {
    pub fn new(
        recording: Recording,
        setting: Arc<Setting>,
        executor: Box<dyn Executor + 'p>,
        progress: &'p mut dyn Progress,
    ) -> Self {
        Search {
            layers: vec![Layer {
                recording,
                parent: None,
            }],
            oracle: Oracle {
                good_exit: 0,
                references: None,
                only_durability: false,
                ordered: false,
            },
            setting,
            executor,
            outcomes: Vec::new(),
            outcome_ids: FxHashMap::default(),
            tries: Vec::new(),
            trie_ids: BTreeMap::new(),
            queue: Vec::new(),
            running: FxHashMap::default(),
            waiting: FxHashMap::default(),
            left: FxHashMap::default(),
            sampler: Sampler::default(),
            failures: Vec::new(),
            failure_keys: FxHashMap::default(),
            failing: 0,
            failing_at: FxHashMap::default(),
            statistics: Statistics::default(),
            notes: BTreeSet::new(),
            coverage: Coverage::default(),
            deadline: None,
            stopped: None,
            bug: None,
            left_over: None,
            outcome_log: None,
            acknowledgements: Box::new(|_, _| Acknowledged::default()),
            operations: Box::new(|_, _| Span::default()),
            executed: Vec::new(),
            keep_executed: false,
            unexplained: BTreeSet::new(),
            keep_unexplained: false,
            journal: None,
            progress,
            told: Instant::now(),
            rng: 0x9e37_79b9_7f4a_7c15,
            self_test: 0,
            self_test_queue: VecDeque::new(),
        }
    }

    /// The view of a failure point.
    pub fn view(&self, layer: usize, point: u32) -> View {
        View {
            timeline: self.layers[layer].recording.timeline.clone(),
            point,
        }
    }

    fn files(&self, layer: usize, point: u32) -> Arc<Files> {
        self.layers[layer].recording.points[point as usize]
            .files
            .clone()
    }

    /// The failure point of the recorded run that a crash goes back to.
    fn origin(&self, mut layer: usize, mut point: u32) -> u32 {
        while let Some(parent) = &self.layers[layer].parent {
            (layer, point) = (parent.layer, parent.point);
        }
        point
    }

    /// What a checker is told at a failure point.
    pub fn acknowledged_at(&self, layer: usize, point: u32) -> Acknowledged {
        if self.setting.checker.is_none() {
            return Acknowledged::default();
        }
        let origin = self.origin(layer, point);
        (self.acknowledgements)(&self.layers[0].recording, origin)
    }

    /// Whole operations that may be there after a crash.
    pub fn done(&self, layer: usize, point: u32) -> Span {
        (self.operations)(&self.layers[0].recording, self.origin(layer, point))
    }

    fn trie(&mut self, layer: usize, point: u32) -> usize {
        self.trie_of((self.files(layer, point), self.acknowledged_at(layer, point)))
    }

    fn trie_of(&mut self, key: TrieKey) -> usize {
        let next = self.tries.len();
        let id = *self.trie_ids.entry(key).or_insert(next);
        if id == next {
            self.tries.push(Trie::default());
        }
        id
    }

    fn intern(&mut self, outcome: &Outcome) -> u32 {
        if let Some(id) = self.outcome_ids.get(outcome) {
            return *id;
        }
        let id = self.outcomes.len() as u32;
        self.outcomes.push(outcome.clone());
        self.outcome_ids.insert(outcome.clone(), id);
        id
    }

    /// Explores all failure points of a layer. Stops early if time is up.
    pub fn explore(&mut self, layer: usize) -> Result<(), LaunchError> {
        let points = self.layers[layer].recording.points.len() as u32;
        if layer == 0 {
            self.statistics.failure_points += u64::from(points);
        } else {
            self.statistics.nested_points += u64::from(points);
        }
        let mut next = 0;
        loop {
            self.tell();
            let is_idle = self.queue.is_empty() && self.executor.in_flight() == 0;
            if is_idle && self.sampler.waiting() == 0 && next == points {
                break;
            }
            if self.is_over() {
                self.left_over = Some(LeftOver::Points);
                break;
            }
            if self.queue.is_empty()
                && let Some(waiting) = self
                    .sampler
                    .ready_to_tear(&self.left, self.executor.in_flight() == 0)
            {
                self.tear(waiting);
                continue;
            }
            if let Some(item) = self.queue.pop() {
                // Enough is under way: what comes back may make this one unnecessary.
                if self.executor.in_flight() >= 2 * self.executor.size() {
                    self.queue.push(item);
                    self.receive()?;
                    continue;
                }
                self.follow(item);
                continue;
            }
            // Torn contents of a few points wait at a time, not those of all.
            let has_room = self.sampler.waiting() <= 2 * self.executor.size();
            if next < points && has_room && self.executor.in_flight() < 2 * self.executor.size() {
                self.begin(layer, next);
                next += 1;
                continue;
            }
            self.receive()?;
        }
        if self.left_over.is_some() {
            self.queue.clear();
            self.sampler.clear();
            while self.executor.in_flight() > 0 {
                if self.executor.wait(Duration::from_millis(100)).is_none()
                    && self.executor.is_broken()
                {
                    break;
                }
            }
            self.running.clear();
            self.waiting.clear();
        }
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        if self.setting.stop.load(Ordering::Relaxed) {
            self.stopped.get_or_insert(Halt::Asked);
        } else if self.deadline.is_some_and(|at| Instant::now() >= at) {
            self.stopped.get_or_insert(Halt::Time);
            self.setting.stop.store(true, Ordering::Relaxed);
        }
        self.stopped.is_some()
    }

    /// How long the search may go on; `None` if nobody minds, nothing if somebody wants it to end.
    pub fn left(&self) -> Option<Duration> {
        if self.setting.stop.load(Ordering::Relaxed) {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        self.deadline.map(|at| at.saturating_duration_since(now))
    }

    fn tell(&mut self) {
        if self.told.elapsed() >= Duration::from_millis(100) {
            self.told = Instant::now();
            let left = self.left();
            self.progress
                .progress(&self.statistics, self.failures.len(), left);
        }
    }

    fn begin(&mut self, layer: usize, point: u32) {
        let view = self.view(layer, point);
        let lines = view.open().len() as u64;
        self.statistics.uncertain_lines += lines;
        if layer == 0 {
            self.statistics.eager_log2.push(view.states_log2());
        }
        self.left.insert((layer, point), 1);
        self.queue.push(Item {
            layer,
            point,
            narrowed: Narrowed::new(),
            bulks: BTreeMap::new(),
            retries: 0,
            ended: BTreeSet::new(),
            payer: None,
            torn_at: None,
        });
    }

    /// Walks along the trie with what is left of a failure point's states; other contents become items of their own.
    fn follow(&mut self, mut item: Item) {
        if self.is_hopeless(&item) {
            self.statistics.abandoned += 1;
            self.leave((item.layer, item.point));
            return;
        }
        let trie_id = self.trie(item.layer, item.point);
        let view = self.view(item.layer, item.point);
        let trie = std::mem::take(&mut self.tries[trie_id]);
        let mut others: Vec<Item> = Vec::new();
        let reached = trie.walk(
            |read| match view.read(read.line, read.mask, &item.narrowed) {
                Seen::Certain(bytes) => bytes,
                Seen::Open(unit, options) => {
                    self.choose(&view, &mut item, read, unit, options, None, &mut others)
                }
            },
        );
        self.tries[trie_id] = trie;
        *self.left.entry((item.layer, item.point)).or_default() += others.len();
        self.queue.append(&mut others);
        match reached {
            Reached::Outcome(outcome) => {
                self.statistics.saved += 1;
                self.settled(item, outcome, true);
            }
            Reached::Pending(node) => self.waiting.entry((trie_id, node)).or_default().push(item),
            Reached::Unknown => self.run(item, trie_id, &view),
        }
    }

    /// Decides what an uncertain read sees (`seen`, if that is known); what else it may see becomes items.
    #[expect(
        clippy::too_many_arguments,
        reason = "a read, where it is made, and what it may see"
    )]
    fn choose(
        &mut self,
        view: &View,
        item: &mut Item,
        read: &Read,
        unit: Unit,
        options: Vec<(LineBytes, Vec<Cut>)>,
        seen: Option<&LineBytes>,
        others: &mut Vec<Item>,
    ) -> LineBytes {
        let newest = position_of(&options, |cuts| cuts.iter().max().cloned(), true);
        let oldest = position_of(&options, |cuts| cuts.iter().min().cloned(), false);
        let steps = &self.layers[item.layer].recording.steps;
        let bulk = self.sampler.bulk_of(steps, view, item, read, unit);
        let next = bulk.map(|bulk| {
            let after = |i| bulk.after(i == newest, i == oldest);
            (0..options.len()).map(after).collect::<Vec<Bulk>>()
        });
        let torn = |i: usize| next.as_ref().map_or(0, |next| next[i].torn());
        // The newest is followed first: it is what a run without a crash has seen.
        let chosen =
            (0..options.len()).min_by_key(|i| (torn(*i), *i != newest, std::cmp::Reverse(*i)));
        let is_seen = |(bytes, _): &(LineBytes, _)| Some(bytes) == seen;
        let chosen = options.iter().position(is_seen).or(chosen);
        let chosen = chosen.unwrap_or(newest);
        for i in (0..options.len()).rev().filter(|i| *i != chosen) {
            let mut other = item.clone();
            other.narrowed.insert(unit, options[i].1.clone());
            match &next {
                Some(next) if torn(i) > 0 => {
                    other.bulks.insert(next[i].first, next[i]);
                    self.defer(other, next[i].class, read);
                }
                next => {
                    other
                        .bulks
                        .extend(next.as_ref().map(|next| (next[i].first, next[i])));
                    others.push(other);
                }
            }
        }
        let (bytes, cuts) = &options[chosen];
        item.narrowed.insert(unit, cuts.clone());
        if let Some(next) = next {
            item.bulks.insert(next[chosen].first, next[chosen]);
        }
        *bytes
    }

    /// Keeps a torn content for later.
    fn defer(&mut self, item: Item, class: BulkClass, read: &Read) {
        let place = (item.layer, item.point);
        *self.left.entry(place).or_default() += 1;
        if self.sampler.defer(item, class, read) {
            self.leave(place);
        }
    }

    /// Queues torn contents of one bulk, and counts those that will not be tried.
    fn tear(&mut self, (place, class): (Place, BulkClass)) {
        let view = self.view(place.0, place.1);
        let files = self.files(place.0, place.1);
        let newest = || Image::newest(&view, &Narrowed::new(), &files);
        let (taken, left_out) = self.sampler.take_torn((place, class), newest);
        self.queue.extend(taken);
        match left_out.is_summed {
            true => self.statistics.checksummed += left_out.count,
            false => self.statistics.sampled += left_out.count,
        }
        for _ in 0..left_out.waited {
            self.leave(place);
        }
    }

    fn run(&mut self, item: Item, trie_id: usize, view: &View) {
        if let Some(class) = item.payer {
            self.sampler.spend(class, (item.layer, item.point));
        }
        let node = self.tries[trie_id].reserve(|read| {
            match view.read(read.line, read.mask, &item.narrowed) {
                Seen::Certain(bytes) => bytes,
                // The walk has decided all reads up to the unknown one.
                Seen::Open(_, options) => options[options.len() - 1].0,
            }
        });
        self.start(item, trie_id, node, view);
    }

    fn start(&mut self, item: Item, trie_id: usize, node: NodeId, view: &View) {
        let image = Image::newest(view, &item.narrowed, &self.files(item.layer, item.point));
        let acknowledged = self.acknowledged_at(item.layer, item.point);
        let request = self.recovery(&image, acknowledged, false);
        let id = self.executor.start(request);
        self.statistics.executions += 1;
        self.running.insert(id, (item, trie_id, node, image));
    }

    fn receive(&mut self) -> Result<(), LaunchError> {
        let Some((id, answer)) = self.executor.wait(Duration::from_millis(50)) else {
            if self.executor.is_broken() {
                return Err(LaunchError::Bug(
                    "a thread that runs recoveries has ended".into(),
                ));
            }
            return Ok(());
        };
        let Answer::Executed(execution) = answer else {
            return Ok(());
        };
        let Some((mut item, trie_id, node, image)) = self.running.remove(&id) else {
            return Ok(());
        };
        if self.setting.stop.load(Ordering::Relaxed) {
            // It may have been cut short.
            return Ok(());
        }
        let execution = match execution {
            Ok(execution) => execution,
            Err(error) => return self.lost(error),
        };
        self.account(&execution);
        let outcome = self.intern(&execution.outcome);
        match self.tries[trie_id].insert(node, &execution.path, outcome) {
            Ok(()) => {
                self.statistics.paths += 1;
                self.write_down(item.layer, item.point, &execution);
            }
            // The last read of an instruction that it kills (a division by what it read) is not reported.
            Err(diverged)
                if diverged.ended && matches!(execution.outcome.status, Status::Signal(_)) =>
            {
                self.tries[trie_id].settle(node, outcome);
            }
            // Its threads take turns as they like, or chance decides what it looks at first. If it comes to the same end when it is
            // run again, this is how the states end that look alike to what it has read.
            Err(_) if item.ended.contains(&outcome) => {
                self.statistics.unsteady += 1;
                self.tries[trie_id].give_back(node);
                self.requeue_waiting(trie_id, node);
                self.follow_itself(item, &execution.path, outcome);
                return Ok(());
            }
            Err(_) if item.retries < RETRIES => {
                item.retries += 1;
                item.ended.insert(outcome);
                let view = self.view(item.layer, item.point);
                self.start(item, trie_id, node, &view);
                return Ok(());
            }
            Err(diverged) => {
                self.coverage.limit(
                    Limit::Nondeterministic,
                    format!(
                        "recovery is not deterministic (two runs that had read the same {} times went on differently): \
                         its crash states were not explored exhaustively",
                        diverged.after
                    ),
                );
                self.tries[trie_id].settle(node, outcome);
            }
        }
        let done = self.done(item.layer, item.point);
        let is_fine = self.oracle.judge(&execution.outcome, done).is_none();
        // One that fails by itself needs no second crash.
        if self.keep_executed && is_fine {
            self.executed.push(Crash {
                layer: item.layer,
                point: item.point,
                image,
            });
        }
        // Its own reads may have been open, too: those other contents are found by walking once more.
        self.statistics.saved = self.statistics.saved.saturating_sub(1);
        self.queue.push(item);
        self.requeue_waiting(trie_id, node);
        Ok(())
    }

    fn requeue_waiting(&mut self, trie_id: usize, node: NodeId) {
        if let Some(waiting) = self.waiting.remove(&(trie_id, node)) {
            self.queue.extend(waiting);
        }
    }

    /// Settles the states that agree with all that a recovery has read; other contents of that become items of their own.
    fn follow_itself(&mut self, mut item: Item, path: &[(Read, LineBytes)], outcome: u32) {
        let view = self.view(item.layer, item.point);
        let mut others = Vec::new();
        for (read, seen) in path {
            if let Seen::Open(unit, options) = view.read(read.line, read.mask, &item.narrowed) {
                self.choose(
                    &view,
                    &mut item,
                    read,
                    unit,
                    options,
                    Some(seen),
                    &mut others,
                );
            }
        }
        for other in &mut others {
            (other.retries, other.ended) = (0, BTreeSet::new());
        }
        *self.left.entry((item.layer, item.point)).or_default() += others.len();
        self.queue.append(&mut others);
        self.settled(item, outcome, false);
    }

    fn write_down(&mut self, layer: usize, point: u32, execution: &Execution) {
        let files = self.files(layer, point);
        let names = files.names.clone();
        let next = files.next;
        let files = files.iter().map(|(id, s)| (id.0, s.exists, s.size));
        let acknowledged = self.acknowledged_at(layer, point);
        let entry = Entry::new(
            (files.collect(), names, next),
            &acknowledged,
            &execution.path,
            &execution.outcome,
        );
        if let Some(journal) = &mut self.journal {
            journal.append(&entry);
        }
    }

    /// Takes what an earlier exploration has found out.
    pub fn remember(&mut self, entries: &[Entry]) {
        for entry in entries {
            let files = entry.files.iter().map(|(id, exists, size)| {
                let state = FileState {
                    exists: *exists,
                    size: *size,
                };
                (FileId(*id), state)
            });
            let acknowledged = Acknowledged {
                operations: entry.operations,
                text: entry.text.clone(),
            };
            let Some(path) = entry.path() else { continue };
            let files = Files {
                states: files.collect(),
                names: entry.names.clone(),
                next: entry.next,
            };
            let trie = self.trie_of((Arc::new(files), acknowledged));
            let outcome = self.intern(&entry.outcome);
            if self.tries[trie].add(&path, outcome).is_ok() {
                self.statistics.resumed += 1;
                self.statistics.paths += 1;
            }
        }
    }

    fn account(&mut self, execution: &Execution) {
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
            self.notes.insert(
                "recovery accesses persistent memory in several threads, whose order is not controlled".into(),
            );
        }
    }

    fn settled(&mut self, item: Item, outcome: u32, from_trie: bool) {
        let place = (item.layer, item.point);
        self.leave(place);
        self.sampler.ended(item.payer, place, outcome);
        if let Some(log) = &mut self.outcome_log {
            log.insert((item.layer, item.point, outcome));
        }
        if from_trie && self.self_test > 0 && self.random(97) == 0 {
            self.self_test_queue.push_back((item.clone(), outcome));
        }
        let done = self.done(item.layer, item.point);
        let Some(symptom) = self.oracle.judge(&self.outcomes[outcome as usize], done) else {
            return;
        };
        self.failing += 1;
        *self.failing_at.entry(place).or_default() += 1;
        let failure = Failure {
            layer: item.layer,
            point: item.point,
            narrowed: item.narrowed,
            symptom,
        };
        let key = self.failure_key(&failure);
        let count = self.failure_keys.entry(key).or_default();
        *count += 1;
        // A second one of the same kind may be of another cause; a hundredth tells nothing new.
        if *count <= 2 {
            self.failures.push(failure);
        } else {
            self.unexplained(&failure);
        }
    }

    /// Nobody will look into this one.
    pub fn unexplained(&mut self, failure: &Failure) {
        if !self.keep_unexplained || failure.layer > 0 {
            return;
        }
        let view = self.view(failure.layer, failure.point);
        for (unit, cuts) in &failure.narrowed {
            let (Some(choices), Some(cut)) = (view.choices(*unit), cuts.iter().max()) else {
                continue;
            };
            let lost = choices.lost(&cut.newest());
            self.unexplained
                .extend(lost.iter().map(|write| write.moment.0));
        }
    }

    /// One item less at a failure point.
    fn leave(&mut self, place: Place) {
        if let Some(left) = self.left.get_mut(&place) {
            *left -= 1;
            if *left == 0 {
                self.left.remove(&place);
                self.statistics.points_done += 1;
            }
        }
    }

    /// Whether no crash state that was tried fails.
    pub fn all_is_well(&self) -> bool {
        self.failing_at.is_empty()
    }

    /// Whether enough crash states of a failure point fail: losses combine, and their combinations tell nothing new.
    fn is_hopeless(&self, item: &Item) -> bool {
        let enough = match self.failing {
            0..FAILING_MANY => FAILING_AT_POINT,
            _ => FAILING_LATER,
        };
        let place = (item.layer, item.point);
        !self.sampler.sampling.exhaustive
            && self.failing_at.get(&place).is_some_and(|n| *n >= enough)
    }

    fn random(&mut self, below: u64) -> u64 {
        // xorshift: the same samples in every run.
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng % below
    }

    fn failure_key(&self, failure: &Failure) -> FailureKey {
        let recording = &self.layers[failure.layer].recording;
        let site = recording.points[failure.point as usize].site;
        let view = self.view(failure.layer, failure.point);
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
        FailureKey {
            layer: failure.layer > 0,
            symptom: failure.symptom.kind(),
            crash_pc: site.map_or(0, |s| s.pc.0),
            crash_context: site.map_or(0, |s| s.context.0),
            lost,
        }
    }

    /// What recovery makes of one image: looked up, or run.
    pub fn evaluate(&mut self, layer: usize, image: &Image) -> Result<Option<u32>, LaunchError> {
        let point = image.view.point;
        let trie_id = self.trie(layer, point);
        let see = |read: &Read| brownout_model::masked(&image.line(read.line), read.mask);
        if let Reached::Outcome(outcome) = self.tries[trie_id].walk(see) {
            return Ok(Some(outcome));
        }
        let acknowledged = self.acknowledged_at(layer, point);
        let Some(execution) = self.recover(image, acknowledged, false)? else {
            return Ok(None);
        };
        let outcome = self.keep(layer, image, &execution);
        Ok(Some(outcome))
    }

    /// What recovery makes of several images. What must be run is run side by side. `None` if the search was stopped meanwhile.
    pub fn evaluate_all(
        &mut self,
        layer: usize,
        images: &[Image],
    ) -> Result<Option<Vec<u32>>, LaunchError> {
        let mut outcomes = Vec::new();
        // A few at a time: one of them may show what the next would.
        for images in images.chunks(self.executor.size().max(1)) {
            let mut requests = Vec::new();
            let mut unknown = Vec::new();
            for image in images {
                let point = image.view.point;
                let trie = self.trie(layer, point);
                let see = |read: &Read| brownout_model::masked(&image.line(read.line), read.mask);
                if let Reached::Outcome(_) = self.tries[trie].walk(see) {
                    continue;
                }
                let acknowledged = self.acknowledged_at(layer, point);
                requests.push(self.recovery(image, acknowledged, false));
                unknown.push(image);
            }
            self.statistics.executions += requests.len() as u64;
            let Some(answers) = self.perform_all(requests)? else {
                return Ok(None);
            };
            for (image, answer) in unknown.into_iter().zip(answers) {
                if let Answer::Executed(execution) = answer {
                    let execution = execution?;
                    self.account(&execution);
                    self.keep(layer, image, &execution);
                }
            }
            for image in images {
                let Some(outcome) = self.evaluate(layer, image)? else {
                    return Ok(None);
                };
                outcomes.push(outcome);
            }
        }
        Ok(Some(outcomes))
    }

    /// Adds what was run to what is known.
    fn keep(&mut self, layer: usize, image: &Image, execution: &Execution) -> u32 {
        let point = image.view.point;
        let trie_id = self.trie(layer, point);
        let see = |read: &Read| brownout_model::masked(&image.line(read.line), read.mask);
        if let Reached::Outcome(outcome) = self.tries[trie_id].walk(see) {
            return outcome;
        }
        let outcome = self.intern(&execution.outcome);
        let node = self.tries[trie_id].reserve(see);
        match self.tries[trie_id].insert(node, &execution.path, outcome) {
            Ok(()) => {
                self.statistics.paths += 1;
                self.write_down(layer, point, execution);
            }
            Err(_) => self.tries[trie_id].settle(node, outcome),
        }
        outcome
    }

    /// A recovery could not be run to its end. If that is our fault, what was found until then is worth telling.
    fn lost(&mut self, error: LaunchError) -> Result<(), LaunchError> {
        if !error.is_bug() {
            return Err(error);
        }
        self.bug.get_or_insert(error.to_string());
        self.stopped.get_or_insert(Halt::Bug);
        Ok(())
    }

    /// Runs one recovery now; `None` if the search was stopped meanwhile.
    pub fn recover(
        &mut self,
        image: &Image,
        acknowledged: Acknowledged,
        detail: bool,
    ) -> Result<Option<Box<Execution>>, LaunchError> {
        self.statistics.executions += 1;
        let request = self.recovery(image, acknowledged, detail);
        match self.perform(request)? {
            Some(Answer::Executed(execution)) => {
                let execution = match execution {
                    Ok(execution) => execution,
                    Err(error) => return self.lost(error).map(|()| None),
                };
                self.account(&execution);
                Ok(Some(execution))
            }
            _ => Ok(None),
        }
    }

    /// Records a recovery, so that it can be cut short.
    pub fn record(
        &mut self,
        image: &Image,
        options: RecordOptions,
    ) -> Result<Option<Box<Recording>>, LaunchError> {
        let want = Want::Recording(options);
        let request = Request::recovery(&self.setting.recover, image.clone(), want);
        match self.perform(request)? {
            Some(Answer::Recorded(recording)) => Ok(Some(recording?)),
            _ => Ok(None),
        }
    }

    fn recovery(&self, image: &Image, acknowledged: Acknowledged, detail: bool) -> Request {
        let want = Want::Outcome {
            acknowledged,
            detail,
        };
        Request::recovery(&self.setting.recover, image.clone(), want)
    }

    /// Has one thing done and waits for it. Nothing else is under way.
    fn perform(&mut self, request: Request) -> Result<Option<Answer>, LaunchError> {
        let mut answers = self.perform_all(vec![request])?;
        Ok(answers.as_mut().and_then(Vec::pop))
    }

    /// Has several things done at a time and waits for all; `None` if the search was stopped meanwhile.
    pub fn perform_all(
        &mut self,
        requests: Vec<Request>,
    ) -> Result<Option<Vec<Answer>>, LaunchError> {
        if self.is_over() {
            return Ok(None);
        }
        let ids: Vec<u64> = requests
            .into_iter()
            .map(|request| self.executor.start(request))
            .collect();
        let mut done = BTreeMap::new();
        while done.len() < ids.len() {
            self.tell();
            match self.executor.wait(Duration::from_millis(50)) {
                Some((id, result)) if ids.contains(&id) => {
                    done.insert(id, result);
                }
                Some(_) => {}
                None if self.executor.is_broken() => {
                    return Err(LaunchError::Bug(
                        "a thread that runs recoveries has ended".into(),
                    ));
                }
                None => {
                    self.is_over();
                }
            }
        }
        Ok((!self.is_over()).then(|| done.into_values().collect()))
    }

    /// Runs a sample of what was looked up, and compares. Returns how many differ.
    pub fn test_itself(&mut self) -> Result<u64, LaunchError> {
        let mut wrong = 0;
        let mut left = self.self_test;
        while left > 0
            && let Some((item, expected)) = self.self_test_queue.pop_front()
        {
            if self.layers[item.layer].recording.points.is_empty() {
                continue;
            }
            left -= 1;
            let view = self.view(item.layer, item.point);
            let files = self.files(item.layer, item.point);
            let image = Image::newest(&view, &item.narrowed, &files);
            let acknowledged = self.acknowledged_at(item.layer, item.point);
            let Some(execution) = self.recover(&image, acknowledged, false)? else {
                break;
            };
            self.statistics.self_tested += 1;
            if self.outcomes[expected as usize] != execution.outcome {
                wrong += 1;
            }
        }
        Ok(wrong)
    }

    /// Groups of reads of which not all combinations were tried.
    pub fn sampled_groups(&self) -> usize {
        self.sampler.sampled_groups()
    }

    /// Items of failure points that were not settled.
    pub fn unsettled(&self) -> usize {
        self.left.len()
    }
}

/// The option with the largest (or smallest) cut.
fn position_of(
    options: &[(LineBytes, Vec<Cut>)],
    of: impl Fn(&[Cut]) -> Option<Cut>,
    largest: bool,
) -> usize {
    let keyed = options
        .iter()
        .enumerate()
        .map(|(i, (_, cuts))| (of(cuts), i));
    let found = match largest {
        true => keyed.max(),
        false => keyed.min(),
    };
    found.map_or(0, |(_, i)| i)
}

#[cfg(test)]
mod tests;

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
use brownout_model::{Cut, LINE_BYTES, LineBytes, Unit};
use brownout_trace::event::FileId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::checksum;
use crate::execution::{Acknowledged, Execution, Setting};
use crate::executor::{Answer, Executor, Request, Want};
use crate::journal::{Entry, Journal};
use crate::line::LineKey;
use crate::oracle::{Oracle, Span, Symptom, signal_name};
use crate::outcome::{Outcome, Status};
use crate::recording::{RecordOptions, Recording};
use crate::trie::{NodeId, Reached, Read, Trie};
use crate::view::{FileState, Files, Image, Narrowed, Seen, View};

/// An execution that does not fit those before it is tried again so often.
const RETRIES: u32 = 2;

/// Torn contents of a bulk that wait to be tried, at one failure point. Of more, some are left out.
const TORN_MAX: usize = 256;
/// Places of a failure point at which a checksum is looked for. Each takes a few milliseconds.
const LOOKS_MAX: usize = 64;

/// With so many failing crash states, a failure point is left.
const FAILING_AT_POINT: u64 = 32;
/// If so many fail in all, earlier.
const FAILING_MANY: u64 = 300;
const FAILING_LATER: u64 = 3;

/// A stretch of uncertain units is followed back so far.
const STRETCH_MAX: usize = 256;

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

/// Part of the crash states of one failure point.
#[derive(Clone)]
struct Item {
    layer: usize,
    point: u32,
    narrowed: Narrowed,
    /// By the first unit of each.
    bulks: BTreeMap<Unit, Bulk>,
    retries: u32,
    /// How it ended when it was run and did not fit.
    ended: BTreeSet<u32>,
    /// The class on whose budget this is run.
    payer: Option<BulkClass>,
    /// The read that sees what makes it torn.
    torn_at: Option<Read>,
}

/// What of a bulk of uncertain data a recovery has seen so far. A bulk is a stretch of adjacent units with more contents than
/// can all be tried.
#[derive(Clone, Copy, Debug)]
struct Bulk {
    class: BulkClass,
    first: Unit,
    choices: u32,
    newest: u32,
    oldest: u32,
}

impl Bulk {
    /// After one more read, which saw the newest or the oldest content, or one between.
    fn after(self, is_newest: bool, is_oldest: bool) -> Bulk {
        Bulk {
            choices: self.choices + 1,
            newest: self.newest + u32::from(is_newest),
            oldest: self.oldest + u32::from(is_oldest),
            ..self
        }
    }

    /// In how many places it is neither all newest nor all oldest: 0 if it is not torn.
    fn torn(self) -> u32 {
        self.choices - self.newest.max(self.oldest)
    }
}

/// Bulks that one piece of code has written and another one reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct BulkClass {
    load: u64,
    store: u64,
    /// What makes it torn is covered by a checksum; then `store` is 0.
    summed: bool,
}

/// Bounds for recoveries that read much of what is uncertain, to reject it by a checksum: every word would double the states.
///
/// A stretch of adjacent uncertain units is explored exhaustively if its contents can be counted. A larger one is a bulk: all newest and
/// all oldest are followed at once, and what differs from that in one place, then in two, and so on, as long as a budget of
/// recoveries lasts. A recovery that stops at the first thing that it does not like has few distinct ways however much it
/// could read, and is done within the budget; then nothing was left out. One that reads everything before it decides is not:
/// what is left is counted as sampled, and later failure points of its class get less.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Follow everything.
    pub exhaustive: bool,
    /// Up to two to the power of this many contents are always tried.
    pub small_log2: f64,
    /// So many unordered stores in one stretch make it a bulk in any case: they come from a copy.
    pub few_unordered: usize,
    /// Recoveries for torn contents of a class at one failure point, if the budget was enough at all earlier ones, if it was not at
    /// one, ….
    pub budget: [u32; 3],
    /// The same where a checksum covers what is read, at the first failure point; then one at the next two, and whenever their number
    /// has doubled.
    pub summed: u32,
    /// Recoveries for torn contents of a class, at all failure points together.
    pub budget_in_all: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            exhaustive: false,
            small_log2: 8.0,
            few_unordered: 4,
            budget: [64, 8, 0],
            summed: 4,
            budget_in_all: 2_000,
        }
    }
}

/// What was spent on torn contents of a class.
#[derive(Clone, Debug, Default)]
struct Spent {
    /// Failure points at which the budget was not enough.
    exceeded: usize,
    in_all: u32,
    at: FxHashMap<Place, u32>,
    /// How torn contents end.
    outcomes: Outcomes,
    /// Where a checksum was recognised, and what was torn ended alike.
    believed: FxHashSet<Place>,
    /// How many recoveries may try torn contents that a checksum covers.
    allowed: FxHashMap<Place, u32>,
}

impl Spent {
    /// See [`Sampling::summed`]. The rarer, the more often it was right.
    fn allowed_at(&mut self, place: Place, first: u32, whole: &Outcomes) -> u32 {
        for (other, torn) in self.outcomes.iter().filter(|(other, _)| **other != place) {
            match are_alike(Some(torn), whole.get(other)) {
                true => self.believed.insert(*other),
                false => self.believed.remove(other),
            };
        }
        let so_far = self.believed.len();
        let allowed = match so_far {
            0 => first,
            _ => u32::from(so_far.is_power_of_two()),
        };
        *self.allowed.entry(place).or_insert(allowed)
    }
}

/// By failure point, how what was tried there ended.
type Outcomes = FxHashMap<Place, BTreeSet<u32>>;

/// Whether torn contents all ended alike, or as what is not torn does.
fn are_alike(torn: Option<&BTreeSet<u32>>, whole: Option<&BTreeSet<u32>>) -> bool {
    torn.is_none_or(|torn| torn.len() == 1 || whole.is_some_and(|whole| torn.is_subset(whole)))
}

/// Stretches that carry their own checksum, as they are if nothing is lost.
#[derive(Clone, Debug, Default)]
struct Sums {
    stretches: Vec<(u64, u64)>,
    /// From where one was looked for.
    looked: BTreeSet<u64>,
}

impl Sums {
    /// Whether a checksum covers a stretch.
    fn cover(&self, from: u64, to: u64) -> bool {
        let mut all = self.stretches.iter();
        all.any(|(start, end)| *start <= from && to <= *end)
    }
}

/// Torn contents of a bulk that wait to be tried.
#[derive(Default)]
struct Torn {
    /// By how torn they are, then in an order that spreads them over the bulk.
    items: BTreeMap<(u32, u64, u64), Item>,
    /// Those that had no room: how many, by what they tear.
    dropped: BTreeMap<Stretch, u64>,
}

impl Torn {
    fn count(&self) -> u64 {
        self.items.len() as u64 + self.dropped.values().sum::<u64>()
    }
}

/// First byte, and the one behind the last.
type Stretch = (u64, u64);

/// The bytes that a read sees, from the first to the last.
fn stretch_of(read: &Read) -> Stretch {
    let start = read.line.start();
    let end = LINE_BYTES - u64::from(read.mask.leading_zeros());
    (start + u64::from(read.mask.trailing_zeros()), start + end)
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

/// A failure point: of which run, and its number there.
type Place = (usize, u32);

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
    torn: BTreeMap<(Place, BulkClass), Torn>,
    deferred: u64,
    spent: FxHashMap<BulkClass, Spent>,
    sums: FxHashMap<Place, Sums>,
    /// How what is not torn ends.
    whole: Outcomes,
    sampled: FxHashSet<BulkClass>,
    pub sampling: Sampling,
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
            torn: BTreeMap::new(),
            deferred: 0,
            spent: FxHashMap::default(),
            sums: FxHashMap::default(),
            whole: FxHashMap::default(),
            sampled: FxHashSet::default(),
            sampling: Sampling::default(),
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
            if is_idle && self.torn.is_empty() && next == points {
                break;
            }
            if self.is_over() {
                self.left_over = Some(LeftOver::Points);
                break;
            }
            if self.queue.is_empty()
                && let Some(waiting) = self.ready_to_tear()
            {
                self.take_torn(waiting);
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
            let has_room = self.torn.len() <= 2 * self.executor.size();
            if next < points && has_room && self.executor.in_flight() < 2 * self.executor.size() {
                self.begin(layer, next);
                next += 1;
                continue;
            }
            self.receive()?;
        }
        if self.left_over.is_some() {
            self.queue.clear();
            self.torn.clear();
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
        let bulk = self.bulk_of(view, item, read, unit);
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
    fn defer(&mut self, mut item: Item, class: BulkClass, read: &Read) {
        let place = (item.layer, item.point);
        let how = item.bulks.values().map(|bulk| bulk.torn()).sum();
        item.payer = Some(class);
        item.torn_at = Some(*read);
        self.deferred += 1;
        let spread = (read.line.0 ^ self.deferred << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *self.left.entry(place).or_default() += 1;
        let torn = self.torn.entry((place, class)).or_default();
        torn.items.insert((how, spread, self.deferred), item);
        if torn.items.len() > TORN_MAX {
            // The last that is left may be needed to know what this is about.
            let dropped = torn.items.pop_last().and_then(|(_, item)| item.torn_at);
            let stretch = dropped.as_ref().map_or((0, u64::MAX), stretch_of);
            *torn.dropped.entry(stretch).or_default() += 1;
            self.leave(place);
        }
    }

    /// Torn contents that are not tried. If what they tear carries its own checksum, and those that were tried all ended alike, or as what is
    /// not torn does (other uncertain data may make a difference), they do as well; else they are unknown.
    fn leave_out(&mut self, place: Place, class: BulkClass, torn: Torn) {
        let count = torn.count();
        let spent = self.spent.entry(class).or_default();
        let is_alike = are_alike(spent.outcomes.get(&place), self.whole.get(&place));
        if class.summed && is_alike {
            spent.believed.insert(place);
            self.statistics.checksummed += count;
        } else {
            spent.exceeded += 1;
            self.statistics.sampled += count;
            self.sampled.insert(class);
        }
        for _ in torn.items {
            self.leave(place);
        }
    }

    /// Takes those out whose torn part is covered by a checksum. What a recovery reads behind that, as a log's end, is not.
    fn take_summed(&mut self, place: Place, torn: &mut Torn) -> Torn {
        let reads = torn.items.values().filter_map(|item| item.torn_at);
        let reads = reads.map(|read| stretch_of(&read));
        let reads: BTreeSet<Stretch> = reads.chain(torn.dropped.keys().copied()).collect();
        let mut sums = self.sums.remove(&place).unwrap_or_default();
        let mut image = None;
        for (from, to) in &reads {
            if sums.looked.len() >= LOOKS_MAX
                || sums.cover(*from, *to)
                || !sums.looked.insert(*from)
            {
                continue;
            }
            let image = image.get_or_insert_with(|| {
                let view = self.view(place.0, place.1);
                Image::newest(&view, &Narrowed::new(), &self.files(place.0, place.1))
            });
            sums.stretches.extend(summed(image, *from, &reads));
        }
        let is_summed = |item: &Item| {
            let read = item.torn_at.as_ref().map(stretch_of);
            read.is_some_and(|(from, to)| sums.cover(from, to))
        };
        let (summed, other): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut torn.items)
            .into_iter()
            .partition(|(_, item)| is_summed(item));
        torn.items = other;
        let mut of_summed = Torn {
            items: summed,
            dropped: BTreeMap::new(),
        };
        if !of_summed.items.is_empty() {
            // Else there is none left to be tried in their place.
            (of_summed.dropped, torn.dropped) = std::mem::take(&mut torn.dropped)
                .into_iter()
                .partition(|((from, to), _)| sums.cover(*from, *to));
        }
        self.sums.insert(place, sums);
        of_summed
    }

    /// Torn contents of a failure point of which all else is known: they are worth trying in addition.
    fn ready_to_tear(&self) -> Option<(Place, BulkClass)> {
        let mut waiting: BTreeMap<Place, (BulkClass, usize)> = BTreeMap::new();
        for ((place, class), torn) in &self.torn {
            waiting.entry(*place).or_insert((*class, 0)).1 += torn.items.len();
        }
        let is_ready = |place: &Place, count: usize| self.left.get(place) == Some(&count);
        waiting
            .iter()
            .find(|(place, (_, count))| is_ready(place, *count))
            // Nothing else is under way, so all that can be known is.
            .or_else(|| {
                waiting
                    .first_key_value()
                    .filter(|_| self.executor.in_flight() == 0)
            })
            .map(|(place, (class, _))| (*place, *class))
    }

    /// Queues the least torn contents of one bulk, as far as the budget allows; what it does not allow is left out.
    fn take_torn(&mut self, (place, class): (Place, BulkClass)) {
        let Some(mut torn) = self.torn.remove(&(place, class)) else {
            return;
        };
        if !class.summed {
            let summed = self.take_summed(place, &mut torn);
            if !summed.items.is_empty() {
                // Whoever verifies a checksum does not care which of the copy's instructions has stored what.
                let class = BulkClass {
                    summed: true,
                    store: 0,
                    ..class
                };
                let waiting = self.torn.entry((place, class)).or_default();
                for (stretch, count) in summed.dropped {
                    *waiting.dropped.entry(stretch).or_default() += count;
                }
                for (key, mut item) in summed.items {
                    item.payer = Some(class);
                    waiting.items.insert(key, item);
                }
            }
            if torn.count() == 0 {
                return;
            }
        }
        let spent = self.spent.entry(class).or_default();
        let budget = match class.summed {
            true => Some(spent.allowed_at(place, self.sampling.summed, &self.whole)),
            false => self.sampling.budget.get(spent.exceeded).copied(),
        };
        let here = budget
            .unwrap_or(0)
            .saturating_sub(spent.at.get(&place).copied().unwrap_or(0));
        let left = here.min(self.sampling.budget_in_all.saturating_sub(spent.in_all));
        if left == 0 {
            self.leave_out(place, class, torn);
            return;
        }
        let Some(((least, ..), _)) = torn.items.first_key_value() else {
            self.leave_out(place, class, torn);
            return;
        };
        let least = *least;
        for _ in 0..left {
            match torn.items.first_entry() {
                Some(entry) if entry.key().0 == least => self.queue.push(entry.remove()),
                _ => break,
            }
        }
        if !torn.items.is_empty() {
            self.torn.insert((place, class), torn);
        } else if !torn.dropped.is_empty() {
            self.leave_out(place, class, torn);
        }
    }

    /// The bulk that a read belongs to; `None` if all contents of its stretch can be tried.
    fn bulk_of(&self, view: &View, item: &Item, read: &Read, unit: Unit) -> Option<Bulk> {
        if self.sampling.exhaustive {
            return None;
        }
        let open = view.open();
        let at = open.binary_search(&unit).ok()?;
        let is_bulky = |(log2, unordered): (f64, usize)| {
            log2 > self.sampling.small_log2 || unordered > self.sampling.few_unordered
        };
        let weigh = |unit: &Unit, (log2, unordered): (f64, usize)| match view.choices(*unit) {
            Some(choices) => {
                let open = choices.open();
                (
                    log2 + open.choices_log2(),
                    unordered + open.unordered_open(),
                )
            }
            None => (log2, unordered),
        };
        let mut sum = weigh(&unit, (0.0, 0));
        let (mut before, mut after) = (at, at);
        while before > 0 && open[before - 1].0 + 1 == open[before].0 && at - before < STRETCH_MAX {
            before -= 1;
            sum = weigh(&open[before], sum);
        }
        while after + 1 < open.len() && open[after].0 + 1 == open[after + 1].0 && !is_bulky(sum) {
            after += 1;
            sum = weigh(&open[after], sum);
        }
        if !is_bulky(sum) {
            return None;
        }
        let first = open[before];
        if let Some(bulk) = item.bulks.get(&first) {
            return Some(*bulk);
        }
        let steps = &self.layers[item.layer].recording.steps;
        let store = view
            .choices(unit)
            .and_then(|choices| choices.writes().first())
            .and_then(|write| steps.get(write.moment.0 as usize - 1));
        Some(Bulk {
            class: BulkClass {
                load: read.pc,
                store: store.map_or(0, |step| step.site.pc.0),
                summed: false,
            },
            first,
            choices: 0,
            newest: 0,
            oldest: 0,
        })
    }

    fn run(&mut self, item: Item, trie_id: usize, view: &View) {
        if let Some(class) = item.payer {
            let spent = self.spent.entry(class).or_default();
            spent.in_all += 1;
            *spent.at.entry((item.layer, item.point)).or_default() += 1;
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
        match item.payer {
            Some(class) => {
                let spent = self.spent.entry(class).or_default();
                spent.outcomes.entry(place).or_default().insert(outcome);
            }
            None => {
                self.whole.entry(place).or_default().insert(outcome);
            }
        }
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
        !self.sampling.exhaustive && self.failing_at.get(&place).is_some_and(|n| *n >= enough)
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
        self.sampled.len()
    }

    /// Items of failure points that were not settled.
    pub fn unsettled(&self) -> usize {
        self.left.len()
    }
}

/// The stretch with a checksum that covers what is at `from`. `reads` are those of something uncertain.
fn summed(image: &Image, from: u64, reads: &BTreeSet<(u64, u64)>) -> Option<(u64, u64)> {
    let file = LineKey::of(from).file();
    let begin = from.saturating_sub(checksum::BEFORE as u64) / LINE_BYTES * LINE_BYTES;
    let lines = (begin..from + checksum::BEHIND as u64).step_by(LINE_BYTES as usize);
    // Before the beginning and behind the end of a file are other files' keys.
    let lines = lines.map(LineKey::of).filter(|line| line.file() == file);
    let mut start = None;
    let mut bytes = Vec::new();
    for line in lines {
        start.get_or_insert(line.start());
        bytes.extend_from_slice(&image.line(line));
    }
    let start = start?;
    let all = start..start + bytes.len() as u64;
    let ends = reads
        .iter()
        .map(|(_, to)| *to)
        .filter(|to| all.contains(to));
    let ends: BTreeSet<usize> = ends.map(|to| (to - start) as usize).collect();
    let ends: Vec<usize> = ends.into_iter().collect();
    let (first, last) = checksum::stretch(&bytes, (from - start) as usize, &ends)?;
    Some((start + first as u64, start + last as u64))
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

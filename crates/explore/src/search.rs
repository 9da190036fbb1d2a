//! The search: every distinct recovery of every failure point, each run once.
//!
//! ```text
//!  failure point ─▶ item (what is left of its crash states) ─▶ walk along the trie
//!                      ▲                                        │ known outcome ─▶ judge
//!                      │ one item for each content that         │ under way     ─▶ wait for it
//!                      └──── an uncertain read may see ◀────────┤
//!                                                               └ unknown ─▶ run one image of what is left ─▶ trie
//! ```
//! Guarantee: when the queue is empty, every crash state of every failure point has an outcome that
//! an execution has shown, but for torn contents of much uncertain data (see [`sampler`]), for
//! failure points at which many states fail, and for the other orders of a recovery that reads in
//! more than one, all of which are counted.
//!
//! Each part keeps what it alone decides on: [`settings`] what the search is told, [`layers`] the
//! runs that are cut short, [`queue`] what is still to be done, [`sampler`] which torn contents are
//! tried, [`known`] what recoveries have shown, [`ledger`] what that comes to. This file moves
//! items between them; [`asking`] is for those who want single images tried.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use brownout_findings::Limit;
use brownout_host::LaunchError;
use brownout_model::{Cut, LineBytes, Unit, masked};

use crate::execution::{Acknowledged, Execution};
use crate::executor::{Answer, Executor, Request, Want};
use crate::journal::Entry;
use crate::oracle::Span;
use crate::outcome::Status;
use crate::recording::Recording;
use crate::trie::{NodeId, PathId, Reached, Read};
use crate::view::{Image, Narrowed, Seen, View};

mod alike;
mod asking;
mod item;
mod known;
mod layers;
mod ledger;
mod queue;
mod sampler;
mod self_test;
mod settings;

pub use alike::{Noted, State};
pub use asking::Recorded;
use item::{Bulk, BulkClass, Item, Place};
use known::{Circumstances, Known, TrieId};
use layers::Layers;
pub use layers::{Crash, Layer};
use ledger::Ledger;
pub use ledger::{Failure, Halt, LeftOver, Statistics};
use queue::{Queue, Running};
use sampler::{Reads, Sampler};
use self_test::Sample;
pub use settings::Settings;

/// An execution that does not fit those before it is tried again so often.
const RETRIES: u32 = 2;

/// The numbers below `count`, the first few spread evenly: the last, then halves, quarters, and so
/// on.
pub fn spread(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    // Numbers with their bits in reverse are spread so.
    order.sort_by_key(|number| number.reverse_bits());
    for number in &mut order {
        *number = count - 1 - *number;
    }
    order
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

/// See the module's header.
pub struct Search<'p> {
    pub settings: Settings,
    pub layers: Layers,
    pub known: Known,
    pub ledger: Ledger,
    queue: Queue,
    sampler: Sampler,
    sample: Sample,
    executor: Box<dyn Executor + 'p>,
    progress: &'p mut dyn Progress,
    told: Instant,
    /// So many recoveries are enough.
    enough_at: Option<u64>,
    /// What recoveries read and how they end, if somebody wants to know.
    pub noted: Option<Noted>,
}

impl<'p> Search<'p> {
    pub fn new(
        recording: Recording,
        settings: Settings,
        executor: Box<dyn Executor + 'p>,
        progress: &'p mut dyn Progress,
    ) -> Self {
        Search {
            sampler: Sampler::new(settings.sampling),
            settings,
            layers: Layers::new(recording),
            known: Known::default(),
            ledger: Ledger::default(),
            queue: Queue::default(),
            sample: Sample::default(),
            executor,
            progress,
            told: Instant::now(),
            enough_at: None,
            noted: None,
        }
    }

    /// The view of a failure point.
    pub fn view(&self, layer: usize, point: u32) -> View {
        self.layers.view(layer, point)
    }

    /// What a checker is told at a failure point.
    pub fn acknowledged_at(&self, layer: usize, point: u32) -> Acknowledged {
        self.settings.acknowledged_at(&self.layers, layer, point)
    }

    /// Whole operations that may be there after a crash.
    pub fn done(&self, layer: usize, point: u32) -> Span {
        self.settings.done(&self.layers, layer, point)
    }

    /// What a recovery at a failure point depends on beside what it reads.
    fn circumstances(&self, layer: usize, point: u32) -> Circumstances {
        let files = self.layers.files(layer, point);
        (files, self.acknowledged_at(layer, point))
    }

    fn trie(&mut self, layer: usize, point: u32) -> TrieId {
        let circumstances = self.circumstances(layer, point);
        self.known.trie(circumstances)
    }

    /// Explores all failure points of a layer. Stops early if time is up.
    pub fn explore(&mut self, layer: usize) -> Result<(), LaunchError> {
        let points = self.layers[layer].recording.points.len() as u32;
        if layer == 0 {
            self.ledger.statistics.failure_points += u64::from(points);
        } else {
            self.ledger.statistics.nested_points += u64::from(points);
        }
        if let (Some(most), None) = (self.settings.executions_max, self.enough_at) {
            self.enough_at = Some(self.ledger.statistics.executions + most);
        }
        let order: Vec<u32> = match self.enough_at {
            Some(_) => spread(points),
            None => (0..points).collect(),
        };
        let mut next = order.into_iter();
        loop {
            self.tell();
            let is_idle = self.queue.is_empty() && self.executor.in_flight() == 0;
            if is_idle && self.sampler.waiting() == 0 && next.len() == 0 {
                break;
            }
            if self
                .enough_at
                .is_some_and(|at| self.ledger.statistics.executions >= at)
            {
                // What is under way was wanted, too.
                while self.executor.in_flight() > 0 {
                    self.receive()?;
                }
                let is_done = self.queue.is_empty() && self.sampler.waiting() == 0;
                if !is_done || next.len() > 0 {
                    self.ledger.stopped.get_or_insert(Halt::Enough);
                    self.ledger.left_over = Some(LeftOver::Points);
                    break;
                }
                continue;
            }
            if self.is_over() {
                self.ledger.left_over = Some(LeftOver::Points);
                break;
            }
            if self.queue.is_empty()
                && let Some(waiting) = self
                    .sampler
                    .ready_to_tear(self.queue.left(), self.executor.in_flight() == 0)
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
            if has_room
                && self.executor.in_flight() < 2 * self.executor.size()
                && let Some(point) = next.next()
            {
                self.begin(layer, point);
                continue;
            }
            self.receive()?;
        }
        if self.ledger.left_over.is_some() {
            self.queue.clear();
            self.sampler.clear();
            while self.executor.in_flight() > 0 {
                if self.executor.wait(Duration::from_millis(100)).is_none()
                    && self.executor.is_broken()
                {
                    break;
                }
            }
        }
        Ok(())
    }

    /// So many more recoveries are enough, unless fewer are.
    pub fn allow(&mut self, most: u64) {
        let at = self.ledger.statistics.executions + most;
        self.enough_at = Some(self.enough_at.map_or(at, |old| old.min(at)));
    }

    /// What is left of a layer need not be done: nobody wants more.
    pub fn forgo(&mut self) {
        if self.ledger.stopped == Some(Halt::Enough) {
            self.ledger.stopped = None;
        }
        self.enough_at = None;
        self.queue.forget();
    }

    fn is_over(&mut self) -> bool {
        if self.settings.runs.end.is_wanted() {
            self.ledger.stopped.get_or_insert(Halt::Asked);
        } else if self
            .settings
            .deadline
            .is_some_and(|at| Instant::now() >= at)
        {
            self.ledger.stopped.get_or_insert(Halt::Time);
            self.settings.runs.end.expire();
        }
        self.ledger.stopped.is_some()
    }

    /// How long the search may go on; `None` if nobody minds, nothing if somebody wants it to end.
    pub fn left(&self) -> Option<Duration> {
        if self.settings.runs.end.is_now() {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        self.settings
            .deadline
            .map(|at| at.saturating_duration_since(now))
    }

    fn tell(&mut self) {
        if self.told.elapsed() >= Duration::from_millis(100) {
            self.told = Instant::now();
            let left = self.left();
            self.progress
                .progress(&self.ledger.statistics, self.ledger.failures.len(), left);
        }
    }

    fn begin(&mut self, layer: usize, point: u32) {
        let view = self.view(layer, point);
        let statistics = &mut self.ledger.statistics;
        statistics.uncertain_lines += view.open().len() as u64;
        if layer == 0 {
            statistics.eager_log2.push(view.states_log2());
        }
        self.queue.begin((layer, point));
    }

    /// Walks along the trie with what is left of a failure point's states; other contents become
    /// items of their own.
    fn follow(&mut self, mut item: Item) {
        let place = (item.layer, item.point);
        if !self.settings.sampling.exhaustive && self.ledger.is_hopeless(place) {
            self.ledger.statistics.abandoned += 1;
            self.leave(place);
            return;
        }
        let trie = self.trie(item.layer, item.point);
        let view = self.view(item.layer, item.point);
        let mut others: Vec<Item> = Vec::new();
        let lent = self.known.lend(trie);
        let reached = lent.walk(|read| {
            if let Some(noted) = &mut self.noted {
                *noted.reads.entry(read.line).or_default() |= read.mask;
            }
            match view.read(read.line, read.mask, &item.narrowed) {
                Seen::Certain(bytes) => bytes,
                Seen::Open(unit, options) => {
                    self.choose(&view, &mut item, read, unit, options, None, &mut others)
                }
            }
        });
        self.known.put_back(trie, lent);
        self.queue.split_off(place, others);
        match reached {
            Reached::Outcome(outcome, path) => {
                self.ledger.statistics.saved += 1;
                self.settled(item, outcome, Some((trie, path)));
            }
            Reached::Pending(node) => self.queue.wait(trie, node, item),
            Reached::Unknown => self.run(item, trie, &view),
        }
    }

    /// Decides what an uncertain read sees (`seen`, if that is known); what else it may see becomes
    /// items.
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
        self.queue.count(place);
        if self.sampler.defer(item, class, read) {
            self.leave(place);
        }
    }

    /// Queues torn contents of one bulk, and counts those that will not be tried.
    fn tear(&mut self, (place, class): (Place, BulkClass)) {
        let view = self.view(place.0, place.1);
        let files = self.layers.files(place.0, place.1);
        let trie = self.trie(place.0, place.1);
        let known = &self.known;
        let newest = || {
            let image = Image::newest(&view, &Narrowed::new(), &files);
            let mut reads = Reads::default();
            known.walk(trie, |read| {
                *reads.entry(read.line).or_default() |= read.mask;
                masked(&image.line(read.line), read.mask)
            });
            (image, reads)
        };
        let (taken, left_out) = self.sampler.take_torn((place, class), newest);
        self.queue.extend(taken);
        match left_out.is_summed {
            true => self.ledger.statistics.checksummed += left_out.count,
            false => self.ledger.statistics.sampled += left_out.count,
        }
        for _ in 0..left_out.waited {
            self.leave(place);
        }
    }

    fn run(&mut self, item: Item, trie: TrieId, view: &View) {
        if let Some(class) = item.payer {
            self.sampler.spend(class, (item.layer, item.point));
        }
        let node = self.known.reserve(trie, |read| {
            match view.read(read.line, read.mask, &item.narrowed) {
                Seen::Certain(bytes) => bytes,
                // The walk has decided all reads up to the unknown one.
                Seen::Open(_, options) => options[options.len() - 1].0,
            }
        });
        self.start(item, trie, node, view);
    }

    fn start(&mut self, item: Item, trie: TrieId, node: NodeId, view: &View) {
        let files = self.layers.files(item.layer, item.point);
        let image = sampler::image(&item, view, &files);
        let acknowledged = self.acknowledged_at(item.layer, item.point);
        let request = self.recovery(&image, acknowledged, false);
        let id = self.executor.start(request);
        self.ledger.statistics.executions += 1;
        let running = Running {
            item,
            trie,
            node,
            image,
        };
        self.queue.start(id, running);
    }

    /// Waits for an answer for a moment, and takes it in.
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
        let Some(running) = self.queue.take(id) else {
            return Ok(());
        };
        if self.settings.runs.end.is_now() {
            // It may have been cut short.
            return Ok(());
        }
        match execution {
            Ok(execution) => self.learn(running, &execution),
            Err(error) => self.lost(error)?,
        }
        Ok(())
    }

    /// Adds an execution to what is known, and has everybody walk on who has waited for it.
    fn learn(&mut self, running: Running, execution: &Execution) {
        let Running {
            mut item,
            trie,
            node,
            image,
        } = running;
        let turns = self.settings.runs.turns.are_wanted();
        self.ledger.account(execution, turns);
        let outcome = self.known.intern(&execution.outcome);
        match self.known.insert(trie, node, execution, outcome) {
            Ok(()) => {
                self.ledger.statistics.paths += 1;
                let circumstances = self.circumstances(item.layer, item.point);
                self.known.write_down(&circumstances, execution);
            }
            // The last read of an instruction that it kills (a division by what it read) is not
            // reported.
            Err(diverged)
                if diverged.ended && matches!(execution.outcome.status, Status::Signal(_)) =>
            {
                self.known.settle(trie, node, outcome);
            }
            // Its threads take turns as they like, or chance decides what it looks at first. If it
            // comes to the same end when it is run again, this is how the states end that look
            // alike to what it has read.
            Err(_) if item.ended.contains(&outcome) => {
                self.ledger.statistics.unsteady += 1;
                self.known.give_back(trie, node);
                self.queue.wake(trie, node);
                self.follow_itself(item, &execution.path, outcome);
                return;
            }
            Err(_) if item.retries < RETRIES => {
                item.retries += 1;
                item.ended.insert(outcome);
                let view = self.view(item.layer, item.point);
                self.start(item, trie, node, &view);
                return;
            }
            Err(diverged) => {
                self.ledger.coverage.limit(
                    Limit::Nondeterministic,
                    format!(
                        "recovery is not deterministic (two runs that had read the same {} times went on differently): \
                         its crash states were not explored exhaustively",
                        diverged.after
                    ),
                );
                self.known.settle(trie, node, outcome);
            }
        }
        let crash = Crash {
            layer: item.layer,
            point: item.point,
            image,
        };
        let distinct_max = self.settings.distinct_max;
        self.ledger.distinct(&crash, outcome, distinct_max);
        // Its own reads may have been open, too: those other contents are found by walking once
        // more.
        self.ledger.statistics.saved = self.ledger.statistics.saved.saturating_sub(1);
        self.queue.push(item);
        self.queue.wake(trie, node);
    }

    /// A recovery could not be run to its end. If that is our fault, what was found until then is
    /// worth telling.
    fn lost(&mut self, error: LaunchError) -> Result<(), LaunchError> {
        if !error.is_bug() {
            return Err(error);
        }
        self.ledger.bug.get_or_insert(error.to_string());
        self.ledger.stopped.get_or_insert(Halt::Bug);
        Ok(())
    }

    fn recovery(&self, image: &Image, acknowledged: Acknowledged, detail: bool) -> Request {
        let want = Want::Outcome {
            acknowledged,
            detail,
        };
        Request::recovery(&self.settings.runs.recover, image.clone(), want)
    }

    /// Settles the states that agree with all that a recovery has read; other contents of that
    /// become items of their own.
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
        self.queue.split_off((item.layer, item.point), others);
        self.settled(item, outcome, None);
    }

    /// Takes what an earlier exploration has found out.
    pub fn remember(&mut self, entries: &[Entry]) {
        let new = self.known.remember(entries);
        self.ledger.statistics.resumed += new;
        self.ledger.statistics.paths += new;
    }

    /// A part of a failure point's states ends like this, as an execution in a trie has shown.
    fn settled(&mut self, item: Item, outcome: u32, execution: Option<(TrieId, PathId)>) {
        let place = (item.layer, item.point);
        self.leave(place);
        self.sampler.ended(item.payer, place, outcome);
        if self.settings.keep_outcomes {
            self.ledger
                .outcomes
                .insert((item.layer, item.point, outcome));
        }
        if self.settings.keep_crashes && item.layer == 0 {
            *self.ledger.crashed.entry(item.point).or_default() += 1;
        }
        if let Some(noted) = &mut self.noted {
            noted.outcomes.insert(outcome);
        }
        if execution.is_some() && self.settings.self_test > 0 {
            self.sample.offer(&item, outcome);
        }
        let done = self.done(item.layer, item.point);
        let Some(symptom) = self
            .settings
            .oracle
            .judge(&self.known.outcomes[outcome as usize], done)
        else {
            // One that fails by itself needs no second crash, and one that changes nothing leaves
            // the crash state that it found, wherever it is cut short.
            if let Some(execution) = execution
                && self.settings.keep_survivors
                && !self.known.changes_nothing(&execution)
            {
                let state = State {
                    layer: item.layer,
                    point: item.point,
                    narrowed: item.narrowed,
                };
                self.ledger.survived.add(execution, state);
            }
            return;
        };
        let failure = Failure {
            layer: item.layer,
            point: item.point,
            narrowed: item.narrowed,
            symptom,
        };
        if let Some(failure) = self.ledger.failed(&self.layers, failure) {
            self.pass_over(&failure);
        }
    }

    /// Nobody will look into this one.
    pub fn pass_over(&mut self, failure: &Failure) {
        if self.settings.keep_unexplained {
            self.ledger.pass_over(&self.layers, failure);
        }
    }

    /// One item less at a failure point.
    fn leave(&mut self, place: Place) {
        if self.queue.leave(place) {
            self.ledger.statistics.points_done += 1;
        }
    }

    /// Groups of reads of which not all combinations were tried.
    pub fn sampled_groups(&self) -> usize {
        self.sampler.sampled_groups()
    }

    /// Failure points of which not all is settled.
    pub fn unsettled(&self) -> usize {
        self.queue.left().len()
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

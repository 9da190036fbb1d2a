//! The rules, driven by the event stream.
//!
//! ```text
//!  event ─▶ site number ─▶ keys (file, offset) ─▶ model ─▶ outcome ─▶ rules ─▶ collector
//! ```
//! Which rule looks where: stores (`tx-*`, `store-outside-tx`, `overwritten-unpersisted`), write-backs and fences
//! (`clean-flush`, `double-flush`, `oversized-flush`, `empty-fence`), requests (`not-*`, `*-log`, `cross-tx-overlap`), ends of mappings,
//! processes and sections (`missing-*`, `transient-data`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brownout_abi::annotation;
use brownout_model::{
    ByteRange, Event as ModelEvent, FlushOutcome, Intervals, LINE_BYTES, Line, Op, Outcome,
    Persistency, Status, Tag, Write,
};
use brownout_trace::event::{
    Access, Event, EventKind, ExitStatus, FenceKind, FileId, FlushKind, LIBRARY_FUNCTIONS,
    ProcessId, TargetAddr, ThreadId,
};
use brownout_trace::maps::{AddressSpaces, FileRange};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Options;
use crate::collect::{Collector, RawEvent, Rule};
use crate::ranges::RangeSet;
use crate::sites::{Site, Sites};
use crate::space;
use crate::thread::{FlushRun, Section, Thread};
use crate::tx::{Logged, Transactions, own_number};

/// Stores to a line that was never written back, from which on it is called transient: often enough that writing it
/// back each time cannot have been meant.
const TRANSIENT_STORES_MIN: u16 = 64;
/// Sites remembered between two fences for the sake of suggestions.
const BEFORE_FENCE_MAX: usize = 64;

/// pmemcheck's requests, as offsets from its base.
pub(crate) mod pmemcheck {
    pub const REGISTER_PMEM_MAPPING: u32 = 0;
    pub const REMOVE_PMEM_MAPPING: u32 = 2;
    pub const DO_FLUSH: u32 = 5;
    pub const DO_FENCE: u32 = 6;
    pub const SET_CLEAN: u32 = 17;
    pub const START_TX: u32 = 18;
    pub const START_TX_N: u32 = 19;
    pub const END_TX: u32 = 20;
    pub const END_TX_N: u32 = 21;
    pub const ADD_TO_TX: u32 = 22;
    pub const ADD_TO_TX_N: u32 = 23;
    pub const REMOVE_FROM_TX: u32 = 24;
    pub const REMOVE_FROM_TX_N: u32 = 25;
    pub const ADD_THREAD_TX_N: u32 = 26;
    pub const REMOVE_THREAD_FROM_TX_N: u32 = 27;
    pub const ADD_TO_GLOBAL_TX_IGNORE: u32 = 28;
}

/// What the run consisted of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// All events.
    pub events: u64,
    /// Stores of any kind to persistent memory.
    pub stores: u64,
    /// Write-backs.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Outermost transactions.
    pub transactions: u64,
}

/// A tracked file.
#[derive(Clone, Debug, Default)]
pub(crate) struct PmFile {
    pub path: String,
    /// Where it was mapped, last first: offset, length, address.
    mappings: VecDeque<(u64, u64, u64)>,
}

/// Mappings remembered of each file, for the sake of addresses in reports.
const MAPPINGS_MAX: usize = 64;

impl PmFile {
    /// Where the program had the byte at `offset`, 0 if that is forgotten.
    pub fn address(&self, offset: u64) -> u64 {
        self.addresses(offset).next().unwrap_or(0)
    }

    /// Everywhere that some process had the byte at `offset`, last first.
    pub fn addresses(&self, offset: u64) -> impl Iterator<Item = u64> {
        let holds = move |(from, len, _): &&(u64, u64, u64)| offset.wrapping_sub(*from) < *len;
        let found = self.mappings.iter().filter(holds);
        found.map(move |(from, _, addr)| addr + (offset - from))
    }
}

/// What happens to the model when a store is seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StoreKind {
    Plain,
    NonTemporal,
    Locked,
}

/// Keys and target address of part of an access.
type Part = (ByteRange, TargetAddr);
type Parts = SmallVec<[Part; 2]>;

/// Why a range must be persistent now.
struct Ending {
    role: &'static str,
    text: String,
    tag: Tag,
    thread: Option<ThreadId>,
}

/// Rules over one run: give it every event in order, then [`finish`](Checker::finish).
#[derive(Debug)]
pub struct Checker {
    options: Options,
    pub(crate) model: Intervals,
    pub(crate) spaces: AddressSpaces,
    pub(crate) sites: Sites,
    pub(crate) collector: Collector,
    pub(crate) files: BTreeMap<FileId, PmFile>,
    pub(crate) transactions: Transactions,
    counts: Counts,
    threads: Vec<Thread>,
    thread_index: FxHashMap<ThreadId, usize>,
    recent_thread: (ThreadId, usize),
    /// Never judged.
    excluded: RangeSet,
    /// Never required in a transaction.
    tx_ignored: RangeSet,
    /// Only to be stored to in a transaction.
    tx_only: RangeSet,
    variables: BTreeMap<Vec<u8>, (u64, u64)>,
    /// Processes that a signal ended: what they left behind was not meant to be complete.
    killed: BTreeSet<ProcessId>,
    /// Store sites that a transaction's end has reported.
    reported_in_tx: BTreeSet<Tag>,
    /// Library calls are seen, so requests need not be judged for repetition.
    sees_library_calls: bool,
    ended: Option<ExitStatus>,
}

impl Checker {
    /// A checker that has seen nothing.
    pub fn new(options: Options) -> Self {
        Checker {
            model: Intervals::new(options.model),
            spaces: AddressSpaces::new(),
            sites: Sites::new(),
            collector: Collector::new(options.rules),
            files: BTreeMap::new(),
            transactions: Transactions::default(),
            counts: Counts::default(),
            threads: vec![Thread::default()],
            thread_index: FxHashMap::from_iter([(ThreadId(0), 0)]),
            recent_thread: (ThreadId(0), 0),
            excluded: RangeSet::default(),
            tx_ignored: RangeSet::default(),
            tx_only: RangeSet::default(),
            variables: BTreeMap::new(),
            killed: BTreeSet::new(),
            reported_in_tx: BTreeSet::new(),
            sees_library_calls: false,
            ended: None,
            options,
        }
    }

    /// The next event of the run.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>) {
        self.counts.events += 1;
        match &event.kind {
            EventKind::Store(access) | EventKind::KernelStore { access, .. } => {
                self.store(event, access, StoreKind::Plain);
            }
            EventKind::NtStore(access) => self.store(event, access, StoreKind::NonTemporal),
            EventKind::Rmw(access) => self.store(event, access, StoreKind::Locked),
            EventKind::Flush { kind, addr } => self.flush(event, *kind, *addr),
            EventKind::Fence(kind) => self.fence(event, *kind),
            EventKind::Pmemcheck { code, args, .. } => self.pmemcheck(event, *code, args),
            EventKind::LibraryCall { function, args } => self.library_call(event, *function, args),
            EventKind::Load(_) | EventKind::Context { .. } | EventKind::Futex { .. } => {}
            _ => self.rare(event),
        }
    }

    /// What to answer to an annotation that asks.
    pub fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        let EventKind::Annotation { code, text, .. } = question.kind else {
            return [0; 3];
        };
        match code {
            annotation::CHECKPOINT => [self.collector.failures, 0, 0],
            annotation::FIND_VARIABLE => match self.variables.get(text) {
                Some((addr, len)) => [1, *addr, *len],
                None => [0; 3],
            },
            _ => [0; 3],
        }
    }

    /// Occurrences of correctness findings so far.
    pub fn failures(&self) -> u64 {
        self.collector.failures
    }

    /// What the run consisted of so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How the run ended, if it did.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.ended
    }

    /// True if a signal ended a process, so that what it had not made persistent was not judged.
    pub fn was_killed(&self) -> bool {
        !self.killed.is_empty()
    }

    /// What is known of a thread, if it did anything yet.
    pub(crate) fn known_thread(&self, thread: ThreadId) -> Option<&Thread> {
        let at = self.thread_index.get(&thread)?;
        Some(&self.threads[*at])
    }

    /// No event follows. What is not persistent then is judged if the run ended in order.
    pub(crate) fn finish(&mut self) {
        for at in 0..self.threads.len() {
            self.finish_run(at);
        }
        if self.ended.is_none() {
            return;
        }
        let everything = ByteRange::new(TargetAddr(0), u64::MAX);
        let ending = Ending {
            role: "exit",
            text: "the program ends".to_owned(),
            tag: Tag(0),
            thread: None,
        };
        self.must_be_persistent(everything, &ending);
    }

    // ------------------------------------------------------------------ who and where

    #[inline]
    fn thread(&mut self, thread: ThreadId) -> usize {
        if self.recent_thread.0 == thread {
            return self.recent_thread.1;
        }
        let next = self.threads.len();
        let at = *self.thread_index.entry(thread).or_insert(next);
        if at == next {
            let process = self.spaces.process_of(thread).unwrap_or_default();
            self.threads.push(Thread {
                id: thread,
                process,
                ..Thread::default()
            });
        }
        self.recent_thread = (thread, at);
        at
    }

    #[inline]
    fn tag(&mut self, at: usize, event: &Event<'_>) -> Tag {
        self.sites.number(Site {
            process: self.threads[at].process,
            pc: event.pc,
            context: event.context,
        })
    }

    /// The tracked parts of a range; most often one.
    fn parts(&mut self, thread: ThreadId, addr: TargetAddr, len: u64) -> Parts {
        let mut parts = Parts::new();
        if let Some(range) = self.whole(thread, addr, len) {
            parts.push((range, addr));
            return parts;
        }
        let mut at = addr.0;
        space::translate(&mut self.spaces, thread, addr, len, |range| {
            parts.push((range, TargetAddr(at)));
            at += range.len();
        });
        parts
    }

    /// The range as one key range, if one mapping has all of it.
    #[inline]
    fn whole(&mut self, thread: ThreadId, addr: TargetAddr, len: u64) -> Option<ByteRange> {
        let found = self.spaces.translate(thread, addr)?;
        (found.contiguous >= len).then(|| {
            space::key_range(FileRange {
                file: found.file,
                offset: found.offset,
                len,
            })
        })
    }

    // ------------------------------------------------------------------ stores

    #[inline]
    fn store(&mut self, event: &Event<'_>, access: &Access<'_>, kind: StoreKind) {
        let at = self.thread(event.thread);
        if self.threads[at].run.is_some() {
            self.finish_run(at);
        }
        self.counts.stores += 1;
        let tag = self.tag(at, event);
        let len = u64::from(access.size);
        match self.whole(event.thread, access.addr, len) {
            Some(range) => self.store_part(event.thread, at, tag, (range, access.addr), kind),
            None => {
                for part in self.parts(event.thread, access.addr, len) {
                    self.store_part(event.thread, at, tag, part, kind);
                }
            }
        }
    }

    fn store_part(&mut self, thread: ThreadId, at: usize, tag: Tag, part: Part, kind: StoreKind) {
        if !self.excluded.is_empty() && self.excluded.overlaps(part.0) {
            let gaps = self.excluded.gaps(part.0);
            for gap in gaps {
                let into = gap.start().0 - part.0.start().0;
                let addr = TargetAddr(part.1.0 + into);
                self.judged_store(thread, at, tag, (gap, addr), kind);
            }
            return;
        }
        self.judged_store(thread, at, tag, part, kind);
    }

    #[inline]
    fn judged_store(&mut self, thread: ThreadId, at: usize, tag: Tag, part: Part, kind: StoreKind) {
        let (range, addr) = part;
        let write = Write::without_values(range);
        let op = match kind {
            StoreKind::Plain => Op::Store(write),
            StoreKind::NonTemporal => Op::NtStore(write),
            StoreKind::Locked => Op::Rmw(write),
        };
        let outcome = self
            .model
            .apply_tagged(&ModelEvent::new(thread.into(), op), tag);
        let state = &mut self.threads[at];
        if state.stopped {
            self.model.forget(range);
            return;
        }
        state.has_stored = true;
        if kind == StoreKind::NonTemporal {
            state.to_fence += 1;
        }
        if let Some(section) = &mut state.section {
            section.touched.add(range);
        }
        if self.sites.next_fence(tag).is_none()
            && state.before_fence.len() < BEFORE_FENCE_MAX
            && !state.before_fence.contains(&tag)
        {
            state.before_fence.push(tag);
        }
        if let Outcome::Stored {
            overwrote_unpersisted: Some(earlier),
        } = outcome
            && self.collector.is_on(Rule::OverwrittenUnpersisted)
        {
            self.overwritten(thread, tag, earlier, part);
        }
        if !self.threads[at].transactions.is_empty() {
            self.store_in_transaction(thread, at, tag, part);
        } else if self.options.tx_only
            || !self.tx_only.is_empty() && self.tx_only.overlaps(range)
        {
            self.store_outside_transaction(thread, tag, (range, addr));
        }
    }

    #[cold]
    fn overwritten(&mut self, thread: ThreadId, tag: Tag, earlier: Tag, part: Part) {
        let now = self.model.now();
        let size = part.0.len();
        self.collector
            .report(Rule::OverwrittenUnpersisted, tag, earlier, size, || {
                let message = format!(
                    "{} overwritten before the previous content was persistent",
                    bytes_are(size)
                );
                let events = vec![
                    RawEvent::new("store", "overwritten here", tag)
                        .by(thread)
                        .at(now)
                        .on(part.0, part.1),
                    RawEvent::new("earlier-store", "the previous content is stored here", earlier),
                ];
                (message, events)
            });
    }

    fn store_in_transaction(&mut self, thread: ThreadId, at: usize, tag: Tag, part: Part) {
        let (range, addr) = part;
        let numbers = &self.threads[at].transactions;
        let mut covered = false;
        for number in numbers {
            if let Some(transaction) = self.transactions.get_mut(*number) {
                transaction.touched.add(range);
                covered |= transaction.logged.covers(range);
            }
        }
        if covered || self.tx_ignored.covers(range) {
            return;
        }
        // Word by word in the worst case: part may be logged here, part there, part ignored.
        let mut left = self.tx_ignored.gaps(range);
        for number in numbers {
            if let Some(transaction) = self.transactions.get(*number) {
                left = left
                    .iter()
                    .flat_map(|gap| transaction.logged.gaps(*gap))
                    .collect();
            }
        }
        let Some(first) = left.first().copied() else {
            return;
        };
        let now = self.model.now();
        let into = first.start().0 - range.start().0;
        let size = left.iter().map(|gap| gap.len()).sum();
        self.collector
            .report(Rule::TxUnloggedStore, tag, Tag(0), size, || {
                let message = format!(
                    "{} stored to in a transaction that has neither logged nor allocated them",
                    bytes_are(size)
                );
                let event = RawEvent::new("store", stored(size), tag)
                    .by(thread)
                    .at(now)
                    .on(first, TargetAddr(addr.0 + into));
                (message, vec![event])
            });
    }

    fn store_outside_transaction(&mut self, thread: ThreadId, tag: Tag, part: Part) {
        if self.tx_ignored.covers(part.0) {
            return;
        }
        let now = self.model.now();
        let size = part.0.len();
        self.collector
            .report(Rule::StoreOutsideTx, tag, Tag(0), size, || {
                let message = format!("{} stored to outside any transaction", bytes_are(size));
                let event = RawEvent::new("store", stored(size), tag)
                    .by(thread)
                    .at(now)
                    .on(part.0, part.1);
                (message, vec![event])
            });
    }

    // ------------------------------------------------------------------ write-backs and fences

    #[inline]
    fn flush(&mut self, event: &Event<'_>, kind: FlushKind, addr: TargetAddr) {
        let at = self.thread(event.thread);
        self.counts.flushes += 1;
        let Some(found) = self.spaces.translate(event.thread, addr) else {
            return;
        };
        let tag = self.tag(at, event);
        let offset = found.offset & !(LINE_BYTES - 1);
        let line = space::key_range(FileRange {
            file: found.file,
            offset,
            len: LINE_BYTES,
        });
        let addr = TargetAddr(addr.0 & !(LINE_BYTES - 1));
        self.flush_line(event.thread, at, tag, kind, (line, addr));
    }

    #[inline]
    fn flush_line(&mut self, thread: ThreadId, at: usize, tag: Tag, kind: FlushKind, part: Part) {
        let (line, addr) = part;
        let op = Op::Flush {
            kind,
            line: Line::of(line.start()),
        };
        let outcome = self
            .model
            .apply_tagged(&ModelEvent::new(thread.into(), op), tag);
        let Outcome::Flushed(outcome) = outcome else {
            return;
        };
        let state = &mut self.threads[at];
        state.to_fence += 1;
        if state.stopped || self.excluded.overlaps(line) {
            // What was stored there is not known, so neither is whether the write-back was needed.
            return;
        }
        let goes_on = state
            .run
            .as_ref()
            .is_some_and(|run| run.tag == tag && run.next == line.start().0);
        if !goes_on {
            if state.run.is_some() {
                self.finish_run(at);
            }
            self.threads[at].run = Some(FlushRun {
                tag,
                next: line.start().0,
                first: line,
                first_addr: addr,
                begun: self.model.now(),
                lines: 0,
                clean: 0,
                again: 0,
                persisted: None,
                earlier: Tag(0),
                useless: None,
            });
        }
        let Some(run) = &mut self.threads[at].run else {
            return;
        };
        run.lines += 1;
        run.next = line.end().0;
        match outcome {
            FlushOutcome::Useful => return,
            FlushOutcome::Again { earlier } => {
                run.again += 1;
                run.earlier = earlier;
            }
            FlushOutcome::Clean { persisted } => {
                run.clean += 1;
                run.persisted = run.persisted.or(persisted);
            }
            FlushOutcome::Ignored => run.clean += 1,
        }
        run.useless.get_or_insert((line, addr));
    }

    /// Judges the write-backs of a range as a whole.
    fn finish_run(&mut self, at: usize) {
        let Some(run) = self.threads[at].run.take() else {
            return;
        };
        if run.clean == 0 && run.again == 0 {
            return;
        }
        let thread = self.threads[at].id;
        let place = run.useless.unwrap_or((run.first, run.first_addr));
        let flush_event = |text: String| {
            RawEvent::new("flush", text, run.tag)
                .by(thread)
                .at(run.begun)
                .on(place.0, place.1)
        };
        if run.clean > 0 {
            let oversized = run.clean < run.lines && run.clean * 2 > run.lines;
            let rule = match oversized {
                true => Rule::OversizedFlush,
                false => Rule::CleanFlush,
            };
            let pointless = self.options.model.domain.rules().clwb
                == brownout_model::FlushRule::Ignored;
            self.collector.report(rule, run.tag, Tag(0), run.clean, || {
                let message = match (pointless, run.lines) {
                    (true, _) => "a write-back in a domain where write-backs do nothing".to_owned(),
                    (false, 1) if run.persisted.is_none() => {
                        "a write-back of a line that was never modified".to_owned()
                    }
                    (false, 1) => {
                        "a write-back of a line that was not modified since it was last persistent"
                            .to_owned()
                    }
                    (false, lines) => format!(
                        "{} of {} lines written back were not modified since they were last persistent",
                        grouped(run.clean),
                        grouped(lines)
                    ),
                };
                let text = match run.lines {
                    1 => "the line is written back here".to_owned(),
                    lines => format!("{} lines are written back here", grouped(lines)),
                };
                let mut events = vec![flush_event(text)];
                if let Some((store, flush)) = run.persisted {
                    events.push(RawEvent::new("earlier-store", "it was last stored to here", store));
                    if flush != Tag(0) && flush != run.tag {
                        let text = "and written back here already";
                        events.push(RawEvent::new("earlier-flush", text, flush));
                    }
                }
                (message, events)
            });
        }
        if run.again > 0 {
            let (tag, earlier, again) = (run.tag, run.earlier, run.again);
            self.collector
                .report(Rule::DoubleFlush, tag, Tag(0), again, || {
                    let message = "a second write-back of a line to which nothing was stored in between";
                    let first = RawEvent::new("earlier-flush", "written back here first", earlier);
                    let text = "the line is written back again here".to_owned();
                    (message.to_owned(), vec![flush_event(text), first])
                });
        }
    }

    fn fence(&mut self, event: &Event<'_>, kind: FenceKind) {
        let at = self.thread(event.thread);
        if self.threads[at].run.is_some() {
            self.finish_run(at);
        }
        let tag = self.tag(at, event);
        let op = match kind {
            FenceKind::Sfence => Op::Sfence,
            FenceKind::Mfence => Op::Mfence,
            FenceKind::Locked => Op::Locked,
        };
        let outcome = self
            .model
            .apply_tagged(&ModelEvent::new(event.thread.into(), op), tag);
        if kind == FenceKind::Locked {
            // It is there for other reasons; that it also completes write-backs is welcome.
            return;
        }
        self.counts.fences += 1;
        let completed = outcome == Outcome::Fenced { completed: true };
        self.fenced(event, at, tag, completed, kind == FenceKind::Sfence);
    }

    fn fenced(&mut self, event: &Event<'_>, at: usize, tag: Tag, completed: bool, judged: bool) {
        let state = &mut self.threads[at];
        let nothing_to_do = !completed && state.to_fence == 0;
        state.to_fence = 0;
        for store in state.before_fence.drain(..) {
            self.sites.set_next_fence(store, tag);
        }
        if nothing_to_do && judged && state.has_stored && !state.stopped {
            let now = self.model.now();
            let thread = event.thread;
            self.collector.report(Rule::EmptyFence, tag, Tag(0), 0, || {
                let message = "a fence with nothing to complete: no write-back and no non-temporal \
                               store of this thread since its previous fence";
                let fence = RawEvent::new("fence", "fenced here", tag);
                (message.to_owned(), vec![fence.by(thread).at(now)])
            });
        }
    }

    // ------------------------------------------------------------------ requests of pmemcheck's kind

    fn pmemcheck(&mut self, event: &Event<'_>, code: u32, args: &[u64; 4]) {
        let at = self.thread(event.thread);
        if self.threads[at].run.is_some() {
            self.finish_run(at);
        }
        let thread = event.thread;
        let (addr, len) = (TargetAddr(args[0]), args[1]);
        let (addr_n, len_n) = (TargetAddr(args[1]), args[2]);
        match code {
            pmemcheck::REGISTER_PMEM_MAPPING => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.excluded.remove(range);
                }
            }
            pmemcheck::SET_CLEAN => self.forget(thread, addr, len),
            pmemcheck::DO_FLUSH => {
                let tag = self.tag(at, event);
                self.threads[at].to_fence += 1;
                for (range, _) in self.parts(thread, addr, len) {
                    self.model
                        .flush_range(thread.into(), range, FlushKind::Clwb, tag);
                }
            }
            pmemcheck::DO_FENCE => {
                let tag = self.tag(at, event);
                self.model
                    .apply_tagged(&ModelEvent::new(thread.into(), Op::Sfence), tag);
                self.fenced(event, at, tag, true, false);
            }
            pmemcheck::START_TX => self.tx_begin(at, own_number(thread)),
            pmemcheck::START_TX_N => self.tx_begin(at, args[0]),
            pmemcheck::END_TX => self.tx_end(event, at, own_number(thread)),
            pmemcheck::END_TX_N => self.tx_end(event, at, args[0]),
            pmemcheck::ADD_TO_TX => self.tx_add(event, at, own_number(thread), addr, len, false),
            pmemcheck::ADD_TO_TX_N => self.tx_add(event, at, args[0], addr_n, len_n, false),
            pmemcheck::REMOVE_FROM_TX => self.tx_remove(thread, own_number(thread), addr, len),
            pmemcheck::REMOVE_FROM_TX_N => self.tx_remove(thread, args[0], addr_n, len_n),
            pmemcheck::ADD_THREAD_TX_N => {
                if self.transactions.get(args[0]).is_some() {
                    self.threads[at].transactions.push(args[0]);
                }
            }
            pmemcheck::REMOVE_THREAD_FROM_TX_N => {
                self.threads[at].transactions.retain(|n| *n != args[0]);
            }
            pmemcheck::ADD_TO_GLOBAL_TX_IGNORE => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.tx_ignored.insert(range, ());
                }
            }
            pmemcheck::REMOVE_PMEM_MAPPING => {
                let tag = self.tag(at, event);
                let ending = Ending {
                    role: "unmap",
                    text: "the region is given up here".to_owned(),
                    tag,
                    thread: Some(thread),
                };
                for (range, start) in self.parts(thread, addr, len) {
                    // libpmemobj cuts holes for what it keeps in the pool only while it runs.
                    if self.spaces.is_whole_mapping(thread, start, range.len()) {
                        self.region_ends(range, &ending);
                    } else {
                        self.excluded.insert(range, ());
                        self.model.forget(range);
                    }
                }
            }
            _ => {}
        }
    }

    fn forget(&mut self, thread: ThreadId, addr: TargetAddr, len: u64) {
        match self.whole(thread, addr, len) {
            Some(range) => self.model.forget(range),
            None => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.model.forget(range);
                }
            }
        }
    }

    // ------------------------------------------------------------------ transactions

    fn tx_begin(&mut self, at: usize, number: u64) {
        if self.transactions.begin(number, self.model.now()) {
            self.counts.transactions += 1;
        }
        if !self.threads[at].transactions.contains(&number) {
            self.threads[at].transactions.push(number);
        }
    }

    fn tx_end(&mut self, event: &Event<'_>, at: usize, number: u64) {
        let Some(mut ended) = self.transactions.end(number) else {
            return;
        };
        let thread = event.thread;
        for state in &mut self.threads {
            state.transactions.retain(|open| *open != number);
        }
        let mut left: Vec<(ByteRange, Status)> = Vec::new();
        for line in ended.touched.take() {
            if self.model.is_line_persisted(line.start()) {
                continue;
            }
            let unfinished = self.model.unpersisted_in(line);
            left.extend(unfinished.filter(|(_, s)| s.stored > ended.begun));
        }
        if left.is_empty() {
            return;
        }
        let end = self.tag(at, event);
        for (range, status) in left {
            // What the library keeps out of transactions is not the transaction's to persist.
            if self.tx_ignored.covers(range) {
                continue;
            }
            self.reported_in_tx.insert(status.tag);
            let next_fence = self.sites.next_fence(status.tag);
            self.collector
                .report(Rule::TxNotPersisted, status.tag, Tag(0), range.len(), || {
                    let message = format!(
                        "{} stored in a transaction and not persistent when it ends",
                        bytes_are(range.len())
                    );
                    let mut events = not_persistent(range, &status, next_fence);
                    let text = "the transaction ends here";
                    events.push(RawEvent::new("tx-end", text, end).by(thread));
                    (message, events)
                });
        }
    }

    /// `asked`: by a call or annotation, which is judged for repetition.
    fn tx_add(
        &mut self,
        event: &Event<'_>,
        at: usize,
        number: u64,
        addr: TargetAddr,
        len: u64,
        asked: bool,
    ) {
        let tag = self.tag(at, event);
        let thread = event.thread;
        let allocated = self.threads[at].allocates;
        for part in self.parts(thread, addr, len) {
            if !allocated
                && let Some((range, logged)) = self.transactions.logged_elsewhere(number, part.0)
            {
                self.overlap(thread, tag, logged, (range, part.1));
            }
            if (asked || !self.sees_library_calls && !allocated) && !self.threads[at].stopped {
                self.judge_log(thread, number, tag, part);
            }
            if let Some(transaction) = self.transactions.get_mut(number) {
                let value = Logged {
                    allocated,
                    tag,
                    thread,
                };
                transaction.logged.insert_new(part.0, value);
            }
        }
    }

    fn overlap(&mut self, thread: ThreadId, tag: Tag, logged: Logged, part: Part) {
        let now = self.model.now();
        let size = part.0.len();
        self.collector
            .report(Rule::CrossTxOverlap, tag, logged.tag, size, || {
                let message = format!(
                    "{} in two transactions that are open at the same time",
                    bytes_are(size)
                );
                let first = RawEvent::new("log", "logged here", tag);
                let text = "and in another open transaction here";
                let other = RawEvent::new("earlier-log", text, logged.tag).by(logged.thread);
                (message, vec![first.by(thread).at(now).on(part.0, part.1), other])
            });
    }

    /// Is all of the range in the transaction already?
    fn judge_log(&mut self, thread: ThreadId, number: u64, tag: Tag, part: Part) {
        let Some(transaction) = self.transactions.get(number) else {
            return;
        };
        if part.0.is_empty() || !transaction.logged.covers(part.0) {
            return;
        }
        let known: Vec<Logged> = transaction
            .logged
            .overlapping(part.0)
            .map(|(_, logged)| logged)
            .collect();
        let fresh = known.iter().all(|logged| logged.allocated);
        let earlier = known.iter().find(|logged| logged.allocated == fresh);
        let Some(earlier) = earlier.copied() else {
            return;
        };
        if let Some(transaction) = self.transactions.get_mut(number) {
            // Asked for once more, what was allocated counts as logged.
            let new: Vec<_> = transaction.logged.overlapping(part.0).collect();
            let new = new.into_iter().filter(|(_, logged)| logged.allocated);
            for (range, _) in new {
                let asked = Logged {
                    allocated: false,
                    tag,
                    thread,
                };
                transaction.logged.insert(range, asked);
            }
        }
        let now = self.model.now();
        let size = part.0.len();
        let log = |text: &str| {
            RawEvent::new("log", text, tag)
                .by(thread)
                .at(now)
                .on(part.0, part.1)
        };
        match fresh {
            true => self.collector.report(Rule::FreshLog, tag, Tag(0), size, || {
                let message = format!(
                    "{} logged that the same transaction has allocated",
                    bytes_are(size)
                );
                let alloc = RawEvent::new("alloc", "allocated here", earlier.tag);
                (message, vec![log("logged here"), alloc])
            }),
            false => self
                .collector
                .report(Rule::DuplicateLog, tag, Tag(0), size, || {
                    let message = format!(
                        "{} logged again in the same transaction",
                        bytes_are(size)
                    );
                    let first = RawEvent::new("earlier-log", "logged here first", earlier.tag);
                    (message, vec![log("logged again here"), first])
                }),
        }
    }

    fn tx_remove(&mut self, thread: ThreadId, number: u64, addr: TargetAddr, len: u64) {
        let parts = self.parts(thread, addr, len);
        if let Some(transaction) = self.transactions.get_mut(number) {
            for (range, _) in parts {
                transaction.logged.remove(range);
            }
        }
    }

    fn library_call(&mut self, event: &Event<'_>, function: u32, args: &[u64; 5]) {
        self.sees_library_calls = true;
        let at = self.thread(event.thread);
        let Some(name) = LIBRARY_FUNCTIONS.get(function as usize) else {
            return;
        };
        let state = &mut self.threads[at];
        state.allocates = false;
        let (addr, len) = match *name {
            "pmemobj_tx_begin" => {
                state.pool = TargetAddr(args[0]);
                return;
            }
            // PMEMoid by value: pool, offset; then offset in the object, size.
            "pmemobj_tx_add_range" | "pmemobj_tx_xadd_range" => {
                let offset = args[1].wrapping_add(args[2]);
                (state.pool.0.wrapping_add(offset), args[3])
            }
            "pmemobj_tx_add_range_direct" | "pmemobj_tx_xadd_range_direct" => (args[0], args[1]),
            name => {
                state.allocates = name.contains("alloc") || name.contains("dup");
                return;
            }
        };
        if state.stopped {
            return;
        }
        // Only judged here: the request that follows says what the library really logs.
        let tag = self.tag(at, event);
        for part in self.parts(event.thread, TargetAddr(addr), len) {
            self.judge_log(event.thread, own_number(event.thread), tag, part);
        }
    }

    // ------------------------------------------------------------------ everything rarer

    fn rare(&mut self, event: &Event<'_>) {
        match &event.kind {
            EventKind::File { file, path, .. } => {
                let path = String::from_utf8_lossy(path).into_owned();
                self.files.entry(*file).or_default().path = path;
            }
            EventKind::ThreadStart { thread, process, .. } => {
                let (thread, process) = (*thread, *process);
                self.observe(event);
                let at = self.thread(thread);
                self.threads[at].process = process;
            }
            EventKind::ThreadExit => {
                let at = self.thread(event.thread);
                self.finish_run(at);
            }
            EventKind::Map { addr, len, .. } | EventKind::Unmap { addr, len } => {
                if let EventKind::Map { file, offset, .. } = &event.kind {
                    let mappings = &mut self.files.entry(*file).or_default().mappings;
                    mappings.truncate(MAPPINGS_MAX - 1);
                    mappings.push_front((*offset, *len, addr.0));
                }
                let at = self.thread(event.thread);
                self.finish_run(at);
                let ranges = self.spaces.ranges(event.thread, *addr, *len);
                self.observe(event);
                if !ranges.is_empty() {
                    let ending = Ending {
                        role: "unmap",
                        text: "the region is unmapped here".to_owned(),
                        tag: self.tag(at, event),
                        thread: Some(event.thread),
                    };
                    self.mappings_end(&ranges, &ending);
                }
            }
            EventKind::ProcessExit { process, status } => {
                let ranges = self.spaces.ranges_of(*process);
                self.observe(event);
                if matches!(status, ExitStatus::Signal(_)) {
                    self.killed.insert(*process);
                    return;
                }
                let text = match status {
                    ExitStatus::Exec => "the program is replaced by another",
                    _ => "the program ends",
                };
                let ending = Ending {
                    role: "exit",
                    text: text.to_owned(),
                    tag: Tag(0),
                    thread: None,
                };
                self.mappings_end(&ranges, &ending);
            }
            EventKind::Msync { addr, len, flags } => {
                const MS_SYNC: u32 = 4;
                if flags & MS_SYNC != 0 {
                    let at = self.thread(event.thread);
                    let tag = self.tag(at, event);
                    for (range, _) in self.parts(event.thread, *addr, *len) {
                        self.synchronised(event.thread, range, tag);
                    }
                }
            }
            EventKind::Fsync { file, .. } => {
                let at = self.thread(event.thread);
                let tag = self.tag(at, event);
                self.synchronised(event.thread, space::whole_file(*file), tag);
            }
            EventKind::FileWrite {
                file, offset, size, ..
            } => {
                // Not a store through a mapping: when it persists is the file system's affair.
                let (file, offset) = (*file, *offset);
                let len = u64::from(*size);
                self.model
                    .forget(space::key_range(FileRange { file, offset, len }));
            }
            EventKind::Truncate { file, size } => {
                let (file, offset) = (*file, *size);
                let len = u64::MAX;
                self.model
                    .forget(space::key_range(FileRange { file, offset, len }));
            }
            EventKind::Annotation { code, args, text } => self.annotation(event, *code, args, text),
            EventKind::End { status } => {
                self.ended = Some(*status);
                if matches!(status, ExitStatus::Signal(_)) {
                    self.killed.insert(ProcessId(1));
                }
            }
            _ => self.observe(event),
        }
    }

    /// A stream that does not fit together is the reader's to reject; here it only loses translations.
    fn observe(&mut self, event: &Event<'_>) {
        let _ = self.spaces.observe(event);
        self.recent_thread = (ThreadId(0), 0);
    }

    fn synchronised(&mut self, thread: ThreadId, range: ByteRange, tag: Tag) {
        let event = ModelEvent::new(thread.into(), Op::Msync(range));
        self.model.apply_tagged(&event, tag);
    }

    /// Mappings went away: what no other mapping shows must be persistent.
    fn mappings_end(&mut self, ranges: &[FileRange], ending: &Ending) {
        let mut gone = RangeSet::default();
        for range in ranges {
            gone.insert(space::key_range(*range), ());
        }
        for range in self.spaces.all_ranges() {
            gone.remove(space::key_range(range));
        }
        let everything = ByteRange::new(TargetAddr(0), u64::MAX);
        let gone: Vec<ByteRange> = gone.overlapping(everything).map(|(range, _)| range).collect();
        for range in gone {
            self.region_ends(range, ending);
        }
    }

    fn region_ends(&mut self, range: ByteRange, ending: &Ending) {
        self.must_be_persistent(range, ending);
        self.model.forget(range);
        self.excluded.remove(range);
        self.tx_ignored.remove(range);
        self.tx_only.remove(range);
    }

    fn must_be_persistent(&mut self, range: ByteRange, ending: &Ending) {
        let left: Vec<(ByteRange, Status)> = self.model.unpersisted_in(range).collect();
        let mut transient_line = None;
        for (range, status) in left {
            let by_killed = self
                .thread_index
                .get(&ThreadId(status.thread.0))
                .is_some_and(|at| self.killed.contains(&self.threads[*at].process));
            if by_killed || self.reported_in_tx.contains(&status.tag) {
                continue;
            }
            self.report_unpersisted(range, &status, ending);
            let line = range.start().0 / LINE_BYTES;
            let stores = self.model.stores_without_write_back(range.start().0);
            if status.state == Persistency::Dirty
                && transient_line != Some(line)
                && let Some(stores) = stores
                && stores >= TRANSIENT_STORES_MIN
            {
                transient_line = Some(line);
                self.report_transient(range, &status, stores);
            }
        }
    }

    fn report_unpersisted(&mut self, range: ByteRange, status: &Status, ending: &Ending) {
        let next_fence = self.sites.next_fence(status.tag);
        let (rule, what) = match status.state {
            Persistency::Dirty => (Rule::MissingFlush, "never written back"),
            Persistency::Draining => (Rule::MissingFence, "past the cache and never fenced"),
            _ => (Rule::MissingFence, "written back and never fenced"),
        };
        self.collector
            .report(rule, status.tag, Tag(0), range.len(), || {
                let message = format!("{} stored, {what}", bytes_are(range.len()));
                let mut events = not_persistent(range, status, next_fence);
                let end = RawEvent::new(ending.role, ending.text.clone(), ending.tag);
                events.push(RawEvent {
                    thread: ending.thread,
                    ..end
                });
                (message, events)
            });
    }

    fn report_transient(&mut self, range: ByteRange, status: &Status, stores: u16) {
        self.collector
            .report(Rule::TransientData, status.tag, Tag(0), LINE_BYTES, || {
                let message = format!(
                    "a line is stored to {} times and never written back: it belongs in DRAM",
                    match stores {
                        // The count saturates.
                        65_000.. => "more than 65,000".to_owned(),
                        n => grouped(u64::from(n)),
                    }
                );
                let store = RawEvent::new("store", "last stored to here", status.tag)
                    .by(ThreadId(status.thread.0))
                    .at(status.stored)
                    .on(range, TargetAddr(0));
                (message, vec![store])
            });
    }

    // ------------------------------------------------------------------ annotations

    fn annotation(&mut self, event: &Event<'_>, code: u32, args: &[u64; 5], text: &[u8]) {
        let thread = event.thread;
        let at = self.thread(thread);
        self.finish_run(at);
        let (addr, len) = (TargetAddr(args[0]), args[1]);
        match code {
            annotation::START => self.threads[at].stopped = false,
            annotation::STOP => self.threads[at].stopped = true,
            annotation::EXCLUDE => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.excluded.insert(range, ());
                    self.model.forget(range);
                }
            }
            annotation::INCLUDE => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.excluded.remove(range);
                }
            }
            annotation::IS_PERSISTED => self.assert_persisted(event, at, addr, len),
            annotation::IS_ORDERED_BEFORE => {
                let b = (TargetAddr(args[2]), args[3]);
                self.assert_ordered(event, at, (addr, len), b);
            }
            annotation::TX_BEGIN => self.tx_begin(at, own_number(thread)),
            annotation::TX_END => self.tx_end(event, at, own_number(thread)),
            annotation::TX_ADD => self.tx_add(event, at, own_number(thread), addr, len, true),
            annotation::TX_ALLOC => {
                self.threads[at].allocates = true;
                self.tx_add(event, at, own_number(thread), addr, len, false);
                self.threads[at].allocates = false;
            }
            annotation::TX_ONLY => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.tx_only.insert(range, ());
                }
            }
            annotation::SECTION_BEGIN => {
                self.threads[at].section = Some(Section {
                    begun: self.model.now(),
                    ..Section::default()
                });
            }
            annotation::SECTION_END => self.section_end(event, at),
            annotation::OFENCE | annotation::DFENCE | annotation::FENCE => {
                let op = match code {
                    annotation::OFENCE => Op::Ofence,
                    annotation::DFENCE => Op::Dfence,
                    _ => Op::Sfence,
                };
                let tag = self.tag(at, event);
                let model_event = ModelEvent::new(thread.into(), op);
                let outcome = self.model.apply_tagged(&model_event, tag);
                self.counts.fences += 1;
                let completed = outcome == Outcome::Fenced { completed: true };
                // Often it stands beside the real instruction: not judged for being superfluous.
                self.fenced(event, at, tag, completed, false);
            }
            annotation::STORE => {
                let tag = self.tag(at, event);
                self.counts.stores += 1;
                for part in self.parts(thread, addr, len) {
                    self.store_part(thread, at, tag, part, StoreKind::Plain);
                }
            }
            annotation::FLUSH => {
                let tag = self.tag(at, event);
                self.threads[at].to_fence += 1;
                for (range, _) in self.parts(thread, addr, len) {
                    self.model
                        .flush_range(thread.into(), range, FlushKind::Clwb, tag);
                }
            }
            annotation::SET_CLEAN => self.forget(thread, addr, len),
            annotation::REGISTER_VARIABLE => {
                self.variables.insert(text.to_vec(), (args[1], args[2]));
            }
            annotation::UNREGISTER_VARIABLE => {
                self.variables.remove(text);
            }
            _ => {}
        }
    }

    fn assert_persisted(&mut self, event: &Event<'_>, at: usize, addr: TargetAddr, len: u64) {
        let assertion = self.tag(at, event);
        let thread = event.thread;
        for (range, _) in self.parts(thread, addr, len) {
            let left: Vec<(ByteRange, Status)> = self.model.unpersisted_in(range).collect();
            for (range, status) in left {
                let next_fence = self.sites.next_fence(status.tag);
                self.collector
                    .report(Rule::NotPersisted, status.tag, assertion, range.len(), || {
                        let message = format!(
                            "{} asserted to be persistent, and not",
                            bytes_are(range.len())
                        );
                        let mut events = not_persistent(range, &status, next_fence);
                        let text = "asserted to be persistent here";
                        events.push(RawEvent::new("assertion", text, assertion).by(thread));
                        (message, events)
                    });
            }
        }
    }

    fn assert_ordered(
        &mut self,
        event: &Event<'_>,
        at: usize,
        a: (TargetAddr, u64),
        b: (TargetAddr, u64),
    ) {
        let assertion = self.tag(at, event);
        let thread = event.thread;
        let first = self.parts(thread, a.0, a.1);
        let second = self.parts(thread, b.0, b.1);
        for (a, _) in &first {
            for (b, _) in &second {
                if self.model.is_ordered_before(*a, *b) {
                    continue;
                }
                let earlier: Vec<(ByteRange, Status)> = self.model.status(*a).collect();
                let guilty = earlier
                    .iter()
                    .find(|(part, _)| !self.model.is_ordered_before(*part, *b))
                    .or(earlier.first());
                let later = self.model.status(*b).min_by_key(|(_, s)| s.persist.from);
                let (Some((a_part, a_status)), Some((b_part, b_status))) = (guilty, later) else {
                    continue;
                };
                let (a_part, a_status) = (*a_part, *a_status);
                let next_fence = self.sites.next_fence(a_status.tag);
                self.collector.report(
                    Rule::NotOrdered,
                    a_status.tag,
                    assertion,
                    a_part.len(),
                    || {
                        let message = "asserted to persist before something else, which can persist \
                                       first"
                            .to_owned();
                        let mut events = not_persistent(a_part, &a_status, next_fence);
                        let later = RawEvent::new(
                            "later-store",
                            format!("{} that can persist before it", stored(b_part.len())),
                            b_status.tag,
                        );
                        events.push(
                            later
                                .by(ThreadId(b_status.thread.0))
                                .at(b_status.stored)
                                .on(b_part, TargetAddr(0)),
                        );
                        let text = "the order is asserted here";
                        events.push(RawEvent::new("assertion", text, assertion).by(thread));
                        (message, events)
                    },
                );
            }
        }
    }

    fn section_end(&mut self, event: &Event<'_>, at: usize) {
        let tag = self.tag(at, event);
        let ending = Ending {
            role: "section-end",
            text: "the section ends here".to_owned(),
            tag,
            thread: Some(event.thread),
        };
        let thread = event.thread;
        let left: Vec<(ByteRange, Status)> = match self.threads[at].section.take() {
            Some(mut section) => {
                let lines = section.touched.take();
                let begun = section.begun;
                lines
                    .into_iter()
                    .flat_map(|line| self.model.unpersisted_in(line))
                    .filter(|(_, s)| s.stored > begun && s.thread.0 == thread.0)
                    .collect()
            }
            None => {
                let unfinished = self.model.unpersisted();
                unfinished.filter(|(_, s)| s.thread.0 == thread.0).collect()
            }
        };
        for (range, status) in left {
            self.report_unpersisted(range, &status, &ending);
        }
    }
}

/// The store that is not persistent, and what was done for it.
fn not_persistent(range: ByteRange, status: &Status, next_fence: Option<Tag>) -> Vec<RawEvent> {
    let thread = ThreadId(status.thread.0);
    let store = RawEvent::new("store", stored(range.len()), status.tag)
        .by(thread)
        .at(status.stored)
        .on(range, TargetAddr(0));
    let mut events = vec![store];
    match status.state {
        Persistency::Dirty => {
            if let Some(fence) = next_fence {
                let text = "the thread's next fence is here, with no write-back in between";
                events.push(RawEvent::new("fence", text, fence));
            }
        }
        Persistency::Flushing => {
            let text = "written back here, with no fence of that thread afterwards";
            events.push(RawEvent::new("flush", text, status.flush_tag));
        }
        _ => {}
    }
    events
}

fn bytes_are(size: u64) -> String {
    match size {
        1 => "1 byte is".to_owned(),
        n => format!("{} bytes are", grouped(n)),
    }
}

fn stored(size: u64) -> String {
    format!("{} stored here", bytes_are(size))
}

/// 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

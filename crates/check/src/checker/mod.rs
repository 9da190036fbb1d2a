//! The rules, driven by the event stream.
//!
//! ```text
//!  event ─▶ site number ─▶ keys (file, offset) ─▶ model ─▶ outcome ─▶ rules ─▶ collector
//! ```
//! Which rule looks where: stores (`tx-*`, `store-outside-tx`, `overwritten-unpersisted`),
//! write-backs and fences (`clean-flush`, `double-flush`, `oversized-flush`, `redirtied-line`,
//! `flush-outside-pm`, `empty-fence`, `no-fence`), requests (`not-*`, `*-log`, `cross-tx-overlap`),
//! ends of mappings, processes and sections (`missing-*`, `transient-data`).

mod annotations;
mod endings;
mod flushes;
mod requests;
mod stores;
mod transactions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brownout_findings::numbers::{counted, grouped};
use brownout_findings::{BuiltIn, Role};
use brownout_model::registered::Registered;
use brownout_model::{
    ByteRange, Event as ModelEvent, FlushOutcome, Intervals, Key, LINE_BYTES, Line, Moment, Op,
    Outcome, Persistency, Status, Tag, keys,
};
use brownout_trace::event::{
    Access, ContextId, Event, EventKind, ExitStatus, FenceKind, FileId, FlushKind,
    LIBRARY_FUNCTIONS, MS_SYNC, ProcessId, THREAD_FUNCTIONS_FROM, TargetAddr, ThreadId,
};
use brownout_trace::maps::{AddressSpaces, FileRange, MapFault};
use brownout_trace::{annotation, pmemcheck};
use rustc_hash::FxHashMap;
use serde::Serialize;
use smallvec::SmallVec;

use crate::Options;
use crate::collect::{Collector, RawEvent};
use crate::excluded::Excluded;
use crate::ranges::{RangeMap, RangeSet};
use crate::sites::{LibraryCode, Site, Sites};
use crate::thread::{FlushRun, Section, Thread};
use crate::threads::known::Threads;
use crate::tx::{Logged, Transaction, Transactions, own_number};

/// Stores to a line that was never written back, from which on it is called transient: often enough
/// that writing it back each time cannot have been meant.
const TRANSIENT_STORES_MIN: u16 = 64;

/// What the run consisted of.
#[derive(Clone, Copy, Debug, Default, Serialize)]
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
    role: Role,
    text: String,
    tag: Tag,
    thread: Option<ThreadId>,
}

/// Who unmapped a range that was not persistent then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unmapping {
    process: ProcessId,
    thread: ThreadId,
    tag: Tag,
}

impl From<Unmapping> for Ending {
    fn from(unmapping: Unmapping) -> Ending {
        Ending {
            role: Role::Unmap,
            text: "the region is unmapped here".to_owned(),
            tag: unmapping.tag,
            thread: Some(unmapping.thread),
        }
    }
}

/// Whether the program fences at all.
#[derive(Clone, Copy, Debug, Default)]
struct Fencing {
    /// The first fence of any kind, locked instructions included.
    first: Option<Tag>,
    /// It was one that is there for other reasons.
    first_is_locked: bool,
    /// Write-backs that a fence must complete; the first of them.
    write_backs: u64,
    first_write_back: Tag,
    /// There was one after the first fence.
    goes_on: bool,
    /// What an end found unfenced before the first fence.
    left: Option<Tag>,
}

impl Fencing {
    #[inline(always)]
    fn fence(&mut self, tag: Tag, is_locked: bool) {
        if self.first.is_none() {
            self.first = Some(tag);
            self.first_is_locked = is_locked;
        }
        // One that is meant, however late, is one.
        self.first_is_locked &= is_locked;
    }

    #[inline(always)]
    fn write_back(&mut self, tag: Tag) {
        if self.write_backs == 0 {
            self.first_write_back = tag;
        }
        self.write_backs += 1;
        self.goes_on |= self.first.is_some();
    }
}

/// Which of two independent halves of the rules a checker looks after. What the other half needs,
/// it does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duties {
    /// What is persistent when: the model, and all rules that ask it.
    pub persistency: bool,
    /// What transactions have logged.
    pub logging: bool,
}

impl Duties {
    /// Both.
    pub const ALL: Duties = Duties {
        persistency: true,
        logging: true,
    };
    /// The first half.
    pub const PERSISTENCY: Duties = Duties {
        persistency: true,
        logging: false,
    };
    /// The second half.
    pub const LOGGING: Duties = Duties {
        persistency: false,
        logging: true,
    };
}

/// Rules over one run: give it every event in order, then take its end by `finish`.
#[derive(Debug)]
pub struct Checker {
    options: Options,
    duties: Duties,
    pub(crate) model: Intervals,
    pub(crate) spaces: AddressSpaces,
    pub(crate) sites: Sites,
    pub(crate) collector: Collector,
    pub(crate) files: BTreeMap<FileId, PmFile>,
    pub(crate) transactions: Transactions,
    counts: Counts,
    threads: Vec<Thread>,
    thread_index: FxHashMap<ThreadId, usize>,
    /// Threads looked up last, by their number.
    recent_threads: [(ThreadId, usize); RECENT_THREADS],
    /// Where each of these went last.
    windows: [Window; RECENT_THREADS],
    /// Never judged.
    pub(crate) excluded: Excluded,
    /// Never required in a transaction.
    tx_ignored: RangeSet,
    /// Only to be stored to in a transaction.
    tx_only: RangeSet,
    /// What no process has mapped any more and was not persistent when the last one unmapped it.
    unmapped: RangeMap<Unmapping>,
    variables: BTreeMap<Vec<u8>, (u64, u64)>,
    /// What they were called when.
    pub(crate) registered: Registered,
    /// Processes that a signal ended: what they left behind was not meant to be complete.
    killed: BTreeSet<ProcessId>,
    /// Store sites that a transaction's end has reported.
    reported_in_tx: BTreeSet<Tag>,
    /// Code of libpmem and libpmemobj, in whatever process: start and end.
    pub(crate) library_code: LibraryCode,
    fencing: Fencing,
    /// Library calls are seen, so requests need not be judged for repetition.
    sees_library_calls: bool,
    ended: Option<ExitStatus>,
    /// The first event that does not fit those before it.
    fault: Option<MapFault>,
    /// What threads can read of each other, if that is asked for.
    pub(crate) threads_watch: Option<Box<Threads>>,
}

impl Checker {
    /// A checker that has seen nothing.
    pub fn new(options: Options) -> Self {
        Checker::with_duties(options, Duties::ALL)
    }

    /// A checker that looks after part of the rules.
    pub(crate) fn with_duties(options: Options, duties: Duties) -> Self {
        Checker {
            duties,
            model: Intervals::new(options.model),
            spaces: AddressSpaces::new(),
            sites: Sites::new(),
            collector: Collector::new(options.rules),
            files: BTreeMap::new(),
            transactions: Transactions::default(),
            counts: Counts::default(),
            threads: vec![Thread::default()],
            thread_index: FxHashMap::from_iter([(ThreadId(0), 0)]),
            recent_threads: Default::default(),
            windows: Default::default(),
            excluded: Excluded::default(),
            tx_ignored: RangeSet::default(),
            tx_only: RangeSet::default(),
            unmapped: RangeMap::default(),
            variables: BTreeMap::new(),
            registered: Registered::default(),
            killed: BTreeSet::new(),
            reported_in_tx: BTreeSet::new(),
            library_code: LibraryCode::default(),
            fencing: Fencing::default(),
            sees_library_calls: false,
            ended: None,
            fault: None,
            threads_watch: (options.threads && duties.persistency)
                .then(|| Box::new(Threads::new(options.model.domain))),
            options,
        }
    }

    /// The next event of the run.
    pub fn event(&mut self, event: &Event<'_>) {
        self.next_event(event);
    }

    /// As [`event`](Self::event), to be compiled into a loop over events.
    #[inline(always)]
    pub(crate) fn next_event(&mut self, event: &Event<'_>) {
        self.counts.events += 1;
        let (thread, pc, context) = (event.thread, event.pc, event.context);
        match event.kind {
            EventKind::Store(access)
            | EventKind::KernelStore { access, .. }
            | EventKind::StringStore { access, .. } => {
                self.store(thread, pc, context, &access, StoreKind::Plain);
            }
            EventKind::NtStore(access) => {
                self.store(thread, pc, context, &access, StoreKind::NonTemporal);
            }
            EventKind::Rmw(access) => {
                self.store(thread, pc, context, &access, StoreKind::Locked);
            }
            EventKind::Flush { kind, addr } => {
                if self.duties.persistency {
                    self.flush(thread, pc, context, kind, addr);
                }
            }
            EventKind::Fence(kind) => {
                if self.duties.persistency {
                    self.fence(thread, pc, context, kind);
                }
            }
            EventKind::Pmemcheck { code, args, .. } => {
                self.pmemcheck(thread, pc, context, code, args);
            }
            EventKind::LibraryCall { function, args } => {
                if self.duties.logging {
                    self.library_call(thread, pc, context, function, args);
                }
            }
            EventKind::FlushOutside { addr, word } => {
                if self.duties.persistency {
                    self.flush_outside(thread, pc, context, addr, word);
                }
            }
            EventKind::Load(_)
            | EventKind::Context { .. }
            | EventKind::Futex { .. }
            | EventKind::Opened { .. }
            | EventKind::Atomic { .. } => {}
            _ => {
                // A copy, lest the event have to be in memory for the sake of the rare.
                let event = event.clone();
                self.rare(&event);
            }
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

    /// True if only `msync` makes anything persistent.
    pub(crate) fn persists_by_msync(&self) -> bool {
        self.options.model.domain == brownout_model::Domain::Page
    }

    /// True if only write-backs bring data out of the caches.
    pub(crate) fn loses_caches(&self) -> bool {
        self.options.model.domain == brownout_model::Domain::X86
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

    /// The first event that does not fit those before it, if there is one: then what was found
    /// means little.
    pub fn fault(&self) -> Option<MapFault> {
        self.fault
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
        self.finish_threads();
        if self.ended.is_none() {
            return;
        }
        let everything = ByteRange::new(Key(0), u64::MAX);
        let left: Vec<(ByteRange, Unmapping)> = self.unmapped.overlapping(everything).collect();
        for (range, unmapping) in left {
            self.region_ends(range, &unmapping.into());
        }
        let ending = Ending {
            role: Role::Exit,
            text: "the program ends".to_owned(),
            tag: Tag(0),
            thread: None,
        };
        self.must_be_persistent(everything, &ending);
        self.never_fenced();
    }

    // ------------------------------------------------------------------ the model

    #[inline]
    fn apply(&mut self, thread: ThreadId, op: Op<'_>, tag: Tag) -> Outcome {
        let event = ModelEvent::new(thread.into(), op);
        self.model.apply_at(self.moment(), &event, tag)
    }

    /// A write-back of a range that no instruction made.
    fn write_back(&mut self, thread: ThreadId, range: ByteRange, tag: Tag) {
        let now = self.moment();
        self.model
            .flush_range(now, thread.into(), range, FlushKind::Clwb, tag);
    }

    // ------------------------------------------------------------------ when, who and where

    /// The place of the event that is being looked at, from 1.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.counts.events)
    }

    #[inline(always)]
    pub(crate) fn thread(&mut self, thread: ThreadId) -> usize {
        match self.recent_threads[recent_at(thread)] {
            (recent, at) if recent == thread => at,
            _ => self.find_thread(thread),
        }
    }

    /// The process of a thread, and whether the program has switched judgement off for it.
    pub(crate) fn process_and_pause(&self, at: usize) -> (ProcessId, bool) {
        let thread = &self.threads[at];
        (thread.process, thread.stopped)
    }

    #[inline(never)]
    fn find_thread(&mut self, thread: ThreadId) -> usize {
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
        self.recent_threads[recent_at(thread)] = (thread, at);
        at
    }

    #[inline(always)]
    pub(crate) fn tag(&mut self, at: usize, pc: TargetAddr, context: ContextId) -> Tag {
        self.sites.number(Site {
            process: self.threads[at].process,
            pc,
            context,
        })
    }

    /// As [`tag`](Self::tag), of an event at hand.
    fn tag_of(&mut self, at: usize, event: &Event<'_>) -> Tag {
        self.tag(at, event.pc, event.context)
    }

    /// The tracked parts of a range; most often one.
    pub(crate) fn parts(&mut self, thread: ThreadId, addr: TargetAddr, len: u64) -> Parts {
        let mut parts = Parts::new();
        if let Some(range) = self.whole(thread, addr, len) {
            parts.push((range, addr));
            return parts;
        }
        // Programs may talk about memory that is not tracked.
        let _ = keys::translate(&mut self.spaces, thread, addr, len, |range, into| {
            parts.push((range, TargetAddr(addr.0 + into)));
        });
        parts
    }

    /// As [`parts`](Self::parts), of what an instruction has done: all of it must be tracked.
    fn parts_of_access(&mut self, thread: ThreadId, addr: TargetAddr, len: u64) -> Parts {
        let mut parts = Parts::new();
        let explained = keys::translate(&mut self.spaces, thread, addr, len, |range, into| {
            parts.push((range, TargetAddr(addr.0 + into)));
        });
        if let Err(fault) = explained {
            self.fault.get_or_insert(fault);
        }
        parts
    }

    /// The range as one key range, if one mapping has all of it.
    #[inline(always)]
    pub(crate) fn whole(
        &mut self,
        thread: ThreadId,
        addr: TargetAddr,
        len: u64,
    ) -> Option<ByteRange> {
        match self.windows[recent_at(thread)].key(thread, addr, len) {
            Some(key) => Some(ByteRange::new(key, len)),
            None => self.move_window(thread, addr, len),
        }
    }

    #[inline(never)]
    fn move_window(&mut self, thread: ThreadId, addr: TargetAddr, len: u64) -> Option<ByteRange> {
        let found = self.spaces.translate(thread, addr)?;
        let mapping = keys::range(FileRange {
            file: found.file,
            offset: found.offset.wrapping_sub(found.preceding),
            len: found.preceding.saturating_add(found.contiguous),
        });
        let window = Window {
            thread,
            addr: TargetAddr(addr.0 - found.preceding),
            len: mapping.len(),
            key: mapping.start(),
        };
        self.windows[recent_at(thread)] = window;
        let key = window.key(thread, addr, len)?;
        Some(ByteRange::new(key, len))
    }
}

/// So many threads can take turns without being looked up each time: a power of two.
const RECENT_THREADS: usize = 8;

/// Where a thread is remembered.
#[inline(always)]
fn recent_at(thread: ThreadId) -> usize {
    thread.0 as usize % RECENT_THREADS
}

/// The mapping that a thread's last access went to.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    thread: ThreadId,
    addr: TargetAddr,
    len: u64,
    key: Key,
}

impl Window {
    /// The key of `addr`, if `len` bytes from there lie in the window.
    #[inline(always)]
    fn key(&self, thread: ThreadId, addr: TargetAddr, len: u64) -> Option<Key> {
        let into = addr.0.wrapping_sub(self.addr.0);
        let inside = self.thread == thread && into < self.len && len <= self.len - into;
        inside.then(|| Key(self.key.0 + into))
    }
}

/// What checkers with different duties answer together.
pub(crate) fn join_answers(question: &Event<'_>, answers: &[[u64; 3]]) -> [u64; 3] {
    let adds_up = matches!(
        question.kind,
        EventKind::Annotation {
            code: annotation::CHECKPOINT,
            ..
        }
    );
    match adds_up {
        true => [answers.iter().map(|answer| answer[0]).sum(), 0, 0],
        false => answers.first().copied().unwrap_or_default(),
    }
}

/// The store that is not persistent, and what was done for it.
fn not_persistent(range: ByteRange, status: &Status, next_fence: Option<Tag>) -> Vec<RawEvent> {
    let thread = ThreadId(status.thread.0);
    let store = RawEvent::new(Role::Store, stored(range.len()), status.tag)
        .by(thread)
        .at(status.stored)
        .on(range, TargetAddr(0));
    let mut events = vec![store];
    match status.state {
        Persistency::Dirty => {
            if let Some(fence) = next_fence {
                let text = "the thread's next fence is here, with no write-back in between";
                events.push(RawEvent::new(Role::Fence, text, fence));
            }
        }
        Persistency::Flushing => {
            let text = "written back here, with no fence of that thread afterwards";
            events.push(RawEvent::new(Role::Flush, text, status.flush_tag));
        }
        _ => {}
    }
    events
}

fn bytes_are(size: u64) -> String {
    let verb = if size == 1 { "is" } else { "are" };
    format!("{} {verb}", counted(size, "byte"))
}

fn stored(size: u64) -> String {
    format!("{} stored here", bytes_are(size))
}

//! Persist intervals: the fast view.
//!
//! Follows PMTest, sections 4.4 and 5.2. Guarantee: what it calls persisted is in every legal crash
//! state, and what it calls ordered is never reordered in one; it may fail to see that something is
//! persisted or ordered (for instance by standing in one line). Memory follows the lines stored to
//! and the lines flushed since the last fence, not the number of events; an event costs time in the
//! lines it touches.

use std::collections::HashMap;

use crate::domain::{Config, FenceRule, FlushOrder, FlushRule, Rules, StoreRule};
use crate::shadow::{Entry, Shadow, Slot, Stored, mask};
use crate::state::{Input, Persistency};
use crate::types::{
    ByteRange, Epoch, Event, FlushKind, Key, LINE_BYTES, Line, Moment, Op, Tag, Thread,
};

/// When something happens: not before `from`, and by the beginning of `to` at the latest, if that
/// is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The epoch in which it can happen first.
    pub from: Epoch,
    /// The epoch by whose beginning it has happened; `None` while it may still be open.
    pub to: Option<Epoch>,
}

/// The intervals of a byte range and of the last store to it.
///
/// Bytes of a line that became persistent together are told apart by epochs only: `stored`, `tag`
/// and `flush_tag` are then those of the latest store among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How far the last store has come.
    pub state: Persistency,
    /// When it persists.
    pub persist: Interval,
    /// Who stored.
    pub thread: Thread,
    /// When it was stored, in events given to this view.
    pub stored: Moment,
    /// What the store was called by.
    pub tag: Tag,
    /// What the last write-back was called by, if one was issued.
    pub flush_tag: Tag,
    /// Ordering fences of the thread before the store (HOPS).
    order: u32,
}

/// What an event did: what performance rules ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing that intervals know of.
    Nothing,
    /// A store.
    Stored {
        /// The store whose unpersisted bytes it overwrote, if any.
        overwrote_unpersisted: Option<Tag>,
    },
    /// A write-back.
    Flushed(FlushOutcome),
    /// A fence.
    Fenced {
        /// It completed a persist of its thread.
        completed: bool,
    },
}

/// What a write-back met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOutcome {
    /// Dirty data.
    Useful,
    /// Only data with a write-back already under way.
    Again {
        /// That one.
        earlier: Tag,
    },
    /// Nothing that needs a write-back.
    Clean {
        /// The store and the write-back that were last persisted there, if this view saw any.
        persisted: Option<(Tag, Tag)>,
    },
    /// The domain has no use for write-backs.
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waits {
    /// A write-back that this thread issued.
    Flush,
    /// A store of this thread that a fence alone completes.
    Store,
}

/// What a fence completes: stores to these bytes of a line, up to `covers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    slot: Slot,
    waits: Waits,
    mask: u64,
    covers: Moment,
}

#[derive(Clone, Debug, Default)]
struct ThreadView {
    /// What the next fence completes.
    waiting: Vec<Waiting>,
    /// Length of `waiting` at which repetitions are taken out next.
    waiting_tidy_at: usize,
    /// Last event that no later write-back of the thread passes.
    order_point: Moment,
    /// Ordering fences so far.
    order: u32,
}

/// Below this length nothing is gained by looking for repetitions.
const WAITING_TIDY_MIN: usize = 4096;

impl ThreadView {
    #[inline(always)]
    fn wait(&mut self, waits: Waits, slot: Slot, mask: u64, covers: Moment) {
        if let Some(last) = self.waiting.last_mut()
            && last.slot == slot
            && (last.mask, last.waits) == (mask, waits)
        {
            last.covers = last.covers.max(covers);
            return;
        }
        self.waiting.push(Waiting {
            slot,
            waits,
            mask,
            covers,
        });
        if self.waiting.len() >= self.waiting_tidy_at.max(WAITING_TIDY_MIN) {
            self.tidy();
        }
    }

    /// A thread that flushes for ever and never fences must not fill memory.
    #[cold]
    fn tidy(&mut self) {
        self.waiting.sort_unstable();
        self.waiting.reverse();
        self.waiting.dedup_by_key(|w| (w.slot, w.waits, w.mask));
        self.waiting_tidy_at = self.waiting.len() * 2;
    }
}

/// So many threads can take turns without being looked up each time: a power of two.
const RECENT_THREADS: usize = 8;

/// So many lines are looked up one by one.
const FEW_LINES: u64 = 64;

/// Persist intervals of everything stored to.
#[derive(Clone, Debug)]
pub struct Intervals {
    rules: &'static Rules,
    shadow: Shadow,
    threads: Vec<ThreadView>,
    thread_index: HashMap<Thread, usize>,
    /// Threads looked up last, by their number: they take turns.
    recent_threads: [(Thread, usize); RECENT_THREADS],
    /// Fences order what is not persisted yet, so it matters how many a store has seen.
    fences_order: bool,
    /// A write-back covers every store before it.
    covers_all: bool,
    epoch: Epoch,
    now: Moment,
}

fn status_of(entry: &Entry) -> Status {
    let to = entry.persist_to();
    Status {
        state: entry.state,
        persist: Interval {
            from: entry.persist_from,
            to,
        },
        thread: entry.thread,
        stored: entry.stored,
        tag: entry.tag,
        flush_tag: entry.flush_tag,
        order: entry.order,
    }
}

impl Intervals {
    /// Nothing stored yet.
    pub fn new(config: Config) -> Self {
        Intervals {
            rules: config.domain.rules(),
            shadow: Shadow::new(),
            threads: Vec::new(),
            thread_index: HashMap::new(),
            recent_threads: [(Thread(0), usize::MAX); RECENT_THREADS],
            fences_order: config.domain.rules().orders_epochs(),
            covers_all: config.flush_order == FlushOrder::Recorded,
            epoch: Epoch(0),
            now: Moment(0),
        }
    }

    /// The epoch now.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The moment of the last event.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Takes the next event of the total order.
    pub fn apply(&mut self, event: &Event<'_>) -> Outcome {
        self.apply_tagged(event, Tag::default())
    }

    /// As [`apply`](Self::apply), for callers that want to know later which event it was.
    pub fn apply_tagged(&mut self, event: &Event<'_>, tag: Tag) -> Outcome {
        self.apply_at(Moment(self.now.0 + 1), event, tag)
    }

    /// As [`apply_tagged`](Self::apply_tagged), for callers with a clock of their own. It must not
    /// go back; what belongs together may have one moment.
    #[inline]
    pub fn apply_at(&mut self, moment: Moment, event: &Event<'_>, tag: Tag) -> Outcome {
        self.now = moment;
        let thread = event.thread;
        let fenced = self
            .rules
            .fence_of(&event.op)
            .map(|rule| self.fence(thread, rule));
        match &event.op {
            Op::Store(write) | Op::Rmw(write) => {
                self.store_outcome(thread, write.range(), self.rules.store, tag)
            }
            Op::NtStore(write) => {
                self.store_outcome(thread, write.range(), self.rules.nt_store, tag)
            }
            Op::Flush { kind, line } => {
                Outcome::Flushed(self.flush(thread, line.range(), self.rules.flush(*kind), tag))
            }
            Op::Msync(range) => Outcome::Flushed(self.flush(thread, *range, self.rules.msync, tag)),
            Op::Load(_) => {
                let now = self.now;
                self.thread(thread).order_point = now;
                Outcome::Nothing
            }
            Op::Sfence | Op::Mfence | Op::Locked | Op::Ofence | Op::Dfence => Outcome::Fenced {
                completed: fenced.unwrap_or(false),
            },
        }
    }

    fn store_outcome(
        &mut self,
        thread: Thread,
        range: ByteRange,
        rule: StoreRule,
        tag: Tag,
    ) -> Outcome {
        match range.is_empty() {
            true => Outcome::Nothing,
            false => Outcome::Stored {
                overwrote_unpersisted: self.store(thread, range, rule, tag),
            },
        }
    }

    /// As [`apply_at`](Self::apply_at) of [`Op::Store`]. Tells whose unpersisted bytes it
    /// overwrote.
    #[inline(always)]
    pub fn store_at(
        &mut self,
        moment: Moment,
        thread: Thread,
        range: ByteRange,
        tag: Tag,
    ) -> Option<Tag> {
        self.now = moment;
        self.store(thread, range, self.rules.store, tag)
    }

    /// As [`apply_at`](Self::apply_at) of [`Op::NtStore`]. Tells whose unpersisted bytes it
    /// overwrote.
    #[inline]
    pub fn nt_store_at(
        &mut self,
        moment: Moment,
        thread: Thread,
        range: ByteRange,
        tag: Tag,
    ) -> Option<Tag> {
        self.now = moment;
        self.store_any(thread, range, self.rules.nt_store, tag)
    }

    /// As [`apply_at`](Self::apply_at) of a fence: `sfence`, `mfence`, or a locked instruction on
    /// memory that is not tracked. Tells whether it completed something.
    #[inline]
    pub fn fence_at(&mut self, moment: Moment, thread: Thread) -> bool {
        self.now = moment;
        self.fence(thread, self.rules.fence)
    }

    /// As [`apply_at`](Self::apply_at) of [`Op::Flush`].
    #[inline(always)]
    pub fn flush_at(
        &mut self,
        moment: Moment,
        thread: Thread,
        line: Line,
        kind: FlushKind,
        tag: Tag,
    ) -> FlushOutcome {
        self.now = moment;
        let rule = self.rules.flush(kind);
        if rule == FlushRule::AtFence
            && self.covers_all
            && let Some(slot) = self.shadow.find(line.0 * LINE_BYTES)
            && let Some(entry) = self.shadow.only_open(slot)
            && entry.state == Persistency::Dirty
        {
            entry.state = Persistency::Dirty.next(Input::Flush(FlushRule::AtFence));
            entry.flush_tag = tag;
            entry.note_write_back();
            self.thread(thread)
                .wait(Waits::Flush, slot, u64::MAX, moment);
            return FlushOutcome::Useful;
        }
        self.flush(thread, line.range(), rule, tag)
    }

    /// A write-back of every line in `range`, of `kind`, by other means than one instruction a
    /// line.
    pub fn flush_range(
        &mut self,
        moment: Moment,
        thread: Thread,
        range: ByteRange,
        kind: FlushKind,
        tag: Tag,
    ) -> FlushOutcome {
        self.now = moment;
        self.flush(thread, range, self.rules.flush(kind), tag)
    }

    /// Forgets that `range` was stored to: a program said that it is clean, or it was unmapped.
    pub fn forget(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        if range.len() <= LINE_BYTES {
            // The usual request is about a few bytes.
            for part in range.split(LINE_BYTES) {
                if let Some(slot) = self.shadow.find(part.start) {
                    self.shadow.remove(slot, bits(part), |_| {});
                }
            }
            return;
        }
        let is_cleared = self.shadow.clear_pages(range);
        for view in &mut self.threads {
            view.waiting.retain(|wait| !is_cleared(wait.slot));
        }
        let lines: Vec<(u64, Slot)> = self.shadow.lines(range).collect();
        for (addr, slot) in lines {
            if let Some(part) = in_line(range, addr) {
                self.shadow.remove(slot, bits(part), |_| {});
            }
        }
    }

    /// The parts of `range` that were stored to, with their intervals, in address order.
    pub fn status(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, Status)> {
        self.status_where(range, |_| true)
    }

    /// As [`status`](Self::status), of some lines.
    fn status_where(
        &self,
        range: ByteRange,
        wanted: impl Fn(Slot) -> bool,
    ) -> impl Iterator<Item = (ByteRange, Status)> {
        let lines = (!range.is_empty()).then(|| self.shadow.lines(range));
        let lines = lines.into_iter().flatten();
        let lines = lines.filter(move |(_, slot)| wanted(*slot));
        lines.flat_map(move |(addr, slot)| {
            let wanted = in_line(range, addr).map_or(0, bits);
            let mut parts = Vec::new();
            for entry in self.shadow.entries(slot) {
                let mut left = entry.mask & wanted;
                while left != 0 {
                    let first = left.trailing_zeros();
                    let len = (left >> first).trailing_ones();
                    left &= !mask(first.into(), len.into());
                    let start = addr + u64::from(first);
                    let end = start.saturating_add(len.into());
                    parts.push((ByteRange { start, end }, status_of(entry)));
                }
            }
            parts.sort_unstable_by_key(|(part, _)| part.start);
            parts
        })
    }

    /// Everything that is not persisted, in address order.
    pub fn unpersisted(&self) -> impl Iterator<Item = (ByteRange, Status)> {
        self.unpersisted_in(ByteRange {
            start: 0,
            end: u64::MAX,
        })
    }

    /// What of `range` is not persisted, in address order.
    pub fn unpersisted_in(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, Status)> {
        self.status_where(range, |slot| !self.shadow.is_persisted(slot))
            .filter(|(_, status)| !status.state.is_persisted())
    }

    /// True if the last stores to the line of `addr`, as far as they were made after `moment`, are
    /// all in every crash state.
    #[inline]
    pub fn is_line_persisted_since(&mut self, addr: Key, moment: Moment) -> bool {
        let Some(slot) = self.shadow.find(addr.0) else {
            return true;
        };
        self.shadow.is_persisted(slot)
            || self
                .shadow
                .entries(slot)
                .all(|entry| entry.stored <= moment || entry.state.is_persisted())
    }

    /// Stores to the line of `addr` so far, if it was never written back; saturates.
    pub fn stores_without_write_back(&self, addr: u64) -> Option<u16> {
        let slot = self.shadow.peek(addr)?;
        self.shadow.stores_without_write_back(slot)
    }

    /// True if the last stores to all of `range` are in every crash state from now on.
    pub fn is_persisted(&self, range: ByteRange) -> bool {
        self.status(range)
            .all(|(_, status)| status.persist.to.is_some())
    }

    /// True if no crash state has any of the last stores to `b` without all of the last stores to
    /// `a`.
    ///
    /// Where neither was stored to there is nothing to order, and the answer is yes.
    pub fn is_ordered_before(&self, a: ByteRange, b: ByteRange) -> bool {
        let Some(first) = self.status(b).map(|(_, status)| status.persist.from).min() else {
            return true;
        };
        let ends_by_first = |status: &Status| status.persist.to.is_some_and(|to| to <= first);
        self.status(a).all(|(_, earlier)| {
            ends_by_first(&earlier)
                || (self.rules.orders_epochs()
                    && self.status(b).all(|(_, later)| {
                        earlier.thread == later.thread && earlier.order < later.order
                            || earlier
                                .persist
                                .to
                                .is_some_and(|to| to <= later.persist.from)
                    }))
        })
    }

    fn next_epoch(&mut self) -> Epoch {
        self.epoch.0 += 1;
        self.epoch
    }

    #[inline(always)]
    fn thread(&mut self, thread: Thread) -> &mut ThreadView {
        let (recent, at) = self.recent_threads[thread.0 as usize % RECENT_THREADS];
        let at = match recent == thread && at < self.threads.len() {
            true => at,
            false => self.find_thread(thread),
        };
        &mut self.threads[at]
    }

    #[inline(never)]
    fn find_thread(&mut self, thread: Thread) -> usize {
        let next = self.threads.len();
        let at = *self.thread_index.entry(thread).or_insert(next);
        if at == next {
            self.threads.push(ThreadView::default());
        }
        self.recent_threads[thread.0 as usize % RECENT_THREADS] = (thread, at);
        at
    }

    /// Tells whose unpersisted bytes it overwrote.
    #[inline(always)]
    fn store(
        &mut self,
        thread: Thread,
        range: ByteRange,
        rule: StoreRule,
        tag: Tag,
    ) -> Option<Tag> {
        let is_simple = rule == StoreRule::Cached && !self.fences_order;
        if is_simple && let Some(mask) = bits_of_one_line(range) {
            let slot = self.shadow.make(range.start);
            let stored = Stored {
                mask,
                stored: self.now,
                persist_from: self.epoch,
                persist_to: None,
                order: 0,
                thread,
                tag,
                state: Persistency::Clean.next(Input::Store(StoreRule::Cached)),
            };
            return self.shadow.overwrite(slot, &stored);
        }
        self.store_any(thread, range, rule, tag)
    }

    #[inline(never)]
    fn store_any(
        &mut self,
        thread: Thread,
        range: ByteRange,
        rule: StoreRule,
        tag: Tag,
    ) -> Option<Tag> {
        let mut stored = Stored {
            mask: 0,
            stored: self.now,
            persist_from: self.epoch,
            persist_to: (rule == StoreRule::Durable).then(|| self.next_epoch()),
            order: match self.fences_order {
                true => self.thread(thread).order,
                false => 0,
            },
            thread,
            tag,
            state: Persistency::Clean.next(Input::Store(rule)),
        };
        let fence_completes = rule == StoreRule::Unordered
            || rule == StoreRule::Cached && self.rules.dfence == FenceRule::Drains;
        let mut overwritten = None;
        for part in range.split(LINE_BYTES) {
            let slot = self.shadow.make(part.start);
            stored.mask = bits(part);
            overwritten = self.shadow.overwrite(slot, &stored).or(overwritten);
            if fence_completes {
                let now = self.now;
                self.thread(thread)
                    .wait(Waits::Store, slot, stored.mask, now);
            }
        }
        overwritten
    }

    #[inline(never)]
    fn flush(
        &mut self,
        thread: Thread,
        range: ByteRange,
        rule: FlushRule,
        tag: Tag,
    ) -> FlushOutcome {
        if rule == FlushRule::Ignored {
            return FlushOutcome::Ignored;
        }
        let mut met = Met::default();
        let unit_bytes = self.rules.unit_bytes;
        let start = range.start - range.start % unit_bytes;
        let end = range.end.checked_next_multiple_of(unit_bytes);
        let whole = ByteRange {
            start,
            end: end.unwrap_or(u64::MAX),
        };
        if range.is_empty() {
            // Of no line.
        } else if whole.len() <= FEW_LINES * LINE_BYTES {
            let mut addr = whole.start;
            while addr < whole.end {
                if let Some(slot) = self.shadow.find(addr) {
                    self.flush_line(thread, addr, slot, rule, tag, &mut met);
                }
                addr += LINE_BYTES;
            }
        } else {
            let lines: Vec<(u64, Slot)> = self.shadow.lines(whole).collect();
            for (addr, slot) in lines {
                self.flush_line(thread, addr, slot, rule, tag, &mut met);
            }
        }
        if rule == FlushRule::AtOnce {
            self.next_epoch();
        }
        met.outcome()
    }

    #[inline]
    fn flush_line(
        &mut self,
        thread: Thread,
        addr: u64,
        slot: Slot,
        rule: FlushRule,
        tag: Tag,
        met: &mut Met,
    ) {
        let covers = self.covers(thread, addr, rule);
        // `to` lies one epoch ahead, lest something stored earlier in this one pass for later.
        let closes = Epoch(self.epoch.0 + 1);
        let (mut dirty, mut again, mut flushing) = (false, None, false);
        let several = self.shadow.update(slot, |entry| {
            match entry.state {
                Persistency::Dirty => dirty = true,
                Persistency::Flushing => again = Some(entry.flush_tag),
                Persistency::Persisted | Persistency::Clean | Persistency::Draining => {}
            }
            if entry.stored > covers {
                return;
            }
            let next = entry.state.next(Input::Flush(rule));
            if next != entry.state {
                entry.flush_tag = tag;
                entry.state = next;
                if next == Persistency::Persisted {
                    entry.set_persisted(closes);
                }
            }
            flushing |= next == Persistency::Flushing;
        });
        if dirty {
            self.shadow.note_write_back(slot);
        }
        met.dirty |= dirty;
        met.again = met.again.or(again);
        if !met.dirty && met.again.is_none() {
            // Only who flushes in vain wants to know what was there.
            self.met_persisted(slot, met);
        }
        if rule == FlushRule::AtFence && flushing {
            self.thread(thread)
                .wait(Waits::Flush, slot, u64::MAX, covers);
        }
        if rule == FlushRule::AtOnce && several {
            self.shadow.join_persisted(slot, closes);
        }
    }

    /// The newest store of a line that was persisted before.
    fn met_persisted(&self, slot: Slot, met: &mut Met) {
        for entry in self.shadow.entries(slot) {
            let newest = met.persisted.is_none_or(|(at, _)| at < entry.stored);
            if entry.state == Persistency::Persisted && newest {
                met.persisted = Some((entry.stored, (entry.tag, entry.flush_tag)));
            }
        }
    }

    /// The last moment whose stores to the unit of `addr` a write-back issued now is sure to cover.
    #[inline]
    fn covers(&mut self, thread: Thread, addr: u64, rule: FlushRule) -> Moment {
        if rule != FlushRule::AtFence || self.covers_all {
            return self.now;
        }
        let unit_bytes = self.rules.unit_bytes;
        let start = addr - addr % unit_bytes;
        let unit = ByteRange {
            start,
            end: start.saturating_add(unit_bytes),
        };
        let fenced = self.thread(thread).order_point;
        self.status(unit)
            .filter(|(_, s)| s.thread == thread && s.state != Persistency::Draining)
            .map(|(_, status)| status.stored)
            .fold(fenced, Moment::max)
    }

    fn fence(&mut self, thread: Thread, rule: FenceRule) -> bool {
        if rule == FenceRule::Ignored {
            return false;
        }
        let now = self.now;
        let epoch = self.next_epoch();
        let view = self.thread(thread);
        view.order_point = now;
        view.order += 1;
        if rule == FenceRule::Orders || view.waiting.is_empty() {
            return false;
        }
        view.waiting_tidy_at = 0;
        let mut waiting = std::mem::take(&mut view.waiting);
        let mut completed = false;
        for wait in &waiting {
            let waits = |entry: &Entry| {
                entry.mask & wait.mask != 0
                    && entry.stored <= wait.covers
                    && match wait.waits {
                        Waits::Flush => entry.state == Persistency::Flushing,
                        Waits::Store => entry.thread == thread,
                    }
            };
            if let Some(entry) = self.shadow.only_open(wait.slot)
                && rule == FenceRule::Completes
            {
                let own = waits(entry);
                // The rule is known here, so that little of the function is left.
                let rule = FenceRule::Completes;
                let next = entry.state.next(Input::Fence { rule, own });
                if next != entry.state {
                    entry.state = next;
                    entry.set_persisted(epoch);
                    completed = true;
                }
                continue;
            }
            let mut changed = false;
            let several = self.shadow.update(wait.slot, |entry| {
                let own = waits(entry);
                let next = entry.state.next(Input::Fence { rule, own });
                if next != entry.state {
                    entry.state = next;
                    entry.set_persisted(epoch);
                    changed = true;
                }
            });
            completed |= changed;
            if changed && several {
                self.shadow.join_persisted(wait.slot, epoch);
            }
        }
        // Its memory serves the next fence.
        waiting.clear();
        self.thread(thread).waiting = waiting;
        completed
    }
}

/// The part of `range` in the line at `addr`.
fn in_line(range: ByteRange, addr: u64) -> Option<ByteRange> {
    let start = range.start.max(addr);
    let end = range.end.min(addr.saturating_add(LINE_BYTES));
    (start < end).then_some(ByteRange { start, end })
}

/// The bits of a range, if it lies in one line and has some.
#[inline]
fn bits_of_one_line(range: ByteRange) -> Option<u64> {
    let first = range.start % LINE_BYTES;
    let len = range.len();
    (len.wrapping_sub(1) < LINE_BYTES - first).then(|| mask(first, len))
}

/// The bits of a range that lies in one line.
#[inline]
fn bits(part: ByteRange) -> u64 {
    mask(part.start % LINE_BYTES, part.len())
}

/// What a write-back found in the lines it covers.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    dirty: bool,
    again: Option<Tag>,
    persisted: Option<(Moment, (Tag, Tag))>,
}

impl Met {
    fn outcome(self) -> FlushOutcome {
        match (self.dirty, self.again) {
            (true, _) => FlushOutcome::Useful,
            (false, Some(earlier)) => FlushOutcome::Again { earlier },
            (false, None) => FlushOutcome::Clean {
                persisted: self.persisted.map(|(_, tags)| tags),
            },
        }
    }
}

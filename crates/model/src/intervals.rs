//! Persist intervals: the fast view.
//!
//! Follows PMTest, sections 4.4 and 5.2. Guarantee: what it calls persisted is in every legal crash
//! state, and what it calls ordered is never reordered in one; it may fail to see that something is
//! persisted or ordered (for instance by standing in one line). Memory follows the bytes stored to and the lines
//! flushed since the last fence, not the number of events.

use std::collections::BTreeMap;

use crate::domain::{Config, FenceRule, FlushOrder, FlushRule, Rules, StoreRule};
use crate::state::{Input, Persistency};
use crate::types::{ByteRange, Epoch, Event, Moment, Op, Thread};

/// When something happens: not before `from`, and by the beginning of `to` at the latest, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The epoch in which it can happen first.
    pub from: Epoch,
    /// The epoch by whose beginning it has happened; `None` while it may still be open.
    pub to: Option<Epoch>,
}

/// The intervals of a byte range and of the last store to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How far the last store has come.
    pub state: Persistency,
    /// When it persists.
    pub persist: Interval,
    /// When its write-back happens, if one was issued.
    pub flush: Option<Interval>,
    /// Who stored.
    pub thread: Thread,
    /// When it was stored, in events given to this view.
    pub stored: Moment,
    /// Ordering fences of the thread before the store (HOPS).
    order: u64,
}

/// What an event did: what performance rules ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing that intervals know of.
    Nothing,
    /// A store.
    Stored {
        /// Part of what it overwrote was not persisted.
        overwrote_unpersisted: bool,
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
    Again,
    /// Nothing that needs a write-back.
    Clean,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waits {
    /// A write-back that this thread issued.
    Flush,
    /// A store of this thread that a fence alone completes.
    Store,
}

#[derive(Clone, Debug, Default)]
struct ThreadView {
    /// What the next fence completes: stores up to the moment.
    waiting: BTreeMap<(Waits, ByteRange), Moment>,
    /// Last event that no later write-back of the thread passes.
    order_point: Moment,
    /// Ordering fences so far.
    order: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    end: u64,
    status: Status,
}

/// Persist and flush intervals of everything stored to.
#[derive(Clone, Debug)]
pub struct Intervals {
    config: Config,
    rules: &'static Rules,
    /// Disjoint, by first address.
    entries: BTreeMap<u64, Entry>,
    threads: BTreeMap<Thread, ThreadView>,
    epoch: Epoch,
    now: Moment,
}

impl Intervals {
    /// Nothing stored yet.
    pub fn new(config: Config) -> Self {
        Intervals {
            config,
            rules: config.domain.rules(),
            entries: BTreeMap::new(),
            threads: BTreeMap::new(),
            epoch: Epoch(0),
            now: Moment(0),
        }
    }

    /// The epoch now.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Takes the next event of the total order.
    pub fn apply(&mut self, event: &Event<'_>) -> Outcome {
        self.now.0 += 1;
        let thread = event.thread;
        let fenced = self
            .rules
            .fence_of(&event.op)
            .map(|rule| self.fence(thread, rule));
        match &event.op {
            Op::Store(write) => self.store(thread, write.range(), self.rules.store),
            Op::Rmw(write) => self.store(thread, write.range(), self.rules.store),
            Op::NtStore(write) => self.store(thread, write.range(), self.rules.nt_store),
            Op::Flush { kind, line } => self.flush(thread, line.range(), self.rules.flush(*kind)),
            Op::Msync(range) => self.flush(thread, *range, self.rules.msync),
            Op::Load(_) => {
                self.threads.entry(thread).or_default().order_point = self.now;
                Outcome::Nothing
            }
            Op::Sfence | Op::Mfence | Op::Locked | Op::Ofence | Op::Dfence => Outcome::Fenced {
                completed: fenced.unwrap_or(false),
            },
        }
    }

    /// Forgets that `range` was stored to: a program said that it is clean, or it was unmapped.
    pub fn forget(&mut self, range: ByteRange) {
        self.cut(range.start);
        self.cut(range.end);
        let gone: Vec<u64> = self
            .entries
            .range(range.start..range.end)
            .map(|(a, _)| *a)
            .collect();
        for start in gone {
            self.entries.remove(&start);
        }
    }

    /// The parts of `range` that were stored to, with their intervals, in address order.
    pub fn status(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, Status)> {
        let first = self
            .entries
            .range(..=range.start)
            .next_back()
            .filter(|(_, entry)| entry.end > range.start)
            .map_or(range.start, |(start, _)| *start);
        // An empty range asks for nothing, also inside an entry.
        let end = if range.is_empty() { first } else { range.end };
        self.entries.range(first..end).map(move |(start, entry)| {
            let part = ByteRange {
                start: (*start).max(range.start),
                end: entry.end.min(range.end),
            };
            (part, entry.status)
        })
    }

    /// Everything that is not persisted, in address order.
    pub fn unpersisted(&self) -> impl Iterator<Item = (ByteRange, Status)> {
        self.status(ByteRange {
            start: 0,
            end: u64::MAX,
        })
        .filter(|(_, status)| !status.state.is_persisted())
    }

    /// True if the last stores to all of `range` are in every crash state from now on.
    pub fn is_persisted(&self, range: ByteRange) -> bool {
        self.status(range)
            .all(|(_, status)| status.persist.to.is_some())
    }

    /// True if no crash state has any of the last stores to `b` without all of the last stores to `a`.
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

    /// Makes `addr` a boundary between entries.
    fn cut(&mut self, addr: u64) {
        if let Some((_, entry)) = self.entries.range_mut(..addr).next_back()
            && entry.end > addr
        {
            let rest = *entry;
            entry.end = addr;
            self.entries.insert(addr, rest);
        }
    }

    fn store(&mut self, thread: Thread, range: ByteRange, rule: StoreRule) -> Outcome {
        if range.is_empty() {
            return Outcome::Nothing;
        }
        let overwrote_unpersisted = !self.is_persisted(range);
        // The common case, a word stored again, keeps its entry.
        if self
            .entries
            .get(&range.start)
            .is_none_or(|entry| entry.end != range.end)
        {
            self.forget(range);
        }
        let from = self.epoch;
        let to = (rule == StoreRule::Durable).then(|| self.next_epoch());
        let view = self.threads.entry(thread).or_default();
        let status = Status {
            state: Persistency::Clean.next(Input::Store(rule)),
            persist: Interval { from, to },
            flush: None,
            thread,
            stored: self.now,
            order: view.order,
        };
        let fence_completes =
            rule == StoreRule::Unordered || self.rules.dfence == FenceRule::Drains;
        if fence_completes && to.is_none() {
            view.waiting.insert((Waits::Store, range), self.now);
        }
        self.entries.insert(
            range.start,
            Entry {
                end: range.end,
                status,
            },
        );
        Outcome::Stored {
            overwrote_unpersisted,
        }
    }

    fn flush(&mut self, thread: Thread, range: ByteRange, rule: FlushRule) -> Outcome {
        let mut outcome = FlushOutcome::Clean;
        // `to` lies one epoch ahead, lest something stored earlier in this one pass for later.
        let closes = Epoch(self.epoch.0 + 1);
        for part in range.split(self.rules.unit_bytes) {
            let start = part.start - part.start % self.rules.unit_bytes;
            let unit = ByteRange {
                start,
                end: start.saturating_add(self.rules.unit_bytes),
            };
            self.cut(unit.start);
            self.cut(unit.end);
            let covers = self.covers(thread, unit, rule);
            for (_, entry) in self.entries.range_mut(unit.start..unit.end) {
                let status = &mut entry.status;
                match status.state {
                    Persistency::Dirty => outcome = FlushOutcome::Useful,
                    Persistency::Flushing if outcome == FlushOutcome::Clean => {
                        outcome = FlushOutcome::Again;
                    }
                    _ => {}
                }
                if status.stored > covers {
                    continue;
                }
                let next = status.state.next(Input::Flush(rule));
                if next != status.state {
                    let to = (next == Persistency::Persisted).then_some(closes);
                    let from = status.flush.map_or(self.epoch, |flush| flush.from);
                    status.flush = Some(Interval { from, to });
                    status.persist.to = to;
                    status.state = next;
                }
            }
            if rule == FlushRule::AtFence {
                let view = self.threads.entry(thread).or_default();
                let waiting = view.waiting.entry((Waits::Flush, unit)).or_default();
                *waiting = covers.max(*waiting);
            }
        }
        if rule == FlushRule::AtOnce {
            self.next_epoch();
        }
        Outcome::Flushed(outcome)
    }

    /// The last moment whose stores to `unit` a write-back issued now is sure to cover.
    fn covers(&self, thread: Thread, unit: ByteRange, rule: FlushRule) -> Moment {
        if rule != FlushRule::AtFence || self.config.flush_order == FlushOrder::Recorded {
            return self.now;
        }
        let fenced = self
            .threads
            .get(&thread)
            .map_or(Moment(0), |view| view.order_point);
        self.status(unit)
            .filter(|(_, s)| s.thread == thread && s.state != Persistency::Draining)
            .map(|(_, status)| status.stored)
            .fold(fenced, Moment::max)
    }

    fn fence(&mut self, thread: Thread, rule: FenceRule) -> bool {
        if rule == FenceRule::Ignored {
            return false;
        }
        let view = self.threads.entry(thread).or_default();
        view.order_point = self.now;
        view.order += 1;
        let waiting = if rule == FenceRule::Orders {
            BTreeMap::new()
        } else {
            std::mem::take(&mut view.waiting)
        };
        let epoch = self.next_epoch();
        let mut completed = false;
        for ((waits, range), covers) in waiting {
            self.cut(range.start);
            self.cut(range.end);
            for (_, entry) in self.entries.range_mut(range.start..range.end) {
                let status = &mut entry.status;
                let own = status.stored <= covers
                    && match waits {
                        Waits::Flush => status.state == Persistency::Flushing,
                        Waits::Store => status.thread == thread,
                    };
                let next = status.state.next(Input::Fence { rule, own });
                if next != status.state {
                    status.state = next;
                    status.persist.to = Some(epoch);
                    if let Some(flush) = &mut status.flush {
                        flush.to = Some(epoch);
                    }
                    completed = true;
                }
            }
        }
        completed
    }
}

//! What the threads of a run did to persistent memory, in order: who read what another had not made
//! persistent, who touched the same bytes, which words they agree by, and where they came to wait
//! for each other.
//!
//! ```text
//!  event ─▶ keys (file, offset) ─▶ model ─▶ sightings   a load of bytes that were not persistent
//!                                     ├───▶ pairs       two threads at the same bytes, and the state between
//!                                     └───▶ words       what may be locks
//! ```
//! A sighting is no bug: see `effects.rs` for what becomes of it.
//!
//! Source: PMRace (ASPLOS 2022), sections 3 and 4.2 (candidates, PM alias pairs). Deviation: what
//! was written back and fenced counts as persistent by this project's model, in which only the
//! fence of the thread that wrote back counts.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use brownout_model::{
    ByteRange, Config, Event as ModelEvent, Intervals, Line, Moment, Op, Tag, Thread, Write, keys,
};
use brownout_symbols::{Options as SymbolOptions, Stacks};
use brownout_trace::epochs::CodeEpochs;
use brownout_trace::event::{
    Access, ContextId, Event, EventKind, FenceKind, FileId, MS_SYNC, PmReason, TargetAddr, ThreadId,
};
use brownout_trace::maps::{AddressSpaces, MapFault};
use brownout_trace::{EventSink, annotation};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::site::{Done, Site, is_inter, mix, name_of, pair_of};
use crate::words::Words;

/// Accesses of threads that are remembered for eight bytes.
const ACCESSES_MAX: usize = 6;
/// Stores to eight bytes, none of them persistent, that are remembered.
const OPEN_MAX: usize = 16;
/// Stores of a thread that are remembered as long as they may be lost.
const PENDING_MAX: usize = 64;
/// Behind so many events in which nothing changes, it is counted who comes where.
const SETTLED: u64 = 1_000;

/// A load of bytes that were not persistent.
#[derive(Clone, Copy, Debug)]
pub struct Sighting {
    pub store: Done,
    pub load: Done,
    /// Keys of the bytes.
    pub range: ByteRange,
    /// Another thread had stored them.
    pub is_inter: bool,
    /// They had not been written back at all, ever.
    pub is_never_flushed: bool,
    pub count: u64,
}

/// The last accesses to eight bytes.
#[derive(Default)]
struct Granule {
    /// Thread, place, whether it stored.
    last: Vec<(ThreadId, u64, bool)>,
}

/// See the module's header.
pub struct Watch {
    spaces: AddressSpaces,
    epochs: CodeEpochs,
    /// For those who give findings their words.
    pub stacks: Stacks,
    intervals: Intervals,
    /// By the model's tag, less one.
    stores: Vec<Done>,
    /// What is the same of a calling context in all runs.
    chains: FxHashMap<ContextId, u64>,
    index: u64,
    granules: FxHashMap<u64, Granule>,
    /// Files that are no persistent memory: they are told because a crash may lose what is in them,
    /// and threads may agree by them.
    ordinary: FxHashSet<FileId>,
    /// By eight bytes: the stores since they were last persistent. In a crash all of them may be
    /// lost, whatever was stored over them since.
    open: FxHashMap<u64, Vec<u64>>,
    /// By thread: its last stores, some of which may be persistent by now.
    pending: FxHashMap<ThreadId, VecDeque<(u64, ByteRange)>>,
    /// Non-temporal stores of others that a thread has read, and of those the ones whose line it
    /// has written back since. What another thread can read has left the buffer of the one that has
    /// stored it; so a reader can make it persistent.
    seen_streaming: FxHashMap<ThreadId, Vec<(ByteRange, u64)>>,
    flushed_streaming: FxHashMap<ThreadId, Vec<(ByteRange, u64)>>,
    /// Those that readers have made persistent, by event. The model knows nothing of what was read,
    /// so it waits for a fence of the thread that has stored.
    helped: FxHashSet<u64>,
    /// What the last locked instruction has read that was not persistent, and its event.
    read_by_locked: (u64, Vec<(ByteRange, Done)>),
    /// By [`pair_of`].
    pub sightings: FxHashMap<(u64, u64), Sighting>,
    /// Pairs of accesses of different threads to the same bytes, with what was persistent between
    /// them.
    pub pairs: FxHashSet<u64>,
    /// Stores and loads of different threads at the same bytes: the addresses of the instructions.
    pub meetings: FxHashSet<(u64, u64)>,
    /// Those that met before the store was persistent.
    pub met: FxHashSet<(u64, u64)>,
    pub words: Words,
    /// Threads that wait for each other for ever: where, and for which address.
    pub stuck: Vec<(Done, TargetAddr)>,
    /// The last thing that each thread that has not ended did to persistent memory.
    pub last: FxHashMap<ThreadId, Done>,
    /// The last store of each thread that has left something new.
    pub last_store: FxHashMap<ThreadId, (Done, ByteRange)>,
    /// The last output of each thread.
    pub last_output: Option<Done>,
    /// Threads that have stored to, or loaded from, persistent memory.
    pub storing: FxHashSet<ThreadId>,
    pub touching: FxHashSet<ThreadId>,
    /// All threads that there were.
    pub threads: usize,
    /// The event by which persistent memory last came to hold something else, and when that was.
    changed: (u64, Instant),
    /// By thread, and by the name of the place: how often it has come there in a long stretch in
    /// which nothing has changed.
    returns: FxHashMap<ThreadId, FxHashMap<u64, (Done, u32)>>,
    /// The signal that has ended the program, and where.
    pub died: Option<(Done, i32)>,
    parts: Vec<(ByteRange, usize)>,
}

impl Watch {
    /// Of a run that has not begun.
    pub fn new(model: Config) -> Watch {
        Watch {
            spaces: AddressSpaces::new(),
            epochs: CodeEpochs::default(),
            stacks: Stacks::new(SymbolOptions::for_findings()),
            intervals: Intervals::new(model),
            stores: Vec::new(),
            chains: FxHashMap::default(),
            index: 0,
            granules: FxHashMap::default(),
            ordinary: FxHashSet::default(),
            open: FxHashMap::default(),
            pending: FxHashMap::default(),
            seen_streaming: FxHashMap::default(),
            flushed_streaming: FxHashMap::default(),
            helped: FxHashSet::default(),
            read_by_locked: (u64::MAX, Vec::new()),
            sightings: FxHashMap::default(),
            pairs: FxHashSet::default(),
            meetings: FxHashSet::default(),
            met: FxHashSet::default(),
            words: Words::default(),
            stuck: Vec::new(),
            last: FxHashMap::default(),
            last_store: FxHashMap::default(),
            last_output: None,
            storing: FxHashSet::default(),
            touching: FxHashSet::default(),
            threads: 0,
            changed: (0, Instant::now()),
            returns: FxHashMap::default(),
            died: None,
            parts: Vec::new(),
        }
    }

    /// Whether nothing has changed in persistent memory for the second half of the run, by its
    /// events or by its time. (Who looks at ordinary memory does so without events.)
    pub fn is_quiet(&self, wall: Duration) -> bool {
        let (event, moment) = self.changed;
        2 * (self.index - event) > self.index || 2 * moment.elapsed() > wall
    }

    /// Where each thread that has not ended was last seen; of several places to which it comes
    /// again and again, always the same one, whenever the run is ended.
    pub fn whereabouts(&self) -> Vec<Done> {
        let place = |(thread, last): (&ThreadId, &Done)| {
            let places = self.returns.get(thread);
            let most = places.and_then(|places| places.values().map(|(_, count)| *count).max());
            let often = places.into_iter().flatten().filter(|(_, (_, count))| {
                most.is_some_and(|most| 2 * u64::from(*count) >= u64::from(most))
            });
            let first = often.min_by_key(|(name, _)| **name);
            first.map_or(*last, |(_, (done, _))| *done)
        };
        let mut places: Vec<Done> = self.last.iter().map(place).collect();
        places.sort_unstable_by_key(|done| done.site.thread);
        places
    }

    /// A thread has come to a place in persistent memory.
    fn come(&mut self, done: Done) {
        self.last.insert(done.site.thread, done);
        if self.index - self.changed.0 > SETTLED {
            let places = self.returns.entry(done.site.thread).or_default();
            let (_, count) = places.entry(done.site.name).or_insert((done, 0));
            *count = count.saturating_add(1);
        }
    }

    fn has_changed(&mut self) {
        self.changed = (self.index, Instant::now());
        if !self.returns.is_empty() {
            self.returns.clear();
        }
    }

    fn done(&self, event: &Event<'_>) -> Done {
        let process = self.spaces.process_of(event.thread).unwrap_or_default();
        let chain = self.chains.get(&event.context).copied().unwrap_or_default();
        Done {
            event: self.index,
            site: Site {
                thread: event.thread,
                process,
                epoch: self.epochs.of(process),
                pc: event.pc,
                context: event.context,
                name: mix(chain, event.pc.0),
            },
            is_locked: matches!(event.kind, EventKind::Rmw(_)),
            is_streaming: matches!(event.kind, EventKind::NtStore(_)),
        }
    }

    /// Keys of an access, with where they begin in it; none of ordinary files.
    fn keys_of(
        &mut self,
        thread: ThreadId,
        access: &Access<'_>,
    ) -> io::Result<Vec<(ByteRange, usize)>> {
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let size = u64::from(access.size);
        let each = |keys, at| parts.push((keys, at as usize));
        keys::translate(&mut self.spaces, thread, access.addr, size, each)
            .map_err(MapFault::into_error)?;
        parts.retain(|(keys, _)| !self.ordinary.contains(&keys::place(keys.start()).0));
        Ok(parts)
    }

    /// The bytes of `range` that are not persistent, with the stores that they come from.
    pub fn unpersisted(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, Done)> {
        let parts = self.intervals.unpersisted_in(range);
        parts.filter_map(|(part, status)| {
            let store = self.stores.get((status.tag.0 as usize).checked_sub(1)?)?;
            (!self.helped.contains(&store.event)).then_some((part, *store))
        })
    }

    /// The bytes of `range` that were not persistent when `load` has read them, right after it has.
    pub fn unpersisted_for(&self, load: Done, range: ByteRange) -> Vec<(ByteRange, Done)> {
        match self.read_by_locked.0 == load.event {
            // By now it has stored there itself.
            true => {
                let read = self.read_by_locked.1.iter().copied();
                read.filter(|(part, _)| part.overlaps(range)).collect()
            }
            false => self.unpersisted(range).collect(),
        }
    }

    /// Whether bytes that a store has stored may still be lost, whatever was stored over them
    /// since. (No promise: it may have become persistent before something else was stored there.
    /// The model has the last word.)
    pub fn is_pending(&self, range: ByteRange, store: u64) -> bool {
        if self.helped.contains(&store) {
            return false;
        }
        range.split(8).any(|part| {
            let open = self.open.get(&(part.start().0 & !7));
            open.is_some_and(|open| open.contains(&store))
                && self.intervals.unpersisted_in(part).next().is_some()
        })
    }

    /// What the last event has stored, if it was this thread's, and a store.
    pub fn just_stored(&self, thread: ThreadId) -> Option<(Done, ByteRange)> {
        let last = self.last_store.get(&thread).copied();
        last.filter(|(done, _)| done.event + 1 == self.index)
    }

    /// Other stores of the thread that has made `store` that may still be lost, the newest first.
    pub fn pending_with(&self, store: Done) -> Vec<u64> {
        let pending = self.pending.get(&store.site.thread);
        let others = pending.into_iter().flatten().rev().copied();
        let others = others
            .filter(|(event, range)| *event != store.event && self.is_pending(*range, *event));
        others.map(|(event, _)| event).collect()
    }

    fn load(&mut self, event: &Event<'_>, access: &Access<'_>) -> io::Result<()> {
        let done = self.done(event);
        self.come(done);
        let parts = self.keys_of(event.thread, access)?;
        if !parts.is_empty() {
            self.touching.insert(event.thread);
        }
        for (keys, at) in &parts {
            self.see(done, *keys);
            let bytes = access.bytes.get(*at..).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(keys.len() as usize)];
            self.words.load(done.site, *keys, bytes);
            self.meet(done.site, *keys, false);
        }
        self.parts = parts;
        Ok(())
    }

    /// Takes note of what of these bytes is not persistent.
    fn see(&mut self, load: Done, keys: ByteRange) {
        let seen: Vec<_> = self.unpersisted(keys).collect();
        for (range, store) in seen {
            let is_inter = is_inter(&store, &load);
            if is_inter {
                self.met.insert((store.site.pc.0, load.site.pc.0));
            }
            if is_inter && store.is_streaming {
                let seen = self.seen_streaming.entry(load.site.thread).or_default();
                seen.push((range, store.event));
            }
            let never = self
                .intervals
                .stores_without_write_back(range.start().0)
                .is_some();
            let sighting = self
                .sightings
                .entry(pair_of(&store, &load))
                .or_insert(Sighting {
                    store,
                    load,
                    range,
                    is_inter,
                    is_never_flushed: true,
                    count: 0,
                });
            sighting.count += 1;
            sighting.is_never_flushed &= never;
        }
    }

    /// Takes note of which threads come to the same bytes.
    fn meet(&mut self, site: Site, keys: ByteRange, stores: bool) {
        for part in keys.split(8) {
            let granule = self.granules.entry(part.start().0 & !7).or_default();
            let is_open = self.intervals.unpersisted_in(part).next().is_some();
            for (thread, pc, stored) in &granule.last {
                if *thread == site.thread || !(stores || *stored) {
                    continue;
                }
                self.pairs.insert(name_of(&[
                    *pc,
                    site.pc.0,
                    u64::from(*stored) | u64::from(stores) << 1 | u64::from(is_open) << 2,
                ]));
                match (*stored, stores) {
                    (true, false) => self.meetings.insert((*pc, site.pc.0)),
                    (false, true) => self.meetings.insert((site.pc.0, *pc)),
                    _ => false,
                };
            }
            let this = (site.thread, site.pc.0, stores);
            if !granule.last.contains(&this) {
                if granule.last.len() == ACCESSES_MAX {
                    granule.last.remove(0);
                }
                granule.last.push(this);
            }
        }
    }

    fn store(
        &mut self,
        event: &Event<'_>,
        access: &Access<'_>,
        make: fn(Write<'static>) -> Op<'static>,
        is_locked: bool,
    ) -> io::Result<()> {
        let done = self.done(event);
        if is_locked {
            self.fence_streaming(event.thread);
        }
        self.come(done);
        let parts = self.keys_of(event.thread, access)?;
        // What ordinary files hold is not known; locked instructions may only have tried something.
        let mut changes = parts.is_empty() && !is_locked;
        if !parts.is_empty() {
            self.touching.insert(event.thread);
            self.storing.insert(event.thread);
        }
        for (keys, at) in &parts {
            if is_locked {
                self.read_by_locked = (done.event, self.unpersisted(*keys).collect());
                self.see(done, *keys);
            }
            let bytes = access.bytes.get(*at..).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(keys.len() as usize)];
            let is_new = self.words.store(done, *keys, bytes, is_locked);
            match is_locked && !is_new {
                // Tried, and not got: what is there is still another's store, and whoever waits by
                // trying would make a new one each time.
                true => {
                    self.apply(event.thread, Op::Locked);
                    self.last_store.remove(&event.thread);
                }
                false => {
                    self.stored(done, *keys, make);
                    self.last_store.insert(event.thread, (done, *keys));
                }
            }
            self.meet(done.site, *keys, true);
            changes |= is_new;
        }
        if changes {
            self.has_changed();
        }
        self.parts = parts;
        Ok(())
    }

    fn stored(&mut self, done: Done, keys: ByteRange, make: fn(Write<'static>) -> Op<'static>) {
        if self.stores.last().map(|last| last.event) != Some(done.event) {
            self.stores.push(done);
        }
        let tag = Tag(self.stores.len() as u32);
        for part in keys.split(8) {
            let is_open = self.intervals.unpersisted_in(part).next().is_some();
            let open = self.open.entry(part.start().0 & !7).or_default();
            if !is_open {
                open.clear();
            }
            if open.len() < OPEN_MAX {
                open.push(done.event);
            }
        }
        let pending = self.pending.entry(done.site.thread).or_default();
        if pending.len() == PENDING_MAX {
            pending.pop_front();
        }
        pending.push_back((done.event, keys));
        let op = make(Write::without_values(keys));
        let event = ModelEvent::new(Thread(done.site.thread.0), op);
        self.intervals.apply_at(Moment(self.index + 1), &event, tag);
    }

    fn apply(&mut self, thread: ThreadId, op: Op<'_>) {
        let event = ModelEvent::new(Thread(thread.0), op);
        self.intervals
            .apply_at(Moment(self.index + 1), &event, Tag(0));
    }

    fn flush_streaming(&mut self, thread: ThreadId, line: Line) {
        let Some(seen) = self.seen_streaming.get_mut(&thread) else {
            return;
        };
        let is_in = |seen: &mut (ByteRange, u64)| Line::of(seen.0.start()) == line;
        let flushed = self.flushed_streaming.entry(thread).or_default();
        flushed.extend(seen.extract_if(.., is_in));
    }

    fn fence_streaming(&mut self, thread: ThreadId) {
        let flushed = self.flushed_streaming.remove(&thread);
        let events = flushed.into_iter().flatten().map(|(_, event)| event);
        self.helped.extend(events);
    }

    fn sync(&mut self, thread: ThreadId, keys: ByteRange) {
        let open: Vec<ByteRange> = self
            .intervals
            .unpersisted_in(keys)
            .map(|(part, _)| part)
            .collect();
        for part in open {
            self.apply(thread, Op::Msync(part));
        }
    }

    fn observe(&mut self, event: &Event<'_>) -> io::Result<()> {
        match &event.kind {
            EventKind::Load(access) => self.load(event, access)?,
            EventKind::Store(access) | EventKind::KernelStore { access, .. } => {
                self.store(event, access, Op::Store, false)?;
            }
            EventKind::StringStore { access, .. } => {
                self.store(event, access, Op::Store, false)?;
            }
            EventKind::NtStore(access) => self.store(event, access, Op::NtStore, false)?,
            EventKind::Rmw(access) => self.store(event, access, Op::Rmw, true)?,
            EventKind::Flush { kind, addr } => {
                if let Some(found) = self.spaces.translate(event.thread, *addr) {
                    let line = Line::of(keys::key(found.file, found.offset));
                    self.apply(event.thread, Op::Flush { kind: *kind, line });
                    self.flush_streaming(event.thread, line);
                }
            }
            EventKind::Fence(kind) => {
                let op = match kind {
                    FenceKind::Sfence => Op::Sfence,
                    FenceKind::Mfence => Op::Mfence,
                    FenceKind::Locked => Op::Locked,
                };
                self.apply(event.thread, op);
                self.fence_streaming(event.thread);
            }
            EventKind::Msync { addr, len, flags } if flags & MS_SYNC != 0 => {
                for range in self.spaces.ranges(event.thread, *addr, *len) {
                    self.sync(event.thread, keys::range(range));
                }
            }
            EventKind::Fsync { file, .. } => self.sync(event.thread, keys::whole_file(*file)),
            EventKind::FileSync { file, offset, size } => {
                let keys = ByteRange::new(keys::key(*file, *offset), *size);
                self.sync(event.thread, keys);
            }
            EventKind::FileWrite {
                file, offset, size, ..
            } if !self.ordinary.contains(file) => {
                let keys = ByteRange::new(keys::key(*file, *offset), u64::from(*size));
                self.stored(self.done(event), keys, Op::Store);
                self.has_changed();
            }
            EventKind::File { file, reason, .. } => {
                match *reason == PmReason::Changed {
                    true => self.ordinary.insert(*file),
                    // It has turned out to be some.
                    false => self.ordinary.remove(file),
                };
            }
            EventKind::Futex { addr, .. } => {
                if let Some(found) = self.spaces.translate(event.thread, *addr) {
                    self.words.wait(keys::key(found.file, found.offset).0);
                }
            }
            EventKind::Annotation { code, args, .. } if *code == annotation::SYNC_VAR => {
                let words = &mut self.words;
                let each = |keys, at| words.declare(keys, at, args[2]);
                // It may go beyond what is mapped: then it counts up to there.
                let _ = keys::translate(
                    &mut self.spaces,
                    event.thread,
                    TargetAddr(args[0]),
                    args[1],
                    each,
                );
            }
            EventKind::Output { .. } => self.last_output = Some(self.done(event)),
            EventKind::Stuck { addr } => {
                let done = self.done(event);
                self.stuck.push((done, *addr));
            }
            EventKind::Context {
                context,
                parent,
                return_addr,
            } => {
                let above = self.chains.get(parent).copied().unwrap_or_default();
                self.chains.insert(*context, mix(above, return_addr.0));
            }
            EventKind::Signal { signal, .. } => self.died = Some((self.done(event), *signal)),
            EventKind::ThreadStart { .. } => self.threads += 1,
            EventKind::ThreadExit => {
                self.last.remove(&event.thread);
                self.returns.remove(&event.thread);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether bytes were stored to and never written back.
    pub fn is_never_flushed(&self, range: ByteRange) -> bool {
        self.intervals
            .stores_without_write_back(range.start().0)
            .is_some()
    }
}

impl EventSink for Watch {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.epochs.observe(event);
        self.stacks.observe(event);
        self.spaces.observe(event).map_err(MapFault::into_error)?;
        self.observe(event)?;
        self.index += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use brownout_model::Key;

    use super::*;

    #[test]
    fn what_is_read_early_is_known_by_who_has_stored_it() {
        let by = |thread, name| {
            let mut done = Done::default();
            (done.site.thread, done.site.name) = (ThreadId(thread), name);
            done
        };
        let mut watch = Watch::new(Config::default());
        let range = ByteRange::new(Key(64), 8);
        let store = by(1, 7);
        watch.stored(store, range, Op::Store);
        let loads = [by(1, 8), by(2, 8)];
        for load in loads {
            watch.see(load, range);
        }
        let known = loads.map(|load| {
            let sighting = watch.sightings.get(&pair_of(&store, &load));
            sighting.map(|sighting| sighting.is_inter)
        });
        assert_eq!(known, [Some(false), Some(true)]);
    }
}

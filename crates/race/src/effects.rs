//! What becomes of a sighting: stores to persistent memory, and output, that were computed from
//! bytes that were not persistent yet.
//!
//! The run is made again under the same schedule, and this time its data flow is followed
//! ([`brownout_follow`]). Each load of bytes that are not persistent is a source. A store that
//! depends on a source, by its content or by its address, is an effect as long as the source is not
//! persistent: a crash may then leave the effect without its source. So is what leaves the process.
//! A thread may also have *decided* by what it has read, or by a copy of it that was never
//! persistent, which data flow does not tell; so what it stores afterwards, while the source is not
//! persistent, counts, too, and only if recovery fails over it.
//!
//! Source: PMRace (ASPLOS 2022), section 3.1 (PM inter- and intra-thread inconsistency) and 4.3.
//! Deviations: what leaves the process counts, too; labels follow data by the byte; an effect
//! counts when it is stored, not only when it is written back, because a line may leave the cache
//! at any time. Whether that makes a difference is told.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use brownout_follow::{Access, Follower, Label, Observer, Sets};
use brownout_model::{ByteRange, Config, keys};
use brownout_trace::event::{Event, FileId, ThreadId};
use brownout_trace::{EventSink, Executed};
use rustc_hash::FxHashMap;

use crate::site::{Done, is_inter, name_of, pair_of};
use crate::watch::Watch;

/// Of effects of one name, so many are kept: a later one may leave other traces.
const SAME_MAX: u32 = 3;
/// Places at which something is stored after a source was read, for each source.
const AFTERWARDS_MAX: u32 = 8;
/// Sources that a thread has read, remembered at a time.
const READ_MAX: usize = 8;
/// After so many new sources, those that have become persistent are looked for.
const LOOKED_THROUGH: usize = 32;

/// A load of bytes that were not persistent.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub store: Done,
    pub load: Done,
    pub range: ByteRange,
    pub is_inter: bool,
}

impl Source {
    /// The early read that it is.
    pub fn pair(&self) -> (u64, u64) {
        pair_of(&self.store, &self.load)
    }
}

/// How an effect depends on its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// What is stored depends on it.
    Content,
    /// Where it is stored depends on it.
    Address,
    /// It is stored after the source was read, by the same thread.
    Afterwards,
}

/// What was made of it.
#[derive(Clone, Debug)]
pub struct Effect {
    pub source: Source,
    /// The store, or the system call.
    pub done: Done,
    /// The bytes in persistent memory; `None`: they left the process.
    pub range: Option<ByteRange>,
    pub how: How,
    /// What else the thread that has stored the source may lose, by event.
    pub pending: Vec<u64>,
    /// The same in all runs.
    pub name: u64,
}

/// Follows a run.
pub struct Effects {
    pub watch: Watch,
    follower: Follower,
    found: Found,
}

/// What of a run was not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Instructions that were executed and whose data flow is not known.
    pub instructions: u64,
    /// Stores, and outputs, that depend on more sources than are told apart.
    pub crowded: u64,
}

/// What was found so far.
#[derive(Default)]
struct Found {
    /// By their numbers, less one.
    sources: Vec<Source>,
    /// By the store's event and the load's name.
    known: FxHashMap<(u64, u64), u32>,
    /// Numbers of the sources that were not persistent when they were last looked through, and how
    /// many there were in all.
    open: Vec<u32>,
    looked_through: usize,
    effects: Vec<Effect>,
    counts: FxHashMap<u64, u32>,
    /// By thread: the sources of others that it has read last.
    read: FxHashMap<ThreadId, VecDeque<u32>>,
    /// By source: places at which something was stored afterwards.
    afterwards: FxHashMap<u32, u32>,
    /// See [`Lost::crowded`].
    crowded: u64,
}

impl Effects {
    /// Of a run that has not begun.
    pub fn new(model: Config) -> Effects {
        Effects {
            watch: Watch::new(model),
            follower: Follower::new(),
            found: Found::default(),
        }
    }

    /// All effects, in the order of the run; what was not followed; and what else was seen.
    pub fn finish(self) -> (Vec<Effect>, Lost, Watch) {
        let lost = Lost {
            instructions: self.follower.given_up(),
            crowded: self.found.crowded,
        };
        (self.found.effects, lost, self.watch)
    }
}

impl Found {
    fn source(&mut self, source: Source) -> u32 {
        let key = (source.store.event, source.load.site.name);
        *self.known.entry(key).or_insert_with(|| {
            self.sources.push(source);
            let number = self.sources.len() as u32;
            self.open.push(number);
            number
        })
    }

    /// What has become persistent does not come back. A counter that is made of itself again and
    /// again depends on every source that there ever was, but only on few that are in doubt.
    fn forget_persistent(&mut self, watch: &Watch, follower: &mut Follower) {
        if self.sources.len() < self.looked_through + LOOKED_THROUGH {
            return;
        }
        self.looked_through = self.sources.len();
        let sources = &self.sources;
        self.open.retain(|number| {
            let source = sources[*number as usize - 1];
            let is_open = watch.is_pending(source.range, source.store.event);
            if !is_open {
                follower.forget(*number);
            }
            is_open
        });
    }

    fn effect(
        &mut self,
        number: u32,
        done: Done,
        range: Option<ByteRange>,
        how: How,
        watch: &Watch,
    ) {
        let Some(source) = self.sources.get(number as usize - 1).copied() else {
            return;
        };
        let kind = u64::from(source.is_inter)
            | u64::from(range.is_none()) << 1
            | u64::from(how == How::Afterwards) << 2;
        let name = name_of(&[
            source.store.site.name,
            source.load.site.name,
            done.site.name,
            kind,
        ]);
        let count = self.counts.entry(name).or_default();
        *count += 1;
        if how == How::Afterwards && *count == 1 {
            let places = self.afterwards.entry(number).or_default();
            *places += 1;
            if *places > AFTERWARDS_MAX {
                return;
            }
        }
        if *count <= SAME_MAX {
            self.effects.push(Effect {
                source,
                done,
                range,
                how,
                pending: watch.pending_with(source.store),
                name,
            });
        }
    }

    /// A thread has stored something: that comes after what it has read.
    fn stores_afterwards(&mut self, done: Done, range: ByteRange, watch: &Watch) {
        let Some(mut read) = self.read.remove(&done.site.thread) else {
            return;
        };
        // What has become persistent does not come back.
        read.retain(|number| {
            let source = self.sources[*number as usize - 1];
            watch.is_pending(source.range, source.store.event)
        });
        for number in &read {
            let source = self.sources[*number as usize - 1];
            if !source.range.overlaps(range) {
                self.effect(*number, done, Some(range), How::Afterwards, watch);
            }
        }
        self.read.insert(done.site.thread, read);
    }

    /// A thread has read a source.
    fn reads(&mut self, thread: ThreadId, number: u32) {
        let read = self.read.entry(thread).or_default();
        read.retain(|known| *known != number);
        if read.len() == READ_MAX {
            read.pop_front();
        }
        read.push_back(number);
    }
}

/// Both halves of [`Effects`] that the follower talks to.
struct Listener<'a> {
    watch: &'a Watch,
    found: &'a mut Found,
}

impl Observer for Listener<'_> {
    fn loads(&mut self, access: &Access, sources: &mut [u32]) {
        let Some((file, offset)) = access.place else {
            return;
        };
        // What the instruction did to persistent memory has been told already.
        let Some(load) = self.watch.last.get(&access.thread).copied() else {
            return;
        };
        if load.site.pc.0 != access.pc {
            return;
        }
        let range = ByteRange::new(keys::key(file, offset), sources.len() as u64);
        for (part, store) in self.watch.unpersisted_for(load, range) {
            if store.event == load.event {
                continue;
            }
            let number = self.found.source(Source {
                store,
                load,
                range: part,
                is_inter: is_inter(&store, &load),
            });
            if is_inter(&store, &load) {
                self.found.reads(access.thread, number);
            }
            let from = part.start().0.saturating_sub(range.start().0) as usize;
            let to = (part.end().0.saturating_sub(range.start().0) as usize).min(sources.len());
            sources[from.min(to)..to].fill(number);
        }
    }

    fn stores(&mut self, access: &Access, content: &[Label], address: Label, sets: &Sets) {
        let Some((done, range)) = self.watch.last_store.get(&access.thread).copied() else {
            return;
        };
        if done.site.pc.0 != access.pc {
            return;
        }
        let mut labels = content.iter().chain([&address]);
        self.found.crowded += u64::from(labels.any(|label| sets.is_many(*label)));
        let mut numbers: Vec<(u32, How)> = Vec::new();
        let labels = content.iter().map(|label| (*label, How::Content));
        for (label, how) in labels.chain([(address, How::Address)]) {
            for number in sets.members(label).iter().copied() {
                if !numbers.iter().any(|(known, _)| *known == number) {
                    numbers.push((number, how));
                }
            }
        }
        for (number, how) in numbers {
            let source = self.found.sources[number as usize - 1];
            // Of the bytes that were loaded, those that are still in doubt.
            if self.watch.is_pending(source.range, source.store.event)
                && !source.range.overlaps(range)
            {
                let found = &mut *self.found;
                found.effect(number, done, Some(range), how, self.watch);
            }
        }
    }

    fn leaves(&mut self, access: &Access, content: &[Label], sets: &Sets) {
        // The call is over, and has been told as an event.
        let told = self.watch.last_output;
        let Some(done) = told.filter(|done| done.site.thread == access.thread) else {
            return;
        };
        let is_crowded = content.iter().any(|label| sets.is_many(*label));
        self.found.crowded += u64::from(is_crowded);
        let mut numbers: Vec<u32> = Vec::new();
        for label in content {
            for number in sets.members(*label).iter().copied() {
                if !numbers.contains(&number) {
                    numbers.push(number);
                }
            }
        }
        for number in numbers {
            let source = self.found.sources[number as usize - 1];
            if self.watch.is_pending(source.range, source.store.event) {
                let found = &mut *self.found;
                found.effect(number, done, None, How::Content, self.watch);
            }
        }
    }
}

impl EventSink for Effects {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.watch.event(event)?;
        if let Some((done, range)) = self.watch.just_stored(event.thread) {
            self.found.stores_afterwards(done, range, &self.watch);
        }
        self.found
            .forget_persistent(&self.watch, &mut self.follower);
        let mut listener = Listener {
            watch: &self.watch,
            found: &mut self.found,
        };
        self.follower.event(event, &mut listener)
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        let mut listener = Listener {
            watch: &self.watch,
            found: &mut self.found,
        };
        self.follower.executed(what, &mut listener)
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        self.watch.new_file(file, path)
    }
}

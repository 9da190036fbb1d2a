//! Whether a load could see a store that is not persistent yet: the judgement, on threads, locks
//! and bytes by their numbers.
//!
//! ```text
//!  store ─▶ window opens ─▶ locks given back: the effective set shrinks ─▶ persistent: window closes
//!                 │                                                            │
//!        load by another thread: it happened                  load by another thread: could it have come earlier?
//! ```
//! A load pairs with the store whose bytes it reads (the last one), and with a later store of other
//! threads to bytes that it has read. What becomes of a pair:
//!
//! | it is no finding, if | because |
//! |---|---|
//! | the load is forced to come after the bytes are persistent, or before the store | no schedule puts it in between |
//! | a lock is held from the store until the bytes are persistent, and the load holds it | it is excluded |
//! | they have no lock in common, and in this run one came after the other by way of some lock | the program hands the bytes over: if locks did not order the two, they would be a data race anyway |
//! | they have no lock in common, and nobody else had touched the bytes before the store | they were initialised before they were published |
//! | the reader writes the line back and fences before it stores, or tells anybody anything | it helps the writer |
//!
//! A load that really came in between is one in any case but the last.

use brownout_model::{ByteRange, Key, LINE_BYTES, Moment, Tag};
use brownout_trace::event::{ProcessId, ThreadId};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::clocks::{Clocks, Knowledge, Order, Who};
use super::locks::{Held, Holding, Lock, LockSets, SetId};
use super::windows::{Closed, GRANULE, Load, Window, WindowId, Windows, by_line, granules};

/// Why a load could see what is not persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It did.
    Happened,
    /// Both hold a lock, which is given back before the bytes are persistent.
    GivenBack,
    /// Nothing keeps it from coming in between.
    Unordered,
}

/// How a store went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It became persistent.
    Persistent(Closed),
    /// It was stored over before.
    Overwritten,
    /// It never did.
    Never,
}

/// A store and a load that could see it too early: the worst occurrence, and how many there were.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub why: Why,
    pub count: u64,
    pub store: Stored,
    pub load: Loaded,
    pub unlock: Option<Tag>,
    pub end: End,
}

/// The store of a sighting.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub thread: ThreadId,
    pub moment: Moment,
    pub tag: Tag,
    pub range: ByteRange,
}

/// The load of a sighting.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    pub thread: ThreadId,
    pub moment: Moment,
    pub tag: Tag,
}

/// A load that is a finding unless the reader writes back what it has read.
#[derive(Debug)]
struct Candidate {
    line: u64,
    is_flushed: bool,
    window: WindowId,
    sighting: Sighting,
}

/// What a thread learns with its next event: by then the call that it is in has come back.
#[derive(Debug)]
enum Lesson {
    /// It has taken a lock.
    Lock(Held),
    /// It has waited for something.
    Object(u64),
    /// What everybody knows who has used the object.
    Users(u64),
    /// What threads of the process knew that have ended.
    Ended,
    /// What all threads of the process know: it has been told something in a way that is not
    /// followed.
    All,
}

/// How a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// Needs a fence only.
    NonTemporal,
    /// A fence first, and reads what was there.
    Locked,
    /// Persistent at once.
    Persistent,
}

#[derive(Debug)]
struct Person {
    id: ThreadId,
    process: ProcessId,
    has_ended: bool,
    holding: Holding,
    /// Locks that it may have failed to take.
    unsure: SmallVec<[Lock; 2]>,
    lessons: SmallVec<[Lesson; 2]>,
    /// Lines written back and not fenced.
    flushed: Vec<(u64, Moment)>,
    /// Non-temporal stores that were not fenced.
    draining: Vec<WindowId>,
    /// Open windows by what is left of their locks.
    guarded: FxHashMap<SetId, Vec<WindowId>>,
    candidates: Vec<Candidate>,
    /// Lines of others that it has read lately, where, and whether it has written them back.
    reads: SmallVec<[(u64, Tag, bool); 8]>,
}

/// Children that a process has asked for and that have not begun.
#[derive(Debug, Default)]
struct Creations {
    awaited: usize,
    told: Vec<Knowledge>,
}

/// Reads remembered of a thread, for the sake of readers that write back what they read.
const READS_MAX: usize = 8;
/// Candidates that wait for what the reader does.
const CANDIDATES_MAX: usize = 256;
/// Sightings in one word that may be a lock.
const SUSPENDED_MAX: usize = 16;
/// Loads before a store that are remembered with it.
const EARLIER_MAX: usize = 8;

/// See the module's header.
#[derive(Debug, Default)]
pub struct Watch {
    clocks: Clocks,
    sets: LockSets,
    windows: Windows,
    people: Vec<Person>,
    creations: FxHashMap<ProcessId, Creations>,
    parents: FxHashMap<ProcessId, ProcessId>,
    /// Who has used an object that tells nobody when it is given back.
    users: FxHashMap<u64, SmallVec<[Who; 4]>>,
    /// Sightings that wait until the store's window closes.
    watchers: FxHashMap<Moment, Vec<Sighting>>,
    /// Sightings in words that locked instructions change, by granule: locks, unless the word is
    /// written back for its own sake one day.
    suspended: FxHashMap<u64, Vec<Sighting>>,
    /// Something was made persistent.
    has_persisted: bool,
    /// Loads that write back what they have read.
    helpers: FxHashSet<Tag>,
    found: FxHashMap<(Tag, Tag), usize>,
    sightings: Vec<Sighting>,
    /// A process has had more than one thread.
    has_several: bool,
}

impl Watch {
    // ------------------------------------------------------------------ threads

    /// A process begins.
    pub fn process(&mut self, process: ProcessId, parent: ProcessId) {
        self.parents.insert(process, parent);
    }

    /// A thread begins: it knows what those knew who may have created it.
    pub fn begin(&mut self, id: ThreadId, process: ProcessId) -> Who {
        let who = self.clocks.add();
        let siblings = self.people.iter().any(|person| person.process == process);
        self.has_several |= siblings;
        let creations = self.creations.entry(process).or_default();
        let told = std::mem::take(&mut creations.told);
        if siblings && creations.awaited > 0 {
            for knowledge in &told {
                self.clocks.learn(who, knowledge);
            }
            creations.awaited -= 1;
            // Which of several calls this is cannot be told, so the others' stay.
            if creations.awaited > 0 {
                creations.told = told;
            }
        } else {
            let from = match siblings {
                true => process,
                false => self.parents.get(&process).copied().unwrap_or(process),
            };
            for other in 0..self.people.len() {
                if self.people[other].process == from {
                    self.clocks.learn_from(who, other);
                }
            }
        }
        self.people.push(Person {
            id,
            process,
            has_ended: false,
            holding: Holding::default(),
            unsure: SmallVec::new(),
            lessons: SmallVec::new(),
            flushed: Vec::new(),
            draining: Vec::new(),
            guarded: FxHashMap::default(),
            candidates: Vec::new(),
            reads: SmallVec::new(),
        });
        who
    }

    /// A thread is about to create another.
    pub fn create(&mut self, who: Who) {
        self.settle(who);
        self.tells(who);
        let creations = self.creations.entry(self.people[who].process).or_default();
        creations.awaited += 1;
        creations.told.push(self.clocks.snapshot(who));
        self.clocks.tick(who);
    }

    /// A thread ends.
    pub fn end(&mut self, who: Who) {
        self.settle(who);
        self.tells(who);
        self.people[who].has_ended = true;
    }

    /// A process ends: whoever waits for it knows what it knew.
    pub fn end_process(&mut self, process: ProcessId) {
        let (gone, left): (Vec<Who>, Vec<Who>) =
            (0..self.people.len()).partition(|who| self.people[*who].process == process);
        for other in gone {
            self.tells(other);
            for who in &left {
                self.clocks.learn_from(*who, other);
            }
        }
    }

    /// Whether anything that is judged was made persistent.
    pub fn has_persisted(&self) -> bool {
        self.has_persisted
    }

    /// Whether any process has had more than one thread.
    pub fn has_several(&self) -> bool {
        self.has_several
    }

    // ------------------------------------------------------------------ locks, and waiting

    /// A thread takes a lock; `surely`, or perhaps in vain.
    pub fn take(&mut self, who: Who, held: Held, surely: bool) {
        self.settle(who);
        let person = &mut self.people[who];
        // Whoever has a lock already, or not, counts as having it twice: too much is held rather
        // than too little, until another thread has it.
        if person.holding.depth(held.lock) == 0 {
            person.unsure.retain(|lock| *lock != held.lock);
        }
        if !surely && !person.unsure.contains(&held.lock) {
            person.unsure.push(held.lock);
        }
        person.holding.take(&mut self.sets, held, 1);
        person.lessons.push(Lesson::Lock(held));
    }

    /// A thread gives a lock back, at `tag`.
    pub fn give(&mut self, who: Who, lock: Lock, tag: Tag) {
        self.settle(who);
        self.tells(who);
        if self.people[who].holding.give(&mut self.sets, lock) {
            self.given(who, lock, tag);
        }
        self.clocks.release(who, object(lock), Order::Taken);
    }

    /// A thread waits for `condition` without the lock, and has it again behind.
    pub fn wait_without(&mut self, who: Who, lock: Lock, condition: u64, tag: Tag) {
        self.settle(who);
        self.tells(who);
        let held = Held {
            lock,
            shared: false,
        };
        let depth = self.people[who].holding.depth(lock).max(1);
        self.people[who].holding.lose(&mut self.sets, lock);
        self.given(who, lock, tag);
        self.clocks.release(who, object(lock), Order::Taken);
        let person = &mut self.people[who];
        person.holding.take(&mut self.sets, held, depth);
        person.lessons.push(Lesson::Lock(held));
        person.lessons.push(Lesson::Object(condition));
    }

    /// A thread tells whoever waits for the object.
    pub fn post(&mut self, who: Who, object: u64) {
        self.settle(who);
        self.tells(who);
        self.clocks.release(who, object, Order::Forced);
    }

    /// A thread waits for the object.
    pub fn wait(&mut self, who: Who, object: u64) {
        self.settle(who);
        self.people[who].lessons.push(Lesson::Object(object));
    }

    /// A thread uses an object by which it learns what all know who have used it before.
    pub fn meet(&mut self, who: Who, object: u64) {
        self.settle(who);
        self.tells(who);
        let users = self.users.entry(object).or_default();
        if !users.contains(&who) {
            users.push(who);
        }
        self.people[who].lessons.push(Lesson::Users(object));
    }

    /// A thread waits for the end of another.
    pub fn join(&mut self, who: Who) {
        self.settle(who);
        self.people[who].lessons.push(Lesson::Ended);
    }

    /// A thread is told something by whomever.
    pub fn listen(&mut self, who: Who) {
        self.settle(who);
        self.tells(who);
        self.people[who].lessons.push(Lesson::All);
    }

    /// A lock is free: what it guarded is not guarded any more.
    fn given(&mut self, who: Who, lock: Lock, tag: Tag) {
        let Watch {
            people,
            sets,
            windows,
            ..
        } = self;
        let guarded = &mut people[who].guarded;
        let with: SmallVec<[SetId; 4]> = guarded
            .keys()
            .copied()
            .filter(|set| sets.has(*set, lock))
            .collect();
        for set in with {
            let rest = sets.without(set, lock);
            let mut moved = guarded.remove(&set).unwrap_or_default();
            moved.retain(|id| match windows.get_mut(*id) {
                Some(window) if window.closed.is_none() => {
                    window.effective = rest;
                    window.unlocks.push((lock, tag));
                    true
                }
                _ => false,
            });
            if rest != SetId::NONE {
                guarded.entry(rest).or_default().append(&mut moved);
            }
        }
    }

    /// The thread goes on: the call that it was in has come back.
    #[inline]
    pub fn settle(&mut self, who: Who) {
        if !self.people[who].lessons.is_empty() {
            self.settle_lessons(who);
        }
    }

    #[inline(never)]
    fn settle_lessons(&mut self, who: Who) {
        let process = self.people[who].process;
        for lesson in std::mem::take(&mut self.people[who].lessons) {
            match lesson {
                Lesson::Lock(held) => {
                    self.clocks.acquire(who, object(held.lock), Order::Taken);
                    if !self.people[who].unsure.contains(&held.lock) {
                        self.disprove(who, held);
                    }
                }
                Lesson::Object(object) => self.clocks.acquire(who, object, Order::Forced),
                Lesson::Users(object) => {
                    let users = self.users.get(&object).cloned();
                    for other in users.unwrap_or_default() {
                        self.clocks.learn_from(who, other);
                    }
                }
                Lesson::Ended | Lesson::All => {
                    let only_ended = matches!(lesson, Lesson::Ended);
                    for other in 0..self.people.len() {
                        let person = &self.people[other];
                        if person.process == process && (person.has_ended || !only_ended) {
                            self.clocks.learn_from(who, other);
                        }
                    }
                }
            }
        }
    }

    /// The thread holds a lock, so others who may have tried in vain have.
    fn disprove(&mut self, who: Who, held: Held) {
        let process = self.people[who].process;
        for other in 0..self.people.len() {
            let person = &mut self.people[other];
            if other != who && person.process == process && person.unsure.contains(&held.lock) {
                person.unsure.retain(|lock| *lock != held.lock);
                person.holding.lose(&mut self.sets, held.lock);
            }
        }
    }

    // ------------------------------------------------------------------ memory

    /// These bytes are a lock of the C library.
    pub fn is_sync(&mut self, range: ByteRange) {
        self.windows.is_sync(range);
    }

    /// All of the bytes are known to be locks of the C library.
    pub fn is_all_sync(&mut self, range: ByteRange) -> bool {
        granules(range).all(|(granule, _)| self.windows.cell(granule).is_sync())
    }

    /// A thread stores. `is_quiet`: it is not judged.
    pub fn store(
        &mut self,
        who: Who,
        range: ByteRange,
        moment: Moment,
        tag: Tag,
        kind: Kind,
        is_quiet: bool,
    ) {
        self.settle(who);
        if kind == Kind::Locked {
            self.fence(who, moment, tag);
            self.windows.is_locked(range);
            self.reads_from(who, range);
        }
        if !is_quiet {
            self.tells(who);
        }
        let set = self.people[who].holding.set();
        let epoch = self.clocks.epoch(who);
        for range in by_line(range) {
            let earlier = match self.has_several && !is_quiet {
                true => self.earlier(who, range),
                false => Vec::new(),
            };
            let mut is_private = true;
            for (granule, _) in granules(range) {
                is_private &= !self.windows.cell(granule).touch(who);
            }
            let window = Window {
                who,
                epoch,
                moment,
                tag,
                range,
                set,
                effective: set,
                is_private,
                is_quiet: is_quiet || kind == Kind::Persistent,
                earlier,
                ..Window::default()
            };
            let mut gone: SmallVec<[(Moment, bool); 2]> = SmallVec::new();
            let watchers = &self.watchers;
            let id = self.windows.open(window, |_, old| {
                if old.closed.is_none() && watchers.contains_key(&old.moment) {
                    gone.push((old.moment, old.is_locked));
                }
            });
            for (moment, is_lock) in gone {
                match is_lock {
                    true => {
                        for sighting in self.watchers.remove(&moment).unwrap_or_default() {
                            self.suspend(sighting);
                        }
                    }
                    false => self.conclude(moment, End::Overwritten),
                }
            }
            match kind {
                Kind::Persistent => self.close(id, self.closed_by(who, moment, tag)),
                Kind::NonTemporal => self.people[who].draining.push(id),
                Kind::Plain | Kind::Locked => {}
            }
            if set != SetId::NONE && kind != Kind::Persistent {
                let guarded = &mut self.people[who].guarded;
                guarded.entry(set).or_default().push(id);
            }
        }
        self.clocks.tick(who);
    }

    /// Loads of other threads of these bytes that nothing forces to be before what `who` does now.
    fn earlier(&mut self, who: Who, range: ByteRange) -> Vec<Load> {
        let mut earlier: Vec<Load> = Vec::new();
        let process = self.people[who].process;
        for (granule, mask) in granules(range) {
            for load in self.windows.cell(granule).loads_of_others(who, mask) {
                let is_forced = self.clocks.knows(who, load.who, load.epoch, Order::Forced);
                let is_known = |known: &Load| (known.tag, known.set) == (load.tag, load.set);
                if is_forced
                    || earlier.len() >= EARLIER_MAX
                    || self.people[load.who].process != process
                    || earlier.iter().any(is_known)
                {
                    continue;
                }
                let is_taken = self.clocks.knows(who, load.who, load.epoch, Order::Taken);
                earlier.push(Load { is_taken, ..*load });
            }
        }
        earlier
    }

    /// A thread loads. `is_quiet`: it is not judged.
    pub fn load(&mut self, who: Who, range: ByteRange, moment: Moment, tag: Tag, is_quiet: bool) {
        self.settle(who);
        let set = self.people[who].holding.set();
        let mut others: SmallVec<[WindowId; 4]> = SmallVec::new();
        for (granule, mask) in granules(range) {
            let cell = self.windows.cell(granule);
            if cell.is_sync() {
                continue;
            }
            cell.touch(who);
            if self.has_several && !is_quiet {
                let epoch = self.clocks.epoch(who);
                cell.remember(Load {
                    who,
                    epoch,
                    moment,
                    tag,
                    set,
                    mask,
                    is_taken: false,
                });
            }
            for id in self.windows.under(granule, mask) {
                let Some(window) = self.windows.get(id) else {
                    continue;
                };
                if window.who == who {
                    continue;
                }
                if !others.contains(&id) {
                    others.push(id);
                    if !is_quiet {
                        self.judge(who, id, set, moment, tag);
                    }
                }
            }
        }
        if others.is_empty() {
            return;
        }
        for id in &others {
            if let Some(window) = self.windows.get(*id) {
                self.clocks.read_from(who, window.who, window.epoch);
            }
        }
        let reads = &mut self.people[who].reads;
        if reads.len() >= READS_MAX {
            reads.remove(0);
        }
        reads.push((range.start().0 / LINE_BYTES, tag, false));
    }

    /// A locked instruction has read these bytes, too. That is not judged: what it stores goes to
    /// the same line, after it.
    fn reads_from(&mut self, who: Who, range: ByteRange) {
        for (granule, mask) in granules(range) {
            for id in self.windows.under(granule, mask) {
                if let Some(window) = self.windows.get(id) {
                    self.clocks.read_from(who, window.who, window.epoch);
                }
            }
        }
    }

    /// The load of a store of another thread.
    fn judge(&mut self, who: Who, id: WindowId, set: SetId, moment: Moment, tag: Tag) {
        let Some(window) = self.windows.get(id).filter(|window| !window.is_quiet) else {
            return;
        };
        let Some((why, unlock)) = self.why(window, who, set) else {
            return;
        };
        let sighting = Sighting {
            why,
            count: 1,
            store: self.stored(window),
            load: Loaded {
                thread: self.people[who].id,
                moment,
                tag,
            },
            unlock,
            end: window.closed.map_or(End::Never, End::Persistent),
        };
        let line = window.range.start().0 / LINE_BYTES;
        let candidates = &mut self.people[who].candidates;
        let pair = |other: &Sighting| (other.store.tag, other.load.tag, other.why);
        if let Some(same) = candidates
            .iter_mut()
            .find(|other| pair(&other.sighting) == pair(&sighting) && other.window == id)
        {
            same.sighting.count += 1;
            return;
        }
        candidates.push(Candidate {
            line,
            is_flushed: false,
            window: id,
            sighting,
        });
        if candidates.len() > CANDIDATES_MAX {
            self.tells(who);
        }
    }

    fn why(&self, window: &Window, who: Who, set: SetId) -> Option<(Why, Option<Tag>)> {
        let common = self.sets.excluding(window.set, set);
        let unlock = common.and_then(|lock| unlock_of(window, lock));
        let Some(closed) = window.closed else {
            return Some((Why::Happened, unlock));
        };
        let after = |order| self.clocks.knows(who, closed.who, closed.epoch, order);
        if self.people[who].process != self.people[window.who].process
            || after(Order::Forced)
            || self.sets.excluding(window.effective, set).is_some()
        {
            return None;
        }
        if common.is_some() {
            return Some((Why::GivenBack, unlock));
        }
        (!after(Order::Taken) && !window.is_private).then_some((Why::Unordered, None))
    }

    fn stored(&self, window: &Window) -> Stored {
        Stored {
            thread: self.people[window.who].id,
            moment: window.moment,
            tag: window.tag,
            range: window.range,
        }
    }

    /// A thread writes the line of that key back; `at_once`: without a fence.
    pub fn flush(&mut self, who: Who, line: Key, moment: Moment, tag: Tag, at_once: bool) {
        self.settle(who);
        let number = line.0 / LINE_BYTES;
        let person = &mut self.people[who];
        for candidate in &mut person.candidates {
            candidate.is_flushed |= candidate.line == number;
        }
        for (line, _, is_flushed) in &mut person.reads {
            *is_flushed |= *line == number;
        }
        if at_once {
            self.close_line(who, number, moment, moment, tag);
            self.helped(who);
        } else if person.flushed.last() != Some(&(number, moment)) {
            person.flushed.push((number, moment));
        }
    }

    /// A thread fences.
    pub fn fence(&mut self, who: Who, moment: Moment, tag: Tag) {
        self.settle(who);
        let flushed = std::mem::take(&mut self.people[who].flushed);
        for (line, until) in &flushed {
            self.close_line(who, *line, *until, moment, tag);
        }
        // Its room is used again.
        let person = &mut self.people[who];
        person.flushed = flushed;
        person.flushed.clear();
        let draining = std::mem::take(&mut person.draining);
        for id in draining {
            self.close(id, self.closed_by(who, moment, tag));
        }
        self.helped(who);
    }

    /// What the thread has read and written back is persistent.
    fn helped(&mut self, who: Who) {
        let person = &mut self.people[who];
        person.candidates.retain(|candidate| !candidate.is_flushed);
        for (_, tag, is_flushed) in &person.reads {
            if *is_flushed {
                self.helpers.insert(*tag);
            }
        }
        person.reads.retain(|(_, _, is_flushed)| !*is_flushed);
    }

    /// A range is made persistent by the kernel.
    pub fn synchronised(&mut self, who: Who, range: ByteRange, moment: Moment, tag: Tag) {
        self.settle(who);
        for id in self.windows.open_in(range) {
            self.close(id, self.closed_by(who, moment, tag));
        }
    }

    /// What is in these bytes does not matter any more.
    pub fn forget(&mut self, range: ByteRange) {
        for id in self.windows.open_in(range) {
            if let Some(window) = self.windows.get_mut(id) {
                window.is_quiet = true;
                let moment = window.moment;
                self.watchers.remove(&moment);
            }
        }
    }

    fn close_line(&mut self, who: Who, line: u64, until: Moment, moment: Moment, tag: Tag) {
        let key = Key(line * LINE_BYTES);
        let open = self.windows.open_in_line(key, until);
        let is_locked = |id: &WindowId| self.windows.get(*id).is_some_and(|w| w.is_locked);
        // What locked instructions change, and what is written back for the sake of something else
        // in its line, is a lock.
        let (locks, data): (SmallVec<[WindowId; 8]>, SmallVec<[WindowId; 8]>) =
            open.into_iter().partition(is_locked);
        if !data.is_empty() {
            for id in &locks {
                if let Some(window) = self.windows.get_mut(*id) {
                    window.is_quiet = true;
                }
            }
        }
        for id in data.into_iter().chain(locks) {
            self.close(id, self.closed_by(who, moment, tag));
        }
    }

    fn closed_by(&self, who: Who, moment: Moment, tag: Tag) -> Closed {
        Closed {
            who,
            thread: self.people[who].id,
            epoch: self.clocks.epoch(who),
            moment,
            tag,
        }
    }

    fn close(&mut self, id: WindowId, closed: Closed) {
        let Some(window) = self.windows.get_mut(id) else {
            return;
        };
        if window.closed.is_some() {
            return;
        }
        window.closed = Some(closed);
        let (moment, is_quiet) = (window.moment, window.is_quiet);
        let (is_locked, granule) = (window.is_locked, window.range.start().0 / GRANULE);
        let earlier = std::mem::take(&mut window.earlier);
        if is_quiet {
            self.watchers.remove(&moment);
            return;
        }
        self.has_persisted = true;
        if is_locked {
            // No lock, after all: what was read of it counts.
            for sighting in self.suspended.remove(&granule).unwrap_or_default() {
                let end = End::Overwritten;
                self.sight(Sighting { end, ..sighting });
            }
        }
        if !self.watchers.is_empty() {
            self.conclude(moment, End::Persistent(closed));
        }
        for load in earlier {
            self.judge_earlier(id, &load, closed);
        }
    }

    /// A load that came before the store, and might have come later.
    fn judge_earlier(&mut self, id: WindowId, load: &Load, closed: Closed) {
        let Some(window) = self.windows.get(id) else {
            return;
        };
        if self.sets.excluding(window.effective, load.set).is_some() {
            return;
        }
        let common = self.sets.excluding(window.set, load.set);
        if common.is_none() && load.is_taken {
            return;
        }
        let sighting = Sighting {
            why: match common {
                Some(_) => Why::GivenBack,
                None => Why::Unordered,
            },
            count: 1,
            store: self.stored(window),
            load: Loaded {
                thread: self.people[load.who].id,
                moment: load.moment,
                tag: load.tag,
            },
            unlock: common.and_then(|lock| unlock_of(window, lock)),
            end: End::Persistent(closed),
        };
        self.sight(sighting);
    }

    // ------------------------------------------------------------------ what was found

    /// The thread makes something of what it has read: it stores, or tells others. From here on it
    /// is too late to help.
    fn tells(&mut self, who: Who) {
        let person = &mut self.people[who];
        person.reads.clear();
        if person.candidates.is_empty() {
            return;
        }
        for candidate in std::mem::take(&mut person.candidates) {
            let Candidate {
                window,
                mut sighting,
                ..
            } = candidate;
            let is_lock = self.windows.has_locked(sighting.store.range);
            match self.windows.get(window) {
                _ if sighting.why != Why::Happened => self.sight(sighting),
                Some(window) if window.is_quiet => {}
                Some(window) => match window.closed {
                    Some(closed) => {
                        sighting.end = End::Persistent(closed);
                        self.sight(sighting);
                    }
                    None => {
                        let waiting = self.watchers.entry(window.moment).or_default();
                        waiting.push(sighting);
                    }
                },
                // Perhaps a lock that was given back.
                None if is_lock => self.suspend(sighting),
                None => {
                    sighting.end = End::Overwritten;
                    self.sight(sighting);
                }
            }
        }
    }

    /// The store of that moment goes on like this.
    fn conclude(&mut self, moment: Moment, end: End) {
        for sighting in self.watchers.remove(&moment).unwrap_or_default() {
            self.sight(Sighting { end, ..sighting });
        }
    }

    fn suspend(&mut self, sighting: Sighting) {
        let granule = sighting.store.range.start().0 / GRANULE;
        let waiting = self.suspended.entry(granule).or_default();
        let pair = |other: &Sighting| (other.store.tag, other.load.tag);
        let same = waiting
            .iter_mut()
            .find(|other| pair(other) == pair(&sighting));
        if let Some(same) = same {
            same.count += sighting.count;
        } else if waiting.len() < SUSPENDED_MAX {
            waiting.push(sighting);
        }
    }

    fn sight(&mut self, sighting: Sighting) {
        let next = self.sightings.len();
        let pair = (sighting.store.tag, sighting.load.tag);
        let at = *self.found.entry(pair).or_insert(next);
        if at == next {
            self.sightings.push(sighting);
            return;
        }
        let known = &mut self.sightings[at];
        let count = known.count + sighting.count;
        if sighting.why < known.why {
            *known = sighting;
        }
        known.count = count;
    }

    /// No event follows. What was found, what happened first.
    pub fn finish(&mut self) -> Vec<Sighting> {
        for who in 0..self.people.len() {
            self.tells(who);
        }
        let mut left: Vec<Moment> = self.watchers.keys().copied().collect();
        left.sort_unstable();
        for moment in left {
            for sighting in self.watchers.remove(&moment).unwrap_or_default() {
                // What locked instructions change and nobody writes back is a lock.
                if !self.windows.has_locked(sighting.store.range) {
                    self.sight(sighting);
                }
            }
        }
        self.found.clear();
        let mut sightings = std::mem::take(&mut self.sightings);
        // A reader that writes back what it has read of others would have done so here, too.
        let helps = |sighting: &Sighting| {
            sighting.load.moment < sighting.store.moment
                && self.helpers.contains(&sighting.load.tag)
        };
        sightings.retain(|sighting| !helps(sighting));
        sightings.sort_by_key(|sighting| (sighting.why, sighting.store.moment));
        sightings
    }
}

/// The object that stands for a lock among those that threads synchronise by.
fn object(lock: Lock) -> u64 {
    1 << 62 | u64::from(lock)
}

fn unlock_of(window: &Window, lock: Lock) -> Option<Tag> {
    let mut unlocks = window.unlocks.iter();
    unlocks
        .find(|(given, _)| *given == lock)
        .map(|(_, tag)| *tag)
}

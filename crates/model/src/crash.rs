//! Crash states: the enumerating view, which enumerates only what is read.
//!
//! [`History`] follows the events and keeps, per unit, the content that is certain and the stores
//! that are not; [`CrashState`] is the set of all memories that a crash at that point may leave,
//! narrowed by each read (Jaaru, section 4). Guarantee: exactly the legal crash states of the
//! configured domain, no more and no fewer. Memory follows the stores not yet persisted: a line
//! stored to for ever and never persisted keeps them all, since each is a legal outcome.
//!
//! A crash state is, per unit, a *cut* of its cached stores (those before it persisted) and a
//! choice for each unordered store; [`Cut`] says how a read divides it. Under HOPS, cuts of
//! different units constrain each other: a persisted store implies all stores of its thread before
//! the last `ofence`. Every such implication points to an earlier store, so the legal cuts of a
//! unit stay an interval, and propagating bounds is exact.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::choices::{Choices, Cut, Survivors, UncertainWrite};
use crate::domain::{Config, FenceRule, FlushOrder, FlushRule, Rules, StoreRule};
use crate::types::{ByteRange, Event, Key, Moment, Op, Thread, Unit, Write};

/// A store came without its values, so that crash states cannot be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingValues(pub ByteRange);

impl fmt::Display for MissingValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store to {:?} was recorded without values", self.0)
    }
}

impl std::error::Error for MissingValues {}

#[derive(Clone, Debug)]
struct Uncertain {
    moment: Moment,
    thread: Thread,
    /// Ordering fences of the thread before it.
    order: u64,
    range: ByteRange,
    bytes: Box<[u8]>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cached,
    Unordered { done: bool },
}

impl Uncertain {
    fn is_unordered(&self) -> bool {
        self.kind != Kind::Cached
    }

    /// Whether it survived, whatever happened to those before it; `floor` is its unit's.
    fn is_certain(&self, floor: Moment) -> bool {
        match self.kind {
            Kind::Cached => self.moment <= floor,
            Kind::Unordered { done } => done,
        }
    }
}

#[derive(Clone, Debug)]
struct UnitHistory {
    /// Content with all folded stores.
    base: Box<[u8]>,
    /// Stores after those folded, in cache order.
    writes: Vec<Uncertain>,
    /// Cached stores up to here are persistent.
    floor: Moment,
    /// Each thread's last cached store.
    last_store: BTreeMap<Thread, Moment>,
}

#[derive(Clone, Debug, Default)]
struct ThreadHistory {
    flushing: BTreeMap<Unit, Moment>,
    unordered: BTreeSet<Unit>,
    /// Units with cached stores since the last draining fence (kept only where one exists).
    undrained: BTreeSet<Unit>,
    order_point: Moment,
    order: u64,
    /// Largest `order` of its stores that are certainly persistent.
    certain_order: u64,
}

/// What has happened to persistent memory so far.
#[derive(Clone, Debug)]
pub struct History {
    config: Config,
    rules: &'static Rules,
    units: BTreeMap<Unit, UnitHistory>,
    threads: BTreeMap<Thread, ThreadHistory>,
    now: Moment,
    /// Units whose possible contents changed since somebody asked.
    changed: BTreeSet<Unit>,
}

impl History {
    /// Nothing has happened; all memory is zero.
    pub fn new(config: Config) -> Self {
        History {
            config,
            rules: config.domain.rules(),
            units: BTreeMap::new(),
            threads: BTreeMap::new(),
            now: Moment(0),
            changed: BTreeSet::new(),
        }
    }

    /// The moment of the last event.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// The units whose possible contents may have changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<Unit> {
        std::mem::take(&mut self.changed)
    }

    /// What a unit may hold if the crash is now, by itself; `None` if nothing was ever stored to
    /// it. Exact where units are independent, which they are in all domains but those that [order
    /// epochs](Rules::orders_epochs).
    pub fn choices(&self, id: Unit) -> Option<Choices> {
        let unit = self.units.get(&id)?;
        let writes = unit.writes.iter().map(|write| UncertainWrite {
            moment: write.moment,
            range: write.range,
            bytes: write.bytes.clone(),
            unordered: write.is_unordered(),
            certain: write.is_certain(unit.floor),
        });
        Some(Choices {
            unit: id,
            base: unit.base.clone(),
            writes: writes.collect(),
        })
    }

    /// Whether the event would make something certain that is not: the moment before it is worth a
    /// crash, since afterwards fewer states are possible.
    pub fn completes(&self, event: &Event<'_>) -> bool {
        let fence = self.rules.fence_of(&event.op).is_some_and(|rule| {
            let Some(view) = self.threads.get(&event.thread) else {
                return false;
            };
            let flushed = view.flushing.iter().any(|(id, covers)| {
                self.units
                    .get(id)
                    .is_some_and(|unit| unit.has_open(*covers))
            });
            match rule {
                FenceRule::Ignored | FenceRule::Orders => false,
                FenceRule::Completes => flushed || !view.unordered.is_empty(),
                FenceRule::Drains => {
                    flushed || !view.unordered.is_empty() || !view.undrained.is_empty()
                }
            }
        });
        let writes_back = |range: ByteRange, rule: FlushRule| {
            rule == FlushRule::AtOnce
                && range.split(self.rules.unit_bytes).any(|part| {
                    let unit = self.units.get(&self.unit_of(part.start));
                    unit.is_some_and(|unit| unit.has_open(self.now))
                })
        };
        fence
            || match &event.op {
                Op::Store(_) | Op::Rmw(_) => self.rules.store == StoreRule::Durable,
                Op::NtStore(_) => self.rules.nt_store == StoreRule::Durable,
                Op::Flush { kind, line } => writes_back(line.range(), self.rules.flush(*kind)),
                Op::Msync(range) => writes_back(*range, self.rules.msync),
                _ => false,
            }
    }

    /// Time passes without an event: something happened that another history keeps.
    pub fn tick(&mut self) {
        self.now.0 += 1;
    }

    /// Begins memory at `to` with what a unit of this or another history may hold, of its first
    /// bytes `len`: what is certain, and the stores that may be missing, each at its moment.
    /// Unordered stores among them are never completed.
    pub fn adopt(&mut self, choices: &Choices, to: Key, len: u64) {
        let from = choices.unit().0 * choices.size() as u64;
        let keep = ByteRange::new(Key(from), len.min(choices.size() as u64));
        self.set_initial(to, &choices.base[..keep.len() as usize]);
        for write in choices.writes() {
            let start = write.range.start.max(keep.start);
            let end = write.range.end.min(keep.end);
            if start >= end {
                continue;
            }
            let skipped = (start - write.range.start) as usize;
            let bytes = &write.bytes[skipped..skipped + (end - start) as usize];
            let range = ByteRange::new(Key(start - from + to.0), end - start);
            for part in range.split(self.rules.unit_bytes) {
                let at = (part.start - range.start) as usize;
                let id = self.unit_of(part.start);
                self.changed.insert(id);
                let unit = self.unit_mut(part);
                let kind = match write.unordered {
                    true => Kind::Unordered {
                        done: write.certain,
                    },
                    false => Kind::Cached,
                };
                if write.certain && !write.unordered {
                    unit.floor = unit.floor.max(write.moment);
                }
                unit.writes.push(Uncertain {
                    moment: write.moment,
                    thread: Thread(0),
                    order: 0,
                    range: part,
                    bytes: bytes[at..at + part.len() as usize].into(),
                    kind,
                });
            }
        }
    }

    /// Memory holds this from now on, certainly.
    pub fn adopt_certain(&mut self, addr: Key, bytes: &[u8]) {
        self.set_initial(addr, bytes);
        let range = ByteRange::new(addr, bytes.len() as u64);
        for part in range.split(self.rules.unit_bytes) {
            self.changed.insert(self.unit_of(part.start));
        }
    }

    /// Says what memory held before the first event. Bytes never given are zero.
    pub fn set_initial(&mut self, addr: Key, bytes: &[u8]) {
        let range = ByteRange::new(addr, bytes.len() as u64);
        for part in range.split(self.rules.unit_bytes) {
            let from = (part.start - range.start) as usize;
            let bytes = &bytes[from..from + part.len() as usize];
            let unit_bytes = self.rules.unit_bytes;
            let unit = self.unit_mut(part);
            overlay(&mut unit.base, unit_bytes, part, bytes);
        }
    }

    /// Takes the next event of the total order.
    pub fn apply(&mut self, event: &Event<'_>) -> Result<(), MissingValues> {
        self.now.0 += 1;
        if let Some(rule) = self.rules.fence_of(&event.op) {
            self.fence(event.thread, rule);
        }
        match &event.op {
            Op::Store(write) | Op::Rmw(write) => {
                self.write(event.thread, write, self.rules.store)?;
            }
            Op::NtStore(write) => self.write(event.thread, write, self.rules.nt_store)?,
            Op::Flush { kind, line } => {
                self.flush(event.thread, line.range(), self.rules.flush(*kind));
            }
            Op::Msync(range) => self.flush(event.thread, *range, self.rules.msync),
            Op::Load(_) => self.threads.entry(event.thread).or_default().order_point = self.now,
            Op::Sfence | Op::Mfence | Op::Locked | Op::Ofence | Op::Dfence => {}
        }
        Ok(())
    }

    /// All memories that a crash now may leave.
    pub fn crash(&self) -> CrashState<'_> {
        let mut cuts = BTreeMap::new();
        for (id, unit) in &self.units {
            if unit.writes.is_empty() {
                continue;
            }
            let stores = unit.writes.iter();
            let cut = Cut::open(stores.map(|w| (w.is_unordered(), w.is_certain(unit.floor))));
            cuts.insert(*id, cut);
        }
        let mut state = CrashState {
            history: self,
            cuts,
        };
        state.propagate();
        state
    }

    fn unit_of(&self, addr: u64) -> Unit {
        Unit(addr / self.rules.unit_bytes)
    }

    fn unit_mut(&mut self, part: ByteRange) -> &mut UnitHistory {
        let id = self.unit_of(part.start);
        let len = self.rules.unit_bytes as usize;
        self.units.entry(id).or_insert_with(|| UnitHistory {
            base: vec![0; len].into_boxed_slice(),
            writes: Vec::new(),
            floor: Moment(0),
            last_store: BTreeMap::new(),
        })
    }

    fn write(
        &mut self,
        thread: Thread,
        write: &Write<'_>,
        rule: StoreRule,
    ) -> Result<(), MissingValues> {
        for piece in write.pieces(self.config.atomicity) {
            let range = piece.range();
            let bytes = piece.bytes().ok_or(MissingValues(write.range()))?;
            let now = self.now;
            let id = self.unit_of(range.start);
            let drains = self.rules.dfence == FenceRule::Drains;
            let view = self.threads.entry(thread).or_default();
            let order = view.order;
            let kind = match rule {
                StoreRule::Cached | StoreRule::Durable => Kind::Cached,
                StoreRule::Unordered => Kind::Unordered { done: false },
            };
            if rule == StoreRule::Unordered {
                view.unordered.insert(id);
            } else if drains {
                view.undrained.insert(id);
            }
            let unit = self.unit_mut(range);
            let bytes = bytes.into();
            unit.writes.push(Uncertain {
                moment: now,
                thread,
                order,
                range,
                bytes,
                kind,
            });
            if kind == Kind::Cached {
                unit.last_store.insert(thread, now);
            }
            self.changed.insert(id);
            let unit = self.unit_mut(range);
            if rule == StoreRule::Durable {
                unit.floor = now;
                self.fold(id);
            }
        }
        Ok(())
    }

    fn flush(&mut self, thread: Thread, range: ByteRange, rule: FlushRule) {
        for part in range.split(self.rules.unit_bytes) {
            let id = self.unit_of(part.start);
            let Some(unit) = self.units.get_mut(&id) else {
                continue;
            };
            match rule {
                FlushRule::Ignored => {}
                FlushRule::AtOnce => {
                    unit.floor = self.now;
                    self.fold(id);
                }
                FlushRule::AtFence => {
                    let view = self.threads.entry(thread).or_default();
                    let covers = match self.config.flush_order {
                        FlushOrder::Recorded => self.now,
                        FlushOrder::Program => {
                            let stored = unit.last_store.get(&thread).copied().unwrap_or_default();
                            stored.max(view.order_point)
                        }
                    };
                    view.flushing.insert(id, covers);
                }
            }
        }
    }

    fn fence(&mut self, thread: Thread, rule: FenceRule) {
        if rule == FenceRule::Ignored {
            return;
        }
        let view = self.threads.entry(thread).or_default();
        view.order_point = self.now;
        let mut floors = BTreeMap::new();
        let mut unordered = BTreeSet::new();
        match rule {
            FenceRule::Ignored => {}
            FenceRule::Orders => view.order += 1,
            FenceRule::Completes => {
                floors = std::mem::take(&mut view.flushing);
                unordered = std::mem::take(&mut view.unordered);
            }
            FenceRule::Drains => {
                view.order += 1;
                floors = std::mem::take(&mut view.flushing);
                unordered = std::mem::take(&mut view.unordered);
                for id in std::mem::take(&mut view.undrained) {
                    let last = self.units.get(&id).and_then(|u| u.last_store.get(&thread));
                    floors.insert(id, last.copied().unwrap_or_default());
                }
            }
        }
        for id in &unordered {
            for write in self
                .units
                .get_mut(id)
                .into_iter()
                .flat_map(|unit| &mut unit.writes)
            {
                if let Kind::Unordered { done } = &mut write.kind
                    && write.thread == thread
                {
                    *done = true;
                }
            }
        }
        for (id, floor) in &floors {
            if let Some(unit) = self.units.get_mut(id) {
                unit.floor = unit.floor.max(*floor);
            }
        }
        for id in unordered.into_iter().chain(floors.into_keys()) {
            self.fold(id);
        }
    }

    /// Moves the certain beginning of a unit's stores into its content.
    fn fold(&mut self, id: Unit) {
        self.changed.insert(id);
        let Some(unit) = self.units.get_mut(&id) else {
            return;
        };
        let count = unit
            .writes
            .iter()
            .take_while(|write| write.is_certain(unit.floor))
            .count();
        for write in unit.writes.drain(..count) {
            overlay(
                &mut unit.base,
                self.rules.unit_bytes,
                write.range,
                &write.bytes,
            );
            let view = self.threads.entry(write.thread).or_default();
            view.certain_order = view.certain_order.max(write.order);
        }
    }
}

fn overlay(content: &mut [u8], unit_bytes: u64, range: ByteRange, bytes: &[u8]) {
    let at = (range.start % unit_bytes) as usize;
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

impl UnitHistory {
    /// Whether a write-back of the cached stores up to a moment would make one certain.
    fn has_open(&self, covers: Moment) -> bool {
        self.writes.iter().any(|write| {
            write.kind == Kind::Cached && write.moment > self.floor && write.moment <= covers
        })
    }

    fn cached(&self) -> Vec<&Uncertain> {
        self.writes
            .iter()
            .filter(|write| write.kind == Kind::Cached)
            .collect()
    }

    fn content(&self, unit_bytes: u64, survivors: &Survivors) -> Vec<u8> {
        let mut content = self.base.to_vec();
        let presence = survivors.presence(self.writes.iter().map(Uncertain::is_unordered));
        for (write, present) in self.writes.iter().zip(presence) {
            if present {
                overlay(&mut content, unit_bytes, write.range, &write.bytes);
            }
        }
        content
    }
}

/// One thing that a post-crash read may see: which stores it reads from, and the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOption {
    /// The bytes read, clipped to one unit.
    pub range: ByteRange,
    /// What they hold.
    pub bytes: Vec<u8>,
    unit: Unit,
    cut: Option<Cut>,
}

/// The set of memories that a crash may have left, as far as reads have not narrowed it.
#[derive(Clone, Debug)]
pub struct CrashState<'h> {
    history: &'h History,
    cuts: BTreeMap<Unit, Cut>,
}

impl CrashState<'_> {
    /// The units (lines; pages under `page`) whose content is open, as byte ranges.
    pub fn uncertain_lines(&self) -> impl Iterator<Item = ByteRange> {
        let unit_bytes = self.history.rules.unit_bytes;
        self.cuts
            .iter()
            .filter(|(_, cut)| cut.choices_log2() > 0.0)
            .map(move |(unit, _)| ByteRange::new(Key(unit.0 * unit_bytes), unit_bytes))
    }

    /// Base-2 logarithm of the number of states that eager enumeration would visit.
    ///
    /// Under HOPS, where units depend on each other, an upper bound.
    pub fn states_log2(&self) -> f64 {
        self.cuts.values().map(Cut::choices_log2).sum()
    }

    /// The same as a number, if it fits.
    pub fn states(&self) -> Option<u128> {
        self.cuts.values().try_fold(1u128, |product, cut| {
            let open = u32::try_from(cut.unordered_open()).ok()?;
            let subsets = 1u128.checked_shl(open)?;
            product
                .checked_mul((cut.hi - cut.lo + 1) as u128)?
                .checked_mul(subsets)
        })
    }

    /// Everything that a read of `range` may see, oldest write-back first. Never empty.
    ///
    /// `range` is clipped to the unit in which it begins; read wider ranges unit by unit. Options
    /// differ in the stores read from, so two may hold equal bytes. Reads of a word at a time keep
    /// the list short: unordered stores multiply.
    pub fn may_read(&self, range: ByteRange) -> Vec<ReadOption> {
        let unit_bytes = self.history.rules.unit_bytes;
        let range = range.split(unit_bytes).next().unwrap_or(range);
        let id = self.history.unit_of(range.start);
        let at = (range.start % unit_bytes) as usize;
        let slice = |content: &[u8]| content[at..at + range.len() as usize].to_vec();
        let Some(unit) = self.history.units.get(&id) else {
            let bytes = vec![0; range.len() as usize];
            return vec![ReadOption {
                range,
                bytes,
                unit: id,
                cut: None,
            }];
        };
        let Some(cut) = self.cuts.get(&id) else {
            return vec![ReadOption {
                range,
                bytes: slice(&unit.base),
                unit: id,
                cut: None,
            }];
        };
        let stores = unit.writes.iter();
        let cuts = cut.split(stores.map(|w| (w.is_unordered(), w.range.overlaps(range))));
        let options = cuts.into_iter().map(|cut| ReadOption {
            range,
            bytes: slice(&unit.content(unit_bytes, &cut.oldest())),
            unit: id,
            cut: Some(cut),
        });
        options.collect()
    }

    /// Narrows the set to the states in which that option was read. The option must come from
    /// [`may_read`](Self::may_read) on this state, with nothing chosen since.
    pub fn choose(&mut self, option: &ReadOption) {
        if let Some(cut) = &option.cut {
            self.cuts.insert(option.unit, cut.clone());
            self.propagate();
        }
    }

    /// Reads `range` with the `choice`-th option and narrows the set; `None` if there are fewer.
    pub fn read(&mut self, range: ByteRange, choice: usize) -> Option<Vec<u8>> {
        let option = self.may_read(range).into_iter().nth(choice)?;
        self.choose(&option);
        Some(option.bytes)
    }

    /// Carries what is known of one unit to the others, where persists have an order.
    fn propagate(&mut self) {
        if !self.history.rules.orders_epochs() {
            return;
        }
        let cached: BTreeMap<Unit, Vec<&Uncertain>> = self
            .cuts
            .keys()
            .map(|id| (*id, self.history.units[id].cached()))
            .collect();
        loop {
            let mut present: BTreeMap<Thread, u64> = self
                .history
                .threads
                .iter()
                .map(|(t, view)| (*t, view.certain_order))
                .collect();
            let mut absent: BTreeMap<Thread, u64> = BTreeMap::new();
            for (id, cut) in &self.cuts {
                for write in &cached[id][..cut.lo] {
                    let order = present.entry(write.thread).or_default();
                    *order = write.order.max(*order);
                }
                for write in &cached[id][cut.hi..] {
                    let order = absent.entry(write.thread).or_insert(u64::MAX);
                    *order = write.order.min(*order);
                }
            }
            let before = self.cuts.clone();
            for (id, cut) in &mut self.cuts {
                for (i, write) in cached[id].iter().enumerate() {
                    if present
                        .get(&write.thread)
                        .is_some_and(|order| write.order < *order)
                    {
                        cut.lo = cut.lo.max(i + 1);
                    }
                    if absent
                        .get(&write.thread)
                        .is_some_and(|order| write.order > *order)
                    {
                        cut.hi = cut.hi.min(i);
                    }
                }
            }
            if self.cuts == before {
                return;
            }
        }
    }
}

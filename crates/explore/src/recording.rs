//! One recorded run: what it did to persistent memory, and what a crash may leave where.
//!
//! [`Recorder`] takes the events of a run and gives a [`Recording`]: a [`Timeline`] with one version of each unit where it
//! changed, and the failure points. A failure point lies
//!
//! - before each event that makes something certain, and after the last, if anything was stored
//!   since the previous point. Between two such events the set of crash states only grows, so the
//!   last moment has them all. Under eADR every piece of a store is such an event, so there is a
//!   point between any two, and one before the first;
//! - at each acknowledgement to the outside (output written, input asked for) while anything is
//!   uncertain, because what was acknowledged must survive. If nobody judges acknowledgements, or
//!   the program asks in the middle of a line, only if anything was stored since the previous
//!   point.
//!
//! What names and sizes a crash may leave says [`brownout_model::names`]. Each such state is a
//! failure point of its own, at the same place: what recovery finds by name is fixed before it
//! runs, what it reads is chosen as it goes on.
//!
//! Deviations: `write` to persistent memory counts as a store, which `fsync` or `msync` completes.
//! What is written to an ordinary file is written back by the page, in every domain. A mapping
//! counts as one with `MAP_SYNC` (but in the page domain): the first store to a page makes the
//! file's existence and size durable. Where nobody asks for names, sizes and the existence of files
//! are durable at once. What libpmemobj declares clean by request is left as the instructions made
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brownout_model::names::{Promise, Sync};
use brownout_model::registered::Registered;
use brownout_model::{
    Atomicity, ByteRange, Choices, Config, Domain, Event as ModelEvent, FenceRule, History, Key,
    Line, Moment, Op, Thread, Unit, Write, keys,
};
use brownout_trace::annotation;
use brownout_trace::event::{
    Access, Elements, Event, EventKind, FenceKind, FileId, MS_SYNC, NameChange, PmReason,
    ProcessId, TargetAddr, split_names,
};
use brownout_trace::maps::{AddressSpaces, MapFault};
use brownout_trace::{Beginning, EventSink};
use rustc_hash::FxHashSet;

use crate::before::Before;
use crate::files;
use crate::filing::{self, Filing, NameStep};
use crate::input::{Consumed, Lines};
use crate::interleaving::Interleaving;
use crate::site::Site;
use crate::stacks::Definitions;
use crate::unit::{PAGE, is_ordinary, is_page, unit_of};
use crate::view::{Base, Entry, FileState, Files, Timeline};

/// What an event did to persistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Store(ByteRange, TargetAddr),
    Flush(ByteRange),
    Fence,
    Sync(ByteRange),
}

/// An event that the model knows; the index is its moment, less one.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub site: Site,
    pub did: Did,
}

/// Why there is a failure point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The next event makes something certain.
    Completes,
    /// The outside was told.
    Acknowledges,
    /// The run is over.
    End,
}

/// A place at which the power fails.
#[derive(Clone, Debug)]
pub struct FailurePoint {
    pub reason: Reason,
    /// The event that does not happen any more (or, for an acknowledgement, that just did). `None`
    /// at the end.
    pub site: Option<Site>,
    /// Model events so far.
    pub moment: u64,
    /// Lines of input that the program had consumed wholly when it last asked for more; `None`
    /// before it has asked.
    pub consumed: Option<u64>,
    /// How many outputs it has written to its standard output.
    pub outputs: u64,
    /// Bytes of standard output.
    pub output_bytes: u64,
    /// The files: what names and sizes this crash leaves.
    pub files: Arc<Files>,
    /// What was done to names and sizes and is lost in it, by number.
    pub lost: Arc<[u32]>,
    /// Failure points of the same place have the same number.
    pub place: u32,
    /// Of those, this one has lost all of names and sizes that can be lost.
    pub is_oldest: bool,
}

/// A tracked file of the run.
#[derive(Clone, Debug)]
pub struct TrackedFile {
    pub path: PathBuf,
    /// The run has created it.
    pub created: bool,
    /// What it was when it was first mapped.
    pub before: FileState,
    /// Copy of its content then.
    pub base: PathBuf,
    /// Copy of its content before the run, if that is known to be another.
    pub original: Option<PathBuf>,
}

/// A whole run.
pub struct Recording {
    pub timeline: Arc<Timeline>,
    pub points: Vec<FailurePoint>,
    pub steps: Vec<Step>,
    pub files: BTreeMap<FileId, TrackedFile>,
    pub definitions: Definitions,
    /// Equal for equal runs.
    pub digest: [u8; 32],
    /// More than one thread stored to persistent memory.
    pub storing_threads: usize,
    /// They might have stored in another order.
    pub is_interleaved: bool,
    /// A system call has stored to persistent memory, or has synced it, when another thread had
    /// stored.
    pub synced_beside: bool,
    /// Its standard input, if it has read it.
    pub input: Option<Lines>,
    /// All of its input was consumed before it stored anything that it may have learned from it.
    pub reads_ahead: bool,
    /// Outputs written, in all.
    pub outputs: u64,
    /// Some store was made.
    pub touched: bool,
    /// What was done to names and sizes.
    pub names: Vec<NameStep>,
    /// What was done to files and is not part of the crash states, in words.
    pub unfollowed: BTreeSet<String>,
    /// What was done to attributes of its files, which is not part of the crash states either.
    pub attributes: BTreeSet<String>,
    /// At some failure point not all states of names and sizes were taken.
    pub names_sampled: bool,
    /// The files before the run.
    pub initial: Arc<Files>,
    /// Names that the program has given to its bytes, by numbers of events.
    pub registered: Registered,
}

impl Recording {
    /// Equal for equal runs, as text.
    pub fn name(&self) -> String {
        Recording::name_of(self.digest)
    }

    /// What it did to attributes of files, which crashes leave as they were first; `None` if that
    /// is nothing.
    pub fn attributes_left(&self, who: &str) -> Option<String> {
        let first = self.attributes.first()?;
        let more = match self.attributes.len() {
            1 => String::new(),
            n => format!(", and {} more", n - 1),
        };
        Some(format!(
            "{who} changes {first}{more}: permissions, owners and extended attributes are not part of the crash states"
        ))
    }

    /// A digest as text.
    pub fn name_of(digest: [u8; 32]) -> String {
        blake3::Hash::from_bytes(digest).to_hex()[..32].to_owned()
    }

    /// Forgets what takes room. The run's number stays taken, since others refer to it.
    pub fn retire(&mut self) {
        self.points = Vec::new();
        self.steps = Vec::new();
        self.timeline = Arc::new(Timeline::new(Base::Files(BTreeMap::new()), 64));
        self.definitions = Definitions::default();
    }
}

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct RecordOptions {
    pub model: Config,
    /// A failure point at each acknowledgement, although nothing was stored since the last or is
    /// uncertain.
    pub judge_acknowledgements: bool,
    /// What is promised about names and sizes; `None` if they count as durable at once.
    pub names: Option<Promise>,
    /// So many states of names and sizes are taken at one place; of more, some.
    pub names_max: usize,
}

/// A copy of what was there under a name before the run, if anything was.
pub type Originals = Box<dyn FnMut(&Path) -> Option<PathBuf> + Send>;

/// Takes the events of a run.
pub struct Recorder {
    options: RecordOptions,
    spaces: AddressSpaces,
    history: History,
    timeline: Timeline,
    initialised: FxHashSet<Unit>,
    unit_bytes: u64,
    /// Where copies of files go; `None` if the files are known already.
    scratch: Option<PathBuf>,
    /// Gives what a file held before the run, where what it holds when it is first seen is
    /// something else.
    originals: Option<Originals>,
    /// By the stream's number, until the file is defined.
    bases: BTreeMap<FileId, (PathBuf, Option<File>)>,
    files: BTreeMap<FileId, TrackedFile>,
    filing: Filing,
    /// What ordinary files hold.
    pages: History,
    /// Names and files of before the run, by when they were first seen (in failure points), so that
    /// earlier points have them, too.
    found: Vec<(usize, Vec<u8>, Entry, Option<FileState>)>,
    places: u32,
    names_sampled: bool,
    points: Vec<FailurePoint>,
    steps: Vec<Step>,
    definitions: Definitions,
    changed: BTreeSet<Unit>,
    open: BTreeSet<Unit>,
    stored_since: bool,
    touched: bool,
    interleaving: Interleaving,
    synced_beside: bool,
    index: u64,
    consumed: Consumed,
    /// How much of the input was consumed at the first store after it was asked for.
    stored_at: Option<u64>,
    outputs: u64,
    output_bytes: u64,
    digest: blake3::Hasher,
    registered: Registered,
}

impl Recorder {
    /// For a run on the files as they are. Copies of them go to `scratch`.
    pub fn new(options: RecordOptions, scratch: &Path) -> Recorder {
        Recorder::with_base(
            options,
            Base::Files(BTreeMap::new()),
            Some(scratch.to_path_buf()),
        )
    }

    /// What its standard input is, so that it is known which lines it has consumed.
    pub fn with_input(mut self, lines: Lines) -> Recorder {
        self.consumed = Consumed::new(lines);
        self
    }

    /// Files are not copied when they are first seen: this gives what they held before the run.
    pub fn with_originals(mut self, originals: Originals) -> Recorder {
        self.originals = Some(originals);
        self
    }

    /// For a run on an image, which has these files.
    pub fn on(options: RecordOptions, base: Base, files: &Files) -> Recorder {
        let mut recorder = Recorder::with_base(options, base, None);
        recorder.filing = Filing::on(options.names, files);
        recorder
    }

    fn with_base(options: RecordOptions, base: Base, scratch: Option<PathBuf>) -> Recorder {
        let unit_bytes = options.model.domain.rules().unit_bytes;
        Recorder {
            options,
            spaces: AddressSpaces::new(),
            history: History::new(options.model),
            timeline: Timeline::new(base, unit_bytes),
            initialised: FxHashSet::default(),
            unit_bytes,
            scratch,
            originals: None,
            bases: BTreeMap::new(),
            files: BTreeMap::new(),
            filing: Filing::new(options.names),
            pages: History::new(Config {
                domain: Domain::Page,
                atomicity: Atomicity::Page,
                ..options.model
            }),
            found: Vec::new(),
            places: 0,
            names_sampled: false,
            points: Vec::new(),
            steps: Vec::new(),
            definitions: Definitions::default(),
            changed: BTreeSet::new(),
            open: BTreeSet::new(),
            stored_since: false,
            touched: false,
            interleaving: Interleaving::default(),
            synced_beside: false,
            index: 0,
            consumed: Consumed::default(),
            stored_at: None,
            outputs: 0,
            output_bytes: 0,
            digest: blake3::Hasher::new(),
            registered: Registered::default(),
        }
    }

    /// The run is over.
    pub fn finish(mut self) -> Recording {
        if self.stored_since || self.options.judge_acknowledgements {
            self.point(Reason::End, None);
        }
        let next = self.filing.next();
        let mut initial = Files {
            next,
            ..Files::default()
        };
        for (_, path, entry, state) in &self.found {
            add_found(&mut initial, path, entry, *state);
        }
        let mut stand_ins = filing::stand_ins(&initial);
        // A file that was there before has no name of the run's.
        for (content, file) in &self.files {
            use std::os::unix::ffi::OsStrExt;
            let path = file.path.as_os_str().as_bytes();
            stand_ins.extend(filing::folder_in_memory(path).filter(|_| !is_ordinary(*content)));
        }
        for point in &self.points {
            stand_ins.extend(filing::stand_ins(&point.files));
        }
        let mut shared: BTreeMap<Files, Arc<Files>> = BTreeMap::new();
        for (at, point) in self.points.iter_mut().enumerate() {
            let mut files = point.files.as_ref().clone();
            files.next = next;
            // What was found later was there before.
            for (first, path, entry, state) in &self.found {
                if *first > at {
                    add_found(&mut files, path, entry, *state);
                }
            }
            filing::lose_memory(&mut files, &stand_ins);
            let entry = shared.entry(files.clone());
            point.files = entry.or_insert_with(|| Arc::new(files)).clone();
        }
        Recording {
            timeline: Arc::new(self.timeline),
            points: self.points,
            steps: self.steps,
            files: self.files,
            definitions: self.definitions,
            digest: *self.digest.finalize().as_bytes(),
            registered: self.registered,
            storing_threads: self.interleaving.threads(),
            is_interleaved: self.interleaving.is_there(),
            synced_beside: self.synced_beside,
            reads_ahead: self
                .stored_at
                .is_some_and(|at| at > 0 && at == self.consumed.count()),
            input: self.consumed.whole.map(|_| self.consumed.into_lines()),
            outputs: self.outputs,
            touched: self.touched,
            attributes: self.filing.attributes().collect(),
            names: self.filing.steps,
            unfollowed: self.filing.unfollowed,
            names_sampled: self.names_sampled,
            initial: Arc::new(initial),
        }
    }

    fn site(&self, event: &Event<'_>) -> Site {
        let process = self.spaces.process_of(event.thread).unwrap_or_default();
        Site {
            thread: event.thread,
            process,
            epoch: self.definitions.epoch(process),
            pc: event.pc,
            context: event.context,
            event: self.index,
        }
    }

    /// Looks at what changed since the last time.
    fn look(&mut self) {
        let mut changed = self.history.take_changed();
        changed.extend(self.pages.take_changed());
        for unit in changed {
            let certain = self.choices(unit).is_none_or(|c| c.is_certain());
            match certain {
                true => self.open.remove(&unit),
                false => self.open.insert(unit),
            };
            self.changed.insert(unit);
        }
    }

    fn choices(&self, unit: Unit) -> Option<Choices> {
        match is_page(unit) {
            true => self.pages.choices(unit),
            false => self.history.choices(unit),
        }
    }

    fn is_uncertain(&mut self) -> bool {
        self.look();
        !self.open.is_empty() || self.filing.names.is_uncertain()
    }

    fn point(&mut self, reason: Reason, site: Option<Site>) {
        self.look();
        let changed = std::mem::take(&mut self.changed);
        let choices: Vec<Choices> = changed
            .into_iter()
            .filter_map(|unit| self.choices(unit))
            .collect();
        let mut choices = Some(choices);
        let states = self.filing.states(self.options.names_max);
        self.names_sampled |= !states.all;
        for (number, state) in states.list.into_iter().enumerate() {
            self.timeline.close(choices.take().unwrap_or_default());
            self.points.push(FailurePoint {
                reason,
                site,
                moment: self.history.now().0,
                consumed: self.consumed.whole,
                outputs: self.outputs,
                output_bytes: self.output_bytes,
                files: Arc::new(filing::files_of(&state, (0, 0))),
                lost: state.lost.into(),
                place: self.places,
                is_oldest: number == states.oldest,
            });
        }
        self.places += 1;
        self.stored_since = false;
    }

    fn acknowledged(&mut self, site: Site, is_judged: bool) {
        let wanted = is_judged && self.options.judge_acknowledgements;
        if wanted || self.stored_since && self.is_uncertain() {
            self.point(Reason::Acknowledges, Some(site));
        }
    }

    fn apply(&mut self, site: Site, op: Op<'_>, did: Did) -> io::Result<()> {
        let event = ModelEvent::new(Thread(site.thread.0), op);
        // Under eADR every piece of a store is durable by itself, so the power can fail between
        // two.
        if self.options.model.domain == Domain::Eadr {
            for piece in event.pieces(self.options.model.atomicity) {
                self.apply_one(site, &piece, did)?;
            }
            return Ok(());
        }
        self.apply_one(site, &event, did)
    }

    fn apply_one(&mut self, site: Site, event: &ModelEvent<'_>, did: Did) -> io::Result<()> {
        // Where stores are durable at once, nothing later leaves memory as it was before the first.
        let is_first = self.options.model.domain == Domain::Eadr && self.points.is_empty();
        if (self.stored_since || is_first) && self.history.completes(event) {
            self.point(Reason::Completes, Some(site));
        }
        self.history
            .apply(event)
            .map_err(|e| io::Error::other(e.to_string()))?;
        // Each piece of a wide store by itself: the power can fail before the next.
        self.stored_since |= matches!(event.op, Op::Store(_) | Op::NtStore(_) | Op::Rmw(_));
        self.pages.tick();
        self.step(site, did);
        Ok(())
    }

    /// An event that concerns an ordinary file.
    fn apply_page(&mut self, site: Site, op: Op<'_>, did: Did) -> io::Result<()> {
        let event = ModelEvent::new(Thread(site.thread.0), op);
        if self.stored_since && self.pages.completes(&event) {
            self.point(Reason::Completes, Some(site));
        }
        self.pages
            .apply(&event)
            .map_err(|e| io::Error::other(e.to_string()))?;
        self.history.tick();
        self.step(site, did);
        Ok(())
    }

    fn step(&mut self, site: Site, did: Did) {
        self.steps.push(Step { site, did });
        // Not its place among all events: how often threads wait for each other is chance, and
        // changes no crash state.
        self.digest.update(&site.pc.0.to_le_bytes());
        debug_assert_eq!(self.steps.len() as u64, self.history.now().0);
    }

    /// A model's store for the part of an access that lies in one file.
    fn store(&mut self, site: Site, access: &Access<'_>, make: Make) -> io::Result<()> {
        if access.bytes.len() != access.size as usize {
            return Err(io::Error::other("a store was recorded without values"));
        }
        let mut parts = Vec::new();
        keys::translate(
            &mut self.spaces,
            site.thread,
            access.addr,
            u64::from(access.size),
            |keys, at| parts.push((keys, at as usize)),
        )
        .map_err(MapFault::into_error)?;
        for (keys, at) in parts {
            let (file, offset) = keys::place(keys.start());
            let keys = self.content_keys(keys);
            if self.options.model.domain != Domain::Page
                && !is_ordinary(keys::place(keys.start()).0)
            {
                for page in (offset / PAGE)..(offset + keys.len()).div_ceil(PAGE) {
                    if self.filing.faults(file, page * PAGE) {
                        self.sync_names(site, &Sync::Data(file));
                    }
                }
            }
            let bytes = &access.bytes[at..at + keys.len() as usize];
            let addr = TargetAddr(access.addr.0 + at as u64);
            let make = match make {
                // A mapping may end within an element.
                Make::String(elements) if !at.is_multiple_of(elements.bytes.into()) => {
                    let bytes = 1;
                    Make::String(Elements { bytes, ..elements })
                }
                make => make,
            };
            self.store_keys(site, keys, addr, bytes, make)?;
        }
        Ok(())
    }

    fn store_keys(
        &mut self,
        site: Site,
        keys: ByteRange,
        addr: TargetAddr,
        bytes: &[u8],
        make: Make,
    ) -> io::Result<()> {
        let ordinary = is_ordinary(keys::place(keys.start()).0);
        let unit_bytes = if ordinary { PAGE } else { self.unit_bytes };
        for part in keys.split(unit_bytes) {
            let unit = unit_of(part.start().0, self.unit_bytes);
            if self.initialised.insert(unit) {
                let start = Key(unit.0 * unit_bytes);
                let initial = self.timeline.initial(unit);
                match ordinary {
                    true => self.pages.set_initial(start, &initial),
                    false => self.history.set_initial(start, &initial),
                }
            }
        }
        self.digest.update(&keys.start().0.to_le_bytes());
        self.digest.update(bytes);
        let write = Write::new(keys.start(), bytes);
        if ordinary {
            // What one call writes into a page is written back with it, or not.
            self.apply_page(site, Op::Store(write), Did::Store(keys, addr))?;
            self.stored_since = true;
            return Ok(());
        }
        let op = match make {
            Make::Store => Op::Store(write),
            Make::String(elements) => Op::Store(write.by(elements)),
            Make::NtStore => Op::NtStore(write),
            Make::Rmw => Op::Rmw(write),
        };
        self.apply(site, op, Did::Store(keys, addr))?;
        self.touched = true;
        self.stored_at = self.stored_at.or(self.consumed.whole);
        self.interleaving.stored(site.process, site.thread);
        Ok(())
    }

    /// `msync` and `fsync`: what is open there becomes certain.
    fn sync(&mut self, site: Site, keys: ByteRange) -> io::Result<()> {
        self.look();
        let ordinary = is_ordinary(keys::place(keys.start()).0);
        let unit_bytes = if ordinary { PAGE } else { self.unit_bytes };
        let from = Unit(keys.start().0 / unit_bytes);
        let to = Unit(keys.end().0.div_ceil(unit_bytes));
        let open: Vec<Unit> = self.open.range(from..to).copied().collect();
        for unit in open {
            let range = ByteRange::new(Key(unit.0 * unit_bytes), unit_bytes);
            match ordinary {
                true => self.apply_page(site, Op::Msync(range), Did::Sync(range))?,
                false => self.apply(site, Op::Msync(range), Did::Sync(range))?,
            }
        }
        Ok(())
    }

    /// Keys of the stream's files as keys of what those hold now.
    fn content_keys(&self, keys: ByteRange) -> ByteRange {
        let (file, offset) = keys::place(keys.start());
        match self.filing.content(file) {
            Some(content) => ByteRange::new(keys::key(content, offset), keys.len()),
            None => keys,
        }
    }

    /// Names and sizes become certain.
    fn sync_names(&mut self, site: Site, sync: &Sync<'_>) {
        if self.filing.completes(sync) {
            if self.stored_since {
                self.point(Reason::Completes, Some(site));
            }
            self.filing.sync(sync);
        }
    }

    /// `fsync` and its kin: what a file holds, its size and its names.
    fn sync_file(&mut self, site: Site, file: FileId, sync: &Sync<'_>) -> io::Result<()> {
        if let Some(content) = self.filing.content(file) {
            self.sync(site, keys::whole_file(content))?;
        }
        self.sync_names(site, sync);
        Ok(())
    }

    /// Something is about to be done to names or sizes.
    fn before_change(&mut self, site: Site) {
        if self.filing.is_at_once() {
            self.before_durable(site);
        }
    }

    /// It is done; `file` is what it was done to.
    fn after_change(&mut self, file: FileId) {
        if self.filing.is_at_once() {
            self.filing.sync(&Sync::All);
        } else {
            self.stored_since = true;
        }
        self.touched |= self.filing.content(file).is_some_and(|c| !is_ordinary(c));
    }

    /// Something that is durable at once is about to happen: the moment before it is worth a crash.
    fn before_durable(&mut self, site: Site) {
        if self.stored_since {
            self.point(Reason::Completes, Some(site));
        }
        self.stored_since = self.touched;
    }

    fn resize(&mut self, site: Site, file: FileId, size: u64) -> io::Result<()> {
        let Some(old_size) = self.filing.size(file).filter(|old| *old != size) else {
            return Ok(());
        };
        self.before_change(site);
        if size < old_size {
            match self.filing.cut(file) {
                Some((old, new)) => self.fork(old, new, size),
                None => self.erase(site, file, size)?,
            }
        }
        self.filing.resize(site, file, size);
        self.digest.update(&size.to_le_bytes());
        self.after_change(file);
        Ok(())
    }

    /// A new content begins with the first bytes of an old one, as far as those are known to be
    /// there.
    fn fork(&mut self, old: FileId, new: FileId, size: u64) {
        if let Some(file) = self.files.get(&old) {
            let file = TrackedFile {
                created: true,
                before: FileState::default(),
                base: PathBuf::new(),
                ..file.clone()
            };
            self.files.insert(new, file);
        }
        let ordinary = is_ordinary(new);
        let unit_bytes = if ordinary { PAGE } else { self.unit_bytes };
        let from = keys::key(old, 0).0;
        for at in (0..size).step_by(unit_bytes as usize) {
            let unit = unit_of(from + at, self.unit_bytes);
            let len = (size - at).min(unit_bytes);
            let to = keys::key(new, at);
            let choices = self.choices(unit);
            let history = if ordinary {
                &mut self.pages
            } else {
                &mut self.history
            };
            match choices {
                Some(choices) => history.adopt(&choices, to, len),
                None => {
                    let mut initial = self.timeline.initial(unit);
                    initial.truncate(len as usize);
                    if initial.iter().all(|byte| *byte == 0) {
                        continue;
                    }
                    history.adopt_certain(to, &initial);
                }
            }
            let new_unit = unit_of(to.0, self.unit_bytes);
            self.initialised.insert(new_unit);
            self.changed.insert(new_unit);
        }
    }

    /// What is cut off reads as zeros should the file grow again.
    fn erase(&mut self, site: Site, file: FileId, size: u64) -> io::Result<()> {
        let Some(content) = self.filing.content(file) else {
            return Ok(());
        };
        let from = keys::key(content, size).0;
        let end = keys::key(content, u64::MAX).0;
        let cut: Vec<Unit> = self
            .initialised
            .iter()
            .copied()
            .filter(|unit| !is_page(*unit))
            .filter(|unit| (from..end).contains(&((unit.0 + 1) * self.unit_bytes - 1)))
            .collect();
        for unit in cut {
            let start = (unit.0 * self.unit_bytes).max(from);
            let len = (unit.0 + 1) * self.unit_bytes - start;
            let keys = ByteRange::new(Key(start), len);
            let zeros = vec![0; len as usize];
            self.store_keys(site, keys, TargetAddr(0), &zeros, Make::Store)?;
            self.sync(site, keys)?;
        }
        Ok(())
    }

    /// A file appears in the stream, or turns out to be persistent memory.
    fn file(&mut self, site: Site, event: &EventKind<'_>) {
        let EventKind::File {
            file,
            path,
            size,
            reason,
            created,
        } = event
        else {
            return;
        };
        let ordinary = *reason == PmReason::Changed;
        if self.filing.content(*file).is_some() {
            if !ordinary && let Some((old, new)) = self.filing.upgrade(*file) {
                self.move_content(old, new);
            }
            return;
        }
        let is_unnamed = path.ends_with(b" (deleted)");
        if *created && self.filing.is_at_once() {
            self.before_durable(site);
        }
        let content = self.filing.add(*file, *size, ordinary);
        let state = FileState {
            exists: true,
            size: *size,
        };
        let (base, opened) = match &mut self.originals {
            Some(originals) if !created && !is_unnamed => {
                let name = filing::path_of(path);
                let base = originals(&name).unwrap_or_default();
                let opened = File::open(&base).ok();
                if opened.is_none() {
                    let what = format!("what was in {} before the run", name.display());
                    self.filing.unfollowed.insert(what);
                }
                (base, opened)
            }
            // It began empty, and has a copy of that as any other.
            Some(_) => {
                let scratch = self.scratch.as_ref().filter(|_| !is_unnamed);
                let base = scratch.map(|at| at.join(format!("before-{}", file.0)));
                let made = base.and_then(|base| {
                    File::create(&base).ok()?;
                    let opened = File::open(&base).ok()?;
                    Some((base, Some(opened)))
                });
                made.unwrap_or_default()
            }
            None => self.bases.remove(file).unwrap_or_default(),
        };
        if let Some(opened) = opened
            && let Base::Files(files) = self.timeline.base_mut()
        {
            files.insert(content, Before::new(opened));
        } else if !created && !is_unnamed && self.scratch.is_none() {
            let name = String::from_utf8_lossy(path);
            self.filing
                .unfollowed
                .insert(format!("what a recovery did to {name}"));
        }
        self.files.insert(
            content,
            TrackedFile {
                path: filing::path_of(path),
                created: *created,
                before: state,
                base,
                original: None,
            },
        );
        if *created && self.filing.is_at_once() {
            self.found
                .push((self.points.len(), path.to_vec(), Entry::Absent, None));
            self.filing.made(site, *file, path);
            self.after_change(*file);
        } else if !created && !is_unnamed {
            let known = self.filing.names.node(path).is_some();
            self.filing
                .names
                .found(path, Some(brownout_model::names::Node::File(*file)));
            if !known {
                let entry = Entry::File(content);
                self.found
                    .push((self.points.len(), path.to_vec(), entry, Some(state)));
            }
        }
    }

    /// What an ordinary file holds becomes what persistent memory holds.
    fn move_content(&mut self, old: FileId, new: FileId) {
        if let Some(file) = self.files.get(&old).cloned() {
            self.files.insert(new, file);
        }
        if let Base::Files(files) = self.timeline.base_mut()
            && let Some(file) = files.get(&old).cloned()
        {
            files.insert(new, file);
        }
        let first = Unit(keys::key(old, 0).0 / PAGE);
        let last = Unit(keys::key(old, u64::MAX).0 / PAGE);
        let pages: Vec<Unit> = self
            .initialised
            .iter()
            .copied()
            .filter(|unit| (first..=last).contains(unit))
            .collect();
        for page in pages {
            let Some(choices) = self.pages.choices(page) else {
                continue;
            };
            let offset = keys::place(Key(page.0 * PAGE)).1;
            let to = keys::key(new, offset);
            self.history.adopt(&choices, to, PAGE);
            for at in (to.0..to.0 + PAGE).step_by(self.unit_bytes as usize) {
                let unit = Unit(at / self.unit_bytes);
                self.initialised.insert(unit);
                self.changed.insert(unit);
            }
        }
    }

    /// Something happened to a name.
    fn name(
        &mut self,
        site: Site,
        change: NameChange,
        file: FileId,
        replaced: FileId,
        names: &[u8],
    ) -> io::Result<()> {
        let (path, to) = split_names(names);
        match change {
            NameChange::SyncFolder => self.sync_names(site, &Sync::Folder(path)),
            NameChange::Attributes => self.filing.attributed(path, to),
            NameChange::SyncAll => {
                for content in self.filing.all() {
                    self.sync(site, keys::whole_file(content))?;
                }
                self.sync_names(site, &Sync::All);
            }
            _ => {
                // What was there before the run is there at earlier failure points, too.
                let entry = |recorder: &Recorder, file: FileId| {
                    let shape = recorder.filing.names.shape(file)?;
                    let content = FileId(shape.content.0);
                    let state = FileState {
                        exists: true,
                        size: shape.size,
                    };
                    Some((Entry::File(content), Some(state)))
                };
                let absent = (Entry::Absent, None);
                let first = match change {
                    NameChange::Unlink | NameChange::Rename | NameChange::Exchange => {
                        entry(self, file)
                    }
                    NameChange::Rmdir => Some((Entry::Folder, None)),
                    NameChange::RenameFolder | NameChange::Unfollowed => None,
                    _ => Some(absent.clone()),
                };
                let second = match change {
                    NameChange::Rename | NameChange::Exchange | NameChange::RenameFolder => {
                        Some(entry(self, replaced).unwrap_or(absent))
                    }
                    _ => None,
                };
                for (name, found) in [(path, first), (to, second)] {
                    if let Some((entry, state)) = found
                        && !self.filing.names.knows(name)
                    {
                        self.found
                            .push((self.points.len(), name.to_vec(), entry, state));
                    }
                }
                self.before_change(site);
                if self.filing.named(site, change, file, replaced, names) {
                    self.digest.update(names);
                    self.after_change(file);
                }
            }
        }
        Ok(())
    }
}

/// Adds what was there before the run to a state that does not know of it.
fn add_found(files: &mut Files, path: &[u8], entry: &Entry, state: Option<FileState>) {
    if files.names.contains_key(path) {
        return;
    }
    files.names.insert(path.to_vec(), entry.clone());
    if let (Entry::File(content), Some(state)) = (entry, state) {
        files.states.entry(*content).or_insert(state);
    }
}

#[derive(Clone, Copy)]
enum Make {
    Store,
    /// The elements of a string instruction.
    String(Elements),
    NtStore,
    Rmw,
}

impl EventSink for Recorder {
    fn beginning(&mut self, process: ProcessId, what: &Beginning) -> io::Result<()> {
        self.definitions.begin(process, what);
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.definitions.observe(event);
        self.spaces.observe(event).map_err(MapFault::into_error)?;
        self.interleaving.observe(event);
        let site = self.site(event);
        if matches!(
            event.kind,
            EventKind::KernelStore { .. }
                | EventKind::FileWrite { .. }
                | EventKind::Msync { .. }
                | EventKind::Fsync { .. }
                | EventKind::FileSync { .. }
        ) {
            self.synced_beside |= self.interleaving.have_others_stored(site.thread);
        }
        match &event.kind {
            EventKind::Store(access) | EventKind::KernelStore { access, .. } => {
                self.store(site, access, Make::Store)?;
            }
            EventKind::StringStore { access, elements } => {
                self.store(site, access, Make::String(*elements))?;
            }
            EventKind::NtStore(access) => self.store(site, access, Make::NtStore)?,
            EventKind::Rmw(access) => self.store(site, access, Make::Rmw)?,
            EventKind::Flush { kind, addr } => {
                let Some(found) = self.spaces.translate(event.thread, *addr) else {
                    return Err(MapFault::Unmapped(event.thread, *addr).into_error());
                };
                let content = self.filing.content(found.file).unwrap_or(found.file);
                if !is_ordinary(content) {
                    let line = Line::of(keys::key(content, found.offset));
                    let op = Op::Flush { kind: *kind, line };
                    self.apply(site, op, Did::Flush(line.range()))?;
                }
            }
            EventKind::Fence(kind) => {
                let op = match kind {
                    FenceKind::Sfence => Op::Sfence,
                    FenceKind::Mfence => Op::Mfence,
                    FenceKind::Locked => Op::Locked,
                };
                if self.options.model.domain.rules().fence != FenceRule::Ignored {
                    self.apply(site, op, Did::Fence)?;
                }
            }
            EventKind::Msync { addr, len, flags } if flags & MS_SYNC != 0 => {
                for range in self.spaces.ranges(event.thread, *addr, *len) {
                    let keys = self.content_keys(keys::range(range));
                    self.sync(site, keys)?;
                    self.sync_names(site, &Sync::Data(range.file));
                }
            }
            EventKind::Fsync { file, data_only } => {
                let sync = match data_only {
                    true => Sync::Data(*file),
                    false => Sync::File(*file),
                };
                self.sync_file(site, *file, &sync)?;
            }
            EventKind::FileSync { file, offset, size } => {
                if let Some(content) = self.filing.content(*file) {
                    self.sync(site, ByteRange::new(keys::key(content, *offset), *size))?;
                }
                // The size that it takes to read it back is durable, too.
                self.sync_names(site, &Sync::Data(*file));
            }
            EventKind::FileWrite {
                file,
                offset,
                size,
                bytes,
            } => {
                let end = offset + u64::from(*size);
                if let Some(content) = self.filing.content(*file)
                    && bytes.len() == *size as usize
                {
                    if self.filing.size(*file).is_some_and(|size| size < end) {
                        self.before_change(site);
                        self.filing.extend(site, *file, end);
                        self.after_change(*file);
                    }
                    let keys = ByteRange::new(keys::key(content, *offset), u64::from(*size));
                    self.store_keys(site, keys, TargetAddr(0), bytes, Make::Store)?;
                }
            }
            EventKind::Truncate { file, size } => self.resize(site, *file, *size)?,
            kind @ EventKind::File { .. } => self.file(site, kind),
            EventKind::Map { file, .. } => self.filing.mapped(*file),
            EventKind::Name {
                change,
                file,
                replaced,
                names,
            } => self.name(site, *change, *file, *replaced, names)?,
            EventKind::Input { at, .. } => {
                // In the middle of a line nothing is over.
                let is_over = self.consumed.asks(*at);
                self.acknowledged(site, is_over);
            }
            EventKind::Annotation { code, args, text } => {
                let now = Moment(site.event);
                if matches!(
                    *code,
                    annotation::REGISTER_VARIABLE | annotation::UNREGISTER_VARIABLE
                ) {
                    self.registered.end(text, now);
                }
                if *code == annotation::REGISTER_VARIABLE {
                    let (start, len) = (TargetAddr(args[1]), args[2]);
                    let ranges = self.spaces.ranges(event.thread, start, len);
                    // If a part of it is no persistent memory, it is not known how far into it the
                    // others are.
                    let is_whole = ranges.iter().map(|range| range.len).sum::<u64>() == len;
                    let mut into = 0;
                    for range in ranges.into_iter().filter(|_| is_whole) {
                        let keys = self.content_keys(keys::range(range));
                        self.registered.begin(text, keys, into, now);
                        into += keys.len();
                    }
                }
            }
            EventKind::Output { fd, size } => {
                if *fd == 1 {
                    self.outputs += 1;
                    self.output_bytes += size;
                }
                self.acknowledged(site, true);
            }
            _ => {}
        }
        self.index += 1;
        Ok(())
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        let Some(scratch) = self.scratch.as_ref().filter(|_| self.originals.is_none()) else {
            return Ok(());
        };
        let copy = scratch.join(format!("before-{}", file.0));
        files::copy_sparse(&File::open(path)?, &copy)?;
        let opened = File::open(&copy)?;
        self.bases.insert(file, (copy, Some(opened)));
        Ok(())
    }
}

#[cfg(test)]
mod tests;

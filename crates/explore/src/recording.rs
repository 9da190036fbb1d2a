//! One recorded run: what it did to persistent memory, and what a crash may leave where.
//!
//! [`Recorder`] takes the events of a run and gives a [`Recording`]: a [`Timeline`] with one version of each unit where it
//! changed, and the failure points. A failure point lies
//!
//! - before each event that makes something certain, and after the last, if anything was stored since the previous point. Between
//!   two such events the set of crash states only grows, so the last moment has them all. Under eADR every piece of a store is such
//!   an event, so there is a point between any two, and one before the first;
//! - at each acknowledgement to the outside (output written, input asked for) while anything is uncertain, because what was
//!   acknowledged must survive. If nobody judges acknowledgements, or the program asks in the middle of a line, only if anything was
//!   stored since the previous point.
//!
//! Deviations: `write` to a tracked file counts as a store, which `fsync` or `msync` completes. Sizes and the existence of
//! files are durable at once. What libpmemobj declares clean by request is left as the instructions made it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brownout_host::EventSink;
use brownout_model::{
    ByteRange, Config, Domain, Event as ModelEvent, FenceRule, History, Line, Op, Thread, Unit,
    Write, keys,
};
use brownout_trace::epochs::Epoch;
use brownout_trace::event::{
    Access, ContextId, Elements, Event, EventKind, FenceKind, FileId, MS_SYNC, ProcessId,
    TargetAddr, ThreadId,
};
use brownout_trace::maps::{AddressSpaces, MapFault};
use rustc_hash::FxHashSet;

use crate::files;
use crate::input::{Consumed, Lines};
use crate::interleaving::Interleaving;
use crate::stacks::Definitions;
use crate::view::{Base, FileState, Timeline};

/// Where in the code something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub thread: ThreadId,
    pub process: ProcessId,
    /// When `pc` meant what it means here.
    pub epoch: Epoch,
    pub pc: TargetAddr,
    pub context: ContextId,
    /// Place in the total order of the run's events.
    pub event: u64,
}

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
    /// The event that does not happen any more (or, for an acknowledgement, that just did). `None` at the end.
    pub site: Option<Site>,
    /// Model events so far.
    pub moment: u64,
    /// Lines of input that the program had consumed wholly when it last asked for more; `None` before it has asked.
    pub consumed: Option<u64>,
    /// How many outputs it has written to its standard output.
    pub outputs: u64,
    /// Bytes of standard output.
    pub output_bytes: u64,
    /// The tracked files.
    pub files: Arc<BTreeMap<FileId, FileState>>,
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
    /// Its standard input, if it has read it.
    pub input: Option<Lines>,
    /// All of its input was consumed before it stored anything that it may have learned from it.
    pub reads_ahead: bool,
    /// Outputs written, in all.
    pub outputs: u64,
    /// Some store was made.
    pub touched: bool,
}

impl Recording {
    /// Equal for equal runs, as text.
    pub fn name(&self) -> String {
        blake3::Hash::from_bytes(self.digest).to_hex()[..32].to_owned()
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
    /// A failure point at each acknowledgement, although nothing was stored since the last or is uncertain.
    pub judge_acknowledgements: bool,
}

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
    bases: BTreeMap<FileId, PathBuf>,
    files: BTreeMap<FileId, TrackedFile>,
    states: BTreeMap<FileId, FileState>,
    points: Vec<FailurePoint>,
    steps: Vec<Step>,
    definitions: Definitions,
    changed: BTreeSet<Unit>,
    open: BTreeSet<Unit>,
    stored_since: bool,
    touched: bool,
    interleaving: Interleaving,
    index: u64,
    consumed: Consumed,
    /// How much of the input was consumed at the first store after it was asked for.
    stored_at: Option<u64>,
    outputs: u64,
    output_bytes: u64,
    digest: blake3::Hasher,
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

    /// For a run on an image.
    pub fn on(options: RecordOptions, base: Base, states: BTreeMap<FileId, FileState>) -> Recorder {
        let mut recorder = Recorder::with_base(options, base, None);
        recorder.states = states;
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
            bases: BTreeMap::new(),
            files: BTreeMap::new(),
            states: BTreeMap::new(),
            points: Vec::new(),
            steps: Vec::new(),
            definitions: Definitions::default(),
            changed: BTreeSet::new(),
            open: BTreeSet::new(),
            stored_since: false,
            touched: false,
            interleaving: Interleaving::default(),
            index: 0,
            consumed: Consumed::default(),
            stored_at: None,
            outputs: 0,
            output_bytes: 0,
            digest: blake3::Hasher::new(),
        }
    }

    /// The run is over.
    pub fn finish(mut self) -> Recording {
        if self.stored_since || self.options.judge_acknowledgements {
            self.point(Reason::End, None);
        }
        // A file that was found later was there before, unless the run has made it.
        let before: BTreeMap<FileId, FileState> = self
            .files
            .iter()
            .map(|(id, file)| {
                let state = match file.created {
                    true => FileState {
                        exists: false,
                        size: 0,
                    },
                    false => file.before,
                };
                (*id, state)
            })
            .collect();
        let mut shared: BTreeMap<BTreeMap<FileId, FileState>, Arc<_>> = BTreeMap::new();
        for point in &mut self.points {
            let mut states = before.clone();
            states.extend(point.files.iter().map(|(id, state)| (*id, *state)));
            let entry = shared.entry(states.clone());
            point.files = entry.or_insert_with(|| Arc::new(states)).clone();
        }
        Recording {
            timeline: Arc::new(self.timeline),
            points: self.points,
            steps: self.steps,
            files: self.files,
            definitions: self.definitions,
            digest: *self.digest.finalize().as_bytes(),
            storing_threads: self.interleaving.threads(),
            is_interleaved: self.interleaving.is_there(),
            reads_ahead: self
                .stored_at
                .is_some_and(|at| at > 0 && at == self.consumed.count()),
            input: self.consumed.whole.map(|_| self.consumed.into_lines()),
            outputs: self.outputs,
            touched: self.touched,
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
        for unit in self.history.take_changed() {
            let certain = self.history.choices(unit).is_none_or(|c| c.is_certain());
            match certain {
                true => self.open.remove(&unit),
                false => self.open.insert(unit),
            };
            self.changed.insert(unit);
        }
    }

    fn is_uncertain(&mut self) -> bool {
        self.look();
        !self.open.is_empty()
    }

    fn point(&mut self, reason: Reason, site: Option<Site>) {
        self.look();
        let changed = std::mem::take(&mut self.changed);
        let choices = changed.into_iter().filter_map(|u| self.history.choices(u));
        self.timeline.close(choices.collect());
        self.points.push(FailurePoint {
            reason,
            site,
            moment: self.history.now().0,
            consumed: self.consumed.whole,
            outputs: self.outputs,
            output_bytes: self.output_bytes,
            files: Arc::new(self.states.clone()),
        });
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
        // Under eADR every piece of a store is durable by itself, so the power can fail between two.
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
        self.steps.push(Step { site, did });
        // Not its place among all events: how often threads wait for each other is chance, and changes no crash state.
        self.digest.update(&site.pc.0.to_le_bytes());
        debug_assert_eq!(self.steps.len() as u64, self.history.now().0);
        Ok(())
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
        for part in keys.split(self.unit_bytes) {
            let unit = Unit(part.start().0 / self.unit_bytes);
            if self.initialised.insert(unit) {
                let start = TargetAddr(unit.0 * self.unit_bytes);
                self.history
                    .set_initial(start, &self.timeline.initial(unit));
            }
        }
        self.digest.update(&keys.start().0.to_le_bytes());
        self.digest.update(bytes);
        let write = Write::new(keys.start(), bytes);
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
        let from = Unit(keys.start().0 / self.unit_bytes);
        let to = Unit(keys.end().0.div_ceil(self.unit_bytes));
        let open: Vec<Unit> = self.open.range(from..to).copied().collect();
        for unit in open {
            let range = ByteRange::new(TargetAddr(unit.0 * self.unit_bytes), self.unit_bytes);
            self.apply(site, Op::Msync(range), Did::Sync(range))?;
        }
        Ok(())
    }

    /// Something that is durable at once is about to happen: the moment before it is worth a crash.
    fn before_durable(&mut self, site: Site) {
        if self.stored_since {
            self.point(Reason::Completes, Some(site));
        }
        self.stored_since = self.touched;
    }

    fn resize(&mut self, site: Site, file: FileId, size: u64) -> io::Result<()> {
        let Some(state) = self.states.get(&file).copied() else {
            return Ok(());
        };
        if state.size == size {
            return Ok(());
        }
        self.before_durable(site);
        let Some(state) = self.states.get_mut(&file) else {
            return Ok(());
        };
        let shrinks = size < state.size;
        *state = FileState { exists: true, size };
        if shrinks {
            // What is cut off reads as zeros should the file grow again.
            let from = keys::key(file, size).0;
            let end = keys::key(file, u64::MAX).0;
            let cut: Vec<Unit> = self
                .initialised
                .iter()
                .copied()
                .filter(|unit| (from..end).contains(&((unit.0 + 1) * self.unit_bytes - 1)))
                .collect();
            for unit in cut {
                let start = (unit.0 * self.unit_bytes).max(from);
                let len = (unit.0 + 1) * self.unit_bytes - start;
                let keys = ByteRange::new(TargetAddr(start), len);
                let zeros = vec![0; len as usize];
                self.store_keys(site, keys, TargetAddr(0), &zeros, Make::Store)?;
                self.sync(site, keys)?;
            }
        }
        Ok(())
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
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.definitions.observe(event);
        self.spaces.observe(event).map_err(MapFault::into_error)?;
        self.interleaving.observe(event);
        let site = self.site(event);
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
                let line = Line::of(keys::key(found.file, found.offset));
                let op = Op::Flush { kind: *kind, line };
                self.apply(site, op, Did::Flush(line.range()))?;
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
                    self.sync(site, keys::range(range))?;
                }
            }
            EventKind::Fsync { file, .. } => {
                self.sync(site, keys::whole_file(*file))?;
            }
            EventKind::FileSync { file, offset, size } => {
                self.sync(site, ByteRange::new(keys::key(*file, *offset), *size))?;
            }
            EventKind::FileWrite {
                file,
                offset,
                size,
                bytes,
            } => {
                let end = offset + u64::from(*size);
                if self.states.get(file).is_some_and(|state| state.size < end) {
                    self.before_durable(site);
                }
                if let Some(state) = self.states.get_mut(file) {
                    state.size = state.size.max(end);
                    let keys = ByteRange::new(keys::key(*file, *offset), u64::from(*size));
                    if bytes.len() == *size as usize {
                        self.store_keys(site, keys, TargetAddr(0), bytes, Make::Store)?;
                    }
                }
            }
            EventKind::Truncate { file, size } => self.resize(site, *file, *size)?,
            EventKind::File {
                file,
                path,
                size,
                created,
                ..
            } => {
                use std::os::unix::ffi::OsStrExt;
                if *created {
                    self.before_durable(site);
                }
                let state = FileState {
                    exists: true,
                    size: *size,
                };
                self.states.insert(*file, state);
                self.files.insert(
                    *file,
                    TrackedFile {
                        path: PathBuf::from(std::ffi::OsStr::from_bytes(path)),
                        created: *created,
                        before: state,
                        base: self.bases.get(file).cloned().unwrap_or_default(),
                        original: None,
                    },
                );
            }
            EventKind::Input { at, .. } => {
                // In the middle of a line nothing is over.
                let is_over = self.consumed.asks(*at);
                self.acknowledged(site, is_over);
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
        let Some(scratch) = &self.scratch else {
            return Ok(());
        };
        let copy = scratch.join(format!("before-{}", file.0));
        files::copy_sparse(&File::open(path)?, &copy)?;
        if let Base::Files(files) = self.timeline.base_mut() {
            files.insert(file, File::open(&copy)?);
        }
        self.bases.insert(file, copy);
        Ok(())
    }
}

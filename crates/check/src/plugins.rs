//! Custom rules: passes them the events of the run, answers their questions, takes their findings.
//!
//! ```text
//!  event ─▶ decoded, with places ─▶ each rule ─▶ findings ─▶ collector
//!                                     │  ▲
//!                                     ▼  │
//!                             model and transactions, as they were before the event
//! ```
//! **Guarantee.** A rule sees an event before the checker does. An index is the event's number in
//! the run, from 1, and the store that [`HostServices::status`] names has the index that its event
//! had. A rule that fails leaves a note and is gone; what it reported stands. Numbers that a rule
//! makes up (files, sites) find nothing; they harm nobody.
//!
//! **Deviations.**
//!
//! 1. Definitions (`Module`, `Context`), notes, futex calls and `mremap` have no kind in the
//!    interface and are not passed on.
//! 2. What spans several mappings comes as one event for each, all with one index. Bytes between
//!    them that are not tracked are left out.
//! 3. `ofence` stays an annotation: it completes nothing, as a fence does.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;

use brownout_findings::{Role, Severity, rules};
use brownout_model::{ByteRange, LINE_BYTES, Moment, Persistency, Tag, keys};
use brownout_rule::host::{Finding, FindingEvent, HostServices, LoadError, Plugin, RuleFailed};
use brownout_rule::{
    self as rule, Access, Address, EventIndex, Info, Kind, KindCode, Place, Status,
};
use brownout_trace::event::{
    Access as TraceAccess, ContextId, Event, EventKind, FenceKind, FileId, FlushKind,
    LIBRARY_FUNCTIONS, ProcessId, TargetAddr, ThreadId,
};
use brownout_trace::maps::{AddressSpaces, FileRange};
use brownout_trace::{annotation, pmemcheck};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::checker::Checker;
use crate::collect::{Raw, RawEvent};
use crate::sites::Site;
use crate::tx::own_number;

/// Why a custom rule cannot be used.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// Its library cannot be.
    Load(LoadError),
    /// A built-in rule has its id.
    BuiltIn(String),
    /// Another custom rule has its id.
    Twice(String),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::Load(error) => error.fmt(f),
            RuleError::BuiltIn(id) => write!(
                f,
                "a custom rule has the id {id}, which is a built-in rule's: give it another"
            ),
            RuleError::Twice(id) => write!(
                f,
                "two custom rules have the id {id}: load one of them only, or give it another"
            ),
        }
    }
}

impl std::error::Error for RuleError {}

impl From<LoadError> for RuleError {
    fn from(error: LoadError) -> Self {
        RuleError::Load(error)
    }
}

/// The custom rules of an analysis.
#[derive(Debug, Default)]
pub(crate) struct Plugins {
    loaded: Vec<Plugin>,
    /// Bit *n*: a rule looks at the kind of number *n*.
    wanted: u64,
    /// By tag: how the instruction there stores.
    store_kinds: Vec<KindCode>,
    /// A thread of each process, by which to look at its mappings.
    threads: FxHashMap<ProcessId, ThreadId>,
}

/// An event without what happened.
#[derive(Clone, Copy)]
struct Head {
    index: EventIndex,
    thread: ThreadId,
    process: ProcessId,
    pc: TargetAddr,
    context: ContextId,
    /// Whose mappings give addresses their meaning.
    viewer: Option<ThreadId>,
}

/// What an event is passed through.
struct Route<'a> {
    checker: &'a mut Checker,
    notes: &'a mut Vec<String>,
    head: Head,
}

type Places = SmallVec<[Place; 1]>;

impl Plugins {
    /// True if there is no rule, or none is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.loaded.is_empty()
    }

    /// Loads a rule from a shared library.
    pub fn load(&mut self, path: &Path, options: &str) -> Result<(), RuleError> {
        self.add(Plugin::load(path, options)?)
    }

    /// Adds a rule.
    pub fn add(&mut self, plugin: Plugin) -> Result<(), RuleError> {
        let id = plugin.info().id.to_string();
        if rules::find(&id).is_some() {
            return Err(RuleError::BuiltIn(id));
        }
        if self.loaded.iter().any(|other| other.info().id == id) {
            return Err(RuleError::Twice(id));
        }
        self.loaded.push(plugin);
        self.count_wanted();
        Ok(())
    }

    /// Their ids.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.loaded.iter().map(|plugin| &*plugin.info().id)
    }

    /// True if a rule is what `asks` about.
    pub fn any(&self, asks: impl Fn(&Info) -> bool) -> bool {
        self.loaded.iter().any(|plugin| asks(plugin.info()))
    }

    fn count_wanted(&mut self) {
        let kinds = self.loaded.iter().map(|plugin| plugin.info().kinds);
        self.wanted = kinds.fold(0, |all, kinds| all | kinds);
    }

    fn wants(&self, kind: KindCode) -> bool {
        self.wanted & 1u64.checked_shl(kind.0).unwrap_or(0) != 0
    }

    /// The next event of the run, which the checker has not seen yet.
    pub fn event(&mut self, event: &Event<'_>, checker: &mut Checker, notes: &mut Vec<String>) {
        let head = self.head(event, checker);
        let mut route = Route {
            checker,
            notes,
            head,
        };
        match &event.kind {
            EventKind::Store(access) | EventKind::StringStore { access, .. } => {
                self.store(&mut route, KindCode::STORE, access, Kind::Store);
            }
            EventKind::NtStore(access) => {
                self.store(&mut route, KindCode::NT_STORE, access, Kind::NtStore);
            }
            EventKind::Rmw(access) => self.store(&mut route, KindCode::RMW, access, Kind::Rmw),
            EventKind::KernelStore { syscall, access } => {
                let syscall = *syscall;
                let kind = |access| Kind::KernelStore { syscall, access };
                self.store(&mut route, KindCode::KERNEL_STORE, access, kind);
            }
            EventKind::Load(access) => {
                if self.wants(KindCode::LOAD) {
                    self.access(&mut route, access, Kind::Load);
                }
            }
            EventKind::Flush { kind, addr } => {
                if self.wants(KindCode::FLUSH) {
                    let kind = match kind {
                        FlushKind::Clflush => rule::FlushKind::Clflush,
                        FlushKind::Clflushopt => rule::FlushKind::Clflushopt,
                        FlushKind::Clwb => rule::FlushKind::Clwb,
                    };
                    let line = addr.0 & !(LINE_BYTES - 1);
                    let flush = |place| Kind::Flush { kind, place };
                    self.about(&mut route, line, LINE_BYTES, flush);
                }
            }
            EventKind::Fence(kind) => {
                let kind = match kind {
                    FenceKind::Sfence => rule::FenceKind::Sfence,
                    FenceKind::Mfence => rule::FenceKind::Mfence,
                    FenceKind::Locked => rule::FenceKind::Locked,
                };
                self.send(&mut route, Kind::Fence(kind));
            }
            EventKind::Pmemcheck { code, args, text } => {
                self.pmemcheck(&mut route, *code, args, text);
            }
            EventKind::Annotation { code, args, text } => {
                self.annotation(&mut route, *code, args, text);
            }
            EventKind::LibraryCall { function, args } => {
                // A newer recorder may know more of them.
                if let Some(function) = LIBRARY_FUNCTIONS.get(*function as usize) {
                    let args = padded(args);
                    self.send(&mut route, Kind::LibraryCall { function, args });
                }
            }
            _ => self.rare(&mut route, event),
        }
    }

    /// The run is over.
    pub fn end(&mut self, checker: &mut Checker, notes: &mut Vec<String>) {
        let nowhere = None;
        let mut services = Services::new(checker, nowhere, &self.store_kinds);
        for plugin in &mut self.loaded {
            note_failure(plugin.end(&mut services), notes);
        }
    }

    // ------------------------------------------------------------------ who and when

    fn head(&mut self, event: &Event<'_>, checker: &Checker) -> Head {
        let known = checker.spaces.process_of(event.thread);
        let process = match event.kind {
            EventKind::ThreadStart {
                thread, process, ..
            } => {
                self.threads.insert(process, thread);
                process
            }
            EventKind::ProcessStart { process, .. } | EventKind::ProcessExit { process, .. } => {
                process
            }
            _ => known.unwrap_or_default(),
        };
        let viewer = match known == Some(process) {
            true => Some(event.thread),
            // A process may be said to have ended by somebody else.
            false => self.threads.get(&process).copied(),
        };
        Head {
            // The one that the checker is about to count, and to date its stores by.
            index: EventIndex(checker.counts().events + 1),
            thread: event.thread,
            process,
            pc: event.pc,
            context: event.context,
            viewer,
        }
    }

    // ------------------------------------------------------------------ to the rules

    fn send(&mut self, route: &mut Route<'_>, kind: Kind<'_>) {
        if !self.wants(kind.code()) {
            return;
        }
        let head = route.head;
        let event = rule::Event {
            index: head.index,
            thread: rule::ThreadId(head.thread.0),
            process: rule::ProcessId(head.process.0),
            pc: Address(head.pc.0),
            context: rule::ContextId(head.context.0),
            kind,
        };
        let mut services = Services::new(route.checker, head.viewer, &self.store_kinds);
        let before = self.loaded.len();
        self.loaded
            .retain_mut(|plugin| note_failure(plugin.event(&event, &mut services), route.notes));
        if self.loaded.len() < before {
            self.count_wanted();
        }
    }

    /// One event for each tracked part of the range; one without a file if nothing of it is
    /// tracked.
    fn about<'e>(
        &mut self,
        route: &mut Route<'_>,
        addr: u64,
        len: u64,
        kind: impl Fn(Place) -> Kind<'e>,
    ) {
        let mut places = match route.head.viewer {
            Some(viewer) => tracked(&mut route.checker.spaces, viewer, addr, len),
            None => Places::new(),
        };
        if places.is_empty() {
            places = smallvec![untracked(addr, len)];
        }
        for place in places {
            self.send(route, kind(place));
        }
    }

    fn access<'e>(
        &mut self,
        route: &mut Route<'_>,
        access: &TraceAccess<'e>,
        kind: impl Fn(Access<'e>) -> Kind<'e>,
    ) {
        let (addr, bytes) = (access.addr.0, access.bytes);
        self.about(route, addr, access.size.into(), |place| {
            let from = (place.address.0 - addr) as usize;
            let bytes = bytes.get(from..from + place.len as usize);
            kind(Access {
                place,
                bytes: bytes.unwrap_or_default(),
            })
        });
    }

    fn store<'e>(
        &mut self,
        route: &mut Route<'_>,
        code: KindCode,
        access: &TraceAccess<'e>,
        kind: impl Fn(Access<'e>) -> Kind<'e>,
    ) {
        self.remember_store(route, code);
        if self.wants(code) {
            self.access(route, access, kind);
        }
    }

    /// The model will know where it was stored from, and not how.
    fn remember_store(&mut self, route: &mut Route<'_>, code: KindCode) {
        let site = Site {
            process: route.head.process,
            pc: route.head.pc,
            context: route.head.context,
        };
        let tag = route.checker.sites.number(site).0 as usize;
        if tag >= self.store_kinds.len() {
            self.store_kinds.resize(tag + 1, KindCode::STORE);
        }
        self.store_kinds[tag] = code;
    }

    // ------------------------------------------------------------------ requests

    fn pmemcheck(&mut self, route: &mut Route<'_>, code: u32, args: &[u64; 4], text: &[u8]) {
        let thread = route.head.thread;
        let own = own_number(thread);
        let [a, b, c, _] = *args;
        match code {
            pmemcheck::DO_FLUSH => self.flush_request(route, a, b),
            pmemcheck::DO_FENCE => self.send(route, Kind::Fence(rule::FenceKind::Request)),
            pmemcheck::START_TX => self.tx_begin(route, own, 0),
            pmemcheck::START_TX_N => self.tx_begin(route, a, a),
            pmemcheck::END_TX => self.tx_end(route, own, 0),
            pmemcheck::END_TX_N => self.tx_end(route, a, a),
            pmemcheck::ADD_TO_TX | pmemcheck::ADD_TO_TX_N => {
                let (addr, len) = match code {
                    pmemcheck::ADD_TO_TX => (a, b),
                    _ => (b, c),
                };
                // libpmemobj announces what it allocates in the same words as what it logs.
                let known = route.checker.known_thread(thread);
                match known.is_some_and(|state| state.allocates) {
                    true => self.about(route, addr, len, Kind::TxAlloc),
                    false => self.about(route, addr, len, Kind::TxAdd),
                }
            }
            pmemcheck::REMOVE_FROM_TX => self.about(route, a, b, Kind::TxRemove),
            pmemcheck::REMOVE_FROM_TX_N => self.about(route, b, c, Kind::TxRemove),
            pmemcheck::EMIT_LOG => self.send(route, Kind::Marker { text }),
            _ => {
                let args = padded(args);
                self.send(route, Kind::Pmemcheck { code, args, text });
            }
        }
    }

    fn annotation(&mut self, route: &mut Route<'_>, code: u32, args: &[u64; 5], text: &[u8]) {
        let own = own_number(route.head.thread);
        let (addr, len) = (args[0], args[1]);
        match code {
            annotation::STORE => {
                self.remember_store(route, KindCode::STORE);
                let bytes = &[];
                let store = |place| Kind::Store(Access { place, bytes });
                self.about(route, addr, len, store);
            }
            annotation::FLUSH => self.flush_request(route, addr, len),
            annotation::FENCE | annotation::DFENCE => {
                self.send(route, Kind::Fence(rule::FenceKind::Request));
            }
            annotation::TX_BEGIN => self.tx_begin(route, own, 0),
            annotation::TX_END => self.tx_end(route, own, 0),
            annotation::TX_ADD => self.about(route, addr, len, Kind::TxAdd),
            annotation::TX_ALLOC => self.about(route, addr, len, Kind::TxAlloc),
            annotation::MARKER => self.send(route, Kind::Marker { text }),
            annotation::REGISTER_VARIABLE => {
                // A name stands for one place: by address, if several files are behind it.
                let (addr, len) = (args[1], args[2]);
                let whole = route.head.viewer.and_then(|viewer| {
                    let found = tracked(&mut route.checker.spaces, viewer, addr, len);
                    found.first().copied().filter(|place| place.len == len)
                });
                let place = whole.unwrap_or(untracked(addr, len));
                self.send(route, Kind::Variable { name: text, place });
            }
            annotation::UNREGISTER_VARIABLE => self.send(route, Kind::VariableGone { name: text }),
            _ => {
                let args = padded(args);
                self.send(route, Kind::Annotation { code, args, text });
            }
        }
    }

    fn flush_request(&mut self, route: &mut Route<'_>, addr: u64, len: u64) {
        let kind = rule::FlushKind::Request;
        self.about(route, addr, len, |place| Kind::Flush { kind, place });
    }

    fn tx_begin(&mut self, route: &mut Route<'_>, number: u64, id: u64) {
        let depth = depth(route.checker, number).saturating_add(1);
        self.send(route, Kind::TxBegin { id, depth });
    }

    fn tx_end(&mut self, route: &mut Route<'_>, number: u64, id: u64) {
        let depth = depth(route.checker, number);
        self.send(route, Kind::TxEnd { id, depth });
    }

    // ------------------------------------------------------------------ everything rarer

    fn rare(&mut self, route: &mut Route<'_>, event: &Event<'_>) {
        match event.kind {
            EventKind::File {
                file, path, size, ..
            } => {
                let file = rule::FileId(file.0);
                self.send(route, Kind::File { file, path, size });
            }
            EventKind::Map {
                addr,
                len,
                file,
                offset,
                prot,
                flags,
            } => {
                let place = Place::new(Address(addr.0), len, rule::FileId(file.0), offset);
                self.send(route, Kind::Map { place, prot, flags });
            }
            EventKind::Unmap { addr, len } => {
                self.about(route, addr.0, len, |place| Kind::Unmap { place });
            }
            EventKind::Msync { addr, len, flags } => {
                self.about(route, addr.0, len, |place| Kind::Msync { place, flags });
            }
            EventKind::Fsync { file, .. } => {
                let file = rule::FileId(file.0);
                self.send(route, Kind::Fsync { file });
            }
            EventKind::FileWrite {
                file,
                offset,
                size,
                bytes,
            } => {
                let place = Place::new(Address(0), size.into(), rule::FileId(file.0), offset);
                self.send(route, Kind::FileWrite(Access { place, bytes }));
            }
            EventKind::Truncate { file, size } => {
                let file = rule::FileId(file.0);
                self.send(route, Kind::Truncate { file, size });
            }
            EventKind::ProcessStart { parent, exe, .. } => {
                let parent = rule::ProcessId(parent.0);
                self.send(route, Kind::ProcessStart { parent, exe });
            }
            EventKind::ProcessExit { .. } => self.send(route, Kind::ProcessExit),
            EventKind::ThreadStart { thread, .. } => {
                route.head.thread = thread;
                self.send(route, Kind::ThreadStart);
            }
            EventKind::ThreadExit => self.send(route, Kind::ThreadExit),
            EventKind::End { .. } => self.send(route, Kind::End),
            // See the module's header.
            _ => {}
        }
    }
}

/// True if it is none.
fn note_failure(result: Result<(), RuleFailed>, notes: &mut Vec<String>) -> bool {
    if let Err(failed) = &result {
        notes.push(failed.to_string());
    }
    result.is_ok()
}

fn padded<const N: usize>(args: &[u64; N]) -> [u64; 6] {
    let mut padded = [0; 6];
    padded[..N].copy_from_slice(args);
    padded
}

/// How often the transaction was begun and not ended.
fn depth(checker: &Checker, number: u64) -> u32 {
    let open = checker.transactions.get(number);
    open.map_or(0, |transaction| transaction.depth)
}

// ---------------------------------------------------------------------- places

/// A place that only its address tells.
fn untracked(addr: u64, len: u64) -> Place {
    rule::ByteRange::new(Address(addr), len).into()
}

/// The tracked parts of a range, as `viewer` sees them, in address order; most often one.
fn tracked(spaces: &mut AddressSpaces, viewer: ThreadId, addr: u64, len: u64) -> Places {
    let mut places = Places::new();
    let end = addr.saturating_add(len);
    let mut at = addr;
    while at < end {
        let Some(found) = spaces.translate(viewer, TargetAddr(at)) else {
            match next_tracked(spaces, viewer, at, end) {
                Some(next) => at = next,
                None => break,
            }
            continue;
        };
        let part = found.contiguous.min(end - at);
        let file = rule::FileId(found.file.0);
        places.push(Place::new(Address(at), part, file, found.offset));
        at += part;
    }
    places
}

/// The first address of `at..end` that is tracked. For rare cases: it asks some sixty times.
#[cold]
fn next_tracked(spaces: &AddressSpaces, viewer: ThreadId, at: u64, end: u64) -> Option<u64> {
    let is_tracked_below = |limit: u64| {
        let ranges = spaces.ranges(viewer, TargetAddr(at), limit - at);
        !ranges.is_empty()
    };
    if !is_tracked_below(end) {
        return None;
    }
    let (mut without, mut with) = (at, end);
    while with - without > 1 {
        let middle = without + (with - without) / 2;
        match is_tracked_below(middle) {
            true => with = middle,
            false => without = middle,
        }
    }
    Some(without)
}

fn keys(place: Place) -> ByteRange {
    keys::range(FileRange {
        file: FileId(place.file.0),
        offset: place.offset,
        len: place.len,
    })
}

// ---------------------------------------------------------------------- questions and findings

/// What a rule can ask while it looks at an event.
struct Services<'a> {
    /// Questions are asked by shared reference, and looking an address up remembers it.
    checker: RefCell<&'a mut Checker>,
    viewer: Option<ThreadId>,
    store_kinds: &'a [KindCode],
}

impl<'a> Services<'a> {
    fn new(
        checker: &'a mut Checker,
        viewer: Option<ThreadId>,
        store_kinds: &'a [KindCode],
    ) -> Self {
        Services {
            checker: RefCell::new(checker),
            viewer,
            store_kinds,
        }
    }

    /// The bytes of tracked files that a rule means.
    fn meant(&self, place: Place) -> Places {
        let checker = &mut **self.checker.borrow_mut();
        meant(checker, self.viewer, place)
    }
}

fn meant(checker: &mut Checker, viewer: Option<ThreadId>, place: Place) -> Places {
    match (place.file, viewer) {
        (rule::FileId(0), Some(viewer)) => {
            tracked(&mut checker.spaces, viewer, place.address.0, place.len)
        }
        (rule::FileId(0), None) => Places::new(),
        (file, _) if !checker.files.contains_key(&FileId(file.0)) => Places::new(),
        _ => smallvec![place],
    }
}

/// Where `viewer` sees a byte of a file, 0 if nowhere. `guess` is looked at first.
fn address(
    checker: &mut Checker,
    viewer: Option<ThreadId>,
    (file, offset): (FileId, u64),
    guess: u64,
) -> Address {
    let Some(viewer) = viewer else {
        return Address(0);
    };
    let known = checker.files.get(&file);
    let spaces = &mut checker.spaces;
    let found = std::iter::once(guess)
        .chain(known.into_iter().flat_map(|file| file.addresses(offset)))
        .find(|addr| {
            let there = spaces.translate(viewer, TargetAddr(*addr));
            there.is_some_and(|there| (there.file, there.offset) == (file, offset))
        });
    Address(found.unwrap_or(0))
}

impl HostServices for Services<'_> {
    fn is_persisted(&self, place: Place) -> bool {
        let parts = self.meant(place);
        let model = &self.checker.borrow().model;
        parts.into_iter().all(|part| model.is_persisted(keys(part)))
    }

    fn is_ordered_before(&self, earlier: Place, later: Place) -> bool {
        let (earlier, later) = (self.meant(earlier), self.meant(later));
        let model = &self.checker.borrow().model;
        earlier.iter().all(|a| {
            let mut later = later.iter();
            later.all(|b| model.is_ordered_before(keys(*a), keys(*b)))
        })
    }

    fn status(&self, place: Place, visit: &mut dyn FnMut(Status)) {
        let mut found = Vec::new();
        for part in self.meant(place) {
            let checker = &mut **self.checker.borrow_mut();
            let stored: Vec<_> = checker.model.status(keys(part)).collect();
            for (range, status) in stored {
                let state = match status.state {
                    Persistency::Clean => continue,
                    Persistency::Dirty => rule::State::Dirty,
                    Persistency::Flushing => rule::State::Flushing,
                    Persistency::Draining => rule::State::Draining,
                    Persistency::Persisted => rule::State::Persisted,
                };
                let (file, offset) = keys::place(range.start());
                let guess = part.address.0.wrapping_add(offset - part.offset);
                let address = address(checker, self.viewer, (file, offset), guess);
                let place = Place::new(address, range.len(), rule::FileId(file.0), offset);
                let site = checker.sites.site(status.tag);
                let kind = self.store_kinds.get(status.tag.0 as usize).copied();
                let store = rule::Site {
                    index: EventIndex(status.stored.0),
                    pc: Address(site.pc.0),
                    context: rule::ContextId(site.context.0),
                    thread: rule::ThreadId(status.thread.0),
                    process: rule::ProcessId(site.process.0),
                    kind: kind.unwrap_or(KindCode::STORE),
                    place,
                };
                found.push(Status {
                    place,
                    state,
                    store,
                });
            }
        }
        found.into_iter().for_each(visit);
    }

    fn in_transaction(&self, thread: rule::ThreadId) -> bool {
        let checker = self.checker.borrow();
        let known = checker.known_thread(ThreadId(thread.0));
        known.is_some_and(|state| !state.transactions.is_empty())
    }

    fn is_logged(&self, thread: rule::ThreadId, place: Place) -> bool {
        let parts = self.meant(place);
        let checker = self.checker.borrow();
        let Some(state) = checker.known_thread(ThreadId(thread.0)) else {
            return false;
        };
        let open = state.transactions.iter();
        let open: Vec<_> = open.filter_map(|n| checker.transactions.get(*n)).collect();
        if open.is_empty() || parts.iter().map(|part| part.len).sum::<u64>() < place.len {
            return false;
        }
        let mut left: Vec<ByteRange> = parts.into_iter().map(keys).collect();
        for transaction in open {
            let gaps = left.iter().flat_map(|part| transaction.logged.gaps(*part));
            left = gaps.collect();
        }
        left.is_empty()
    }

    fn report(&mut self, rule: &Info, finding: Finding) {
        let checker = &mut **self.checker.get_mut();
        let events = finding.events.into_iter();
        let events = events.map(|event| raw_event(checker, self.viewer, event));
        let events = events.collect();
        checker.collector.report_custom(Raw {
            rule: rule.id.as_ref().into(),
            severity: match rule.severity {
                rule::Severity::Correctness => Severity::Correctness,
                rule::Severity::Performance => Severity::Performance,
            },
            message: finding.message,
            events,
            help: finding.help,
            notes: finding.notes,
            count: 1,
            bytes: 0,
        });
    }
}

/// What a finding calls an event of this kind. The two crates have the same words; a test compares
/// them.
fn role(kind: KindCode) -> Role {
    kind.role().parse().unwrap_or(Role::Event)
}

fn raw_event(checker: &mut Checker, viewer: Option<ThreadId>, event: FindingEvent) -> RawEvent {
    let place = event.place();
    let Some(site) = event.site else {
        return RawEvent::new(Role::Exit, event.text, Tag(0));
    };
    let tag = checker.sites.number(Site {
        process: ProcessId(site.process.0),
        pc: TargetAddr(site.pc.0),
        context: ContextId(site.context.0),
    });
    let place = place.and_then(|place| meant(checker, viewer, place).first().copied());
    RawEvent {
        thread: (site.thread.0 != 0).then_some(ThreadId(site.thread.0)),
        moment: (site.index.0 != 0).then_some(Moment(site.index.0)),
        place: place.map(|place| (keys(place), TargetAddr(place.address.0))),
        ..RawEvent::new(role(site.kind), event.text, tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_have_a_word_for_every_kind_of_event() {
        for kind in (0..64).map(KindCode) {
            assert_eq!(kind.role().parse(), Ok(role(kind)), "{kind:?}");
        }
    }
}

//! What one execution did to persistent memory, as far as it steers the search.
//!
//! A [`Watch`] takes the events of one execution and fills two maps of counters:
//!
//! - **PM path** (PMFuzz, algorithm 1): a PM operation is an instruction that stores to, writes
//!   back or fences persistent memory, or a call of a transactional library function. It is named
//!   by module and offset, so that a map means the same after a restart. A transition is a pair of
//!   operations that follow each other in a thread; its counter says how often. Deviation: a call
//!   is named by where it comes from, because the function's own address is the same for all
//!   callers.
//! - **Situations**, which the paper does not have: at each fence, which instruction had stored to
//!   a line and which had written it back; and at which instructions something was stored that no
//!   write-back has followed when the fence came. Two runs on the same path differ here if one of
//!   them has left something behind.
//!
//! Beside them it notes which pages of which files were written to, so that they can be set back,
//! and how calling contexts hash, so that what the rules have found can be told apart without a
//! look at symbols.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use brownout_trace::EventSink;
use brownout_trace::event::{Access, ContextId, Event, EventKind, FileId, TargetAddr, ThreadId};
use brownout_trace::maps::AddressSpaces;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// Places of a map.
pub const MAP: usize = 1 << 16;
/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// A map of counters that stop at 255.
pub struct Counters(Box<[u8]>);

impl Default for Counters {
    fn default() -> Counters {
        Counters(vec![0; MAP].into_boxed_slice())
    }
}

impl Counters {
    fn hit(&mut self, at: usize) {
        let counter = &mut self.0[at % MAP];
        *counter = counter.saturating_add(1);
    }

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Code that is mapped from a file.
#[derive(Clone, Copy)]
struct Module {
    start: u64,
    end: u64,
    /// Start in the file minus start in memory, and the file's name as a number.
    offset: u64,
    name: u64,
}

/// What became of a line since the last fence of a thread.
#[derive(Clone, Copy, Default)]
struct Line {
    stored: u64,
    written_back: u64,
}

/// Where a calling context was entered.
#[derive(Clone, Copy)]
struct Called {
    parent: ContextId,
    /// All calls, as a number.
    chain: u64,
    /// The last of them.
    call: u64,
    /// Its module's name, as a number.
    module: u64,
}

/// See the module's header.
#[derive(Default)]
pub struct Watch {
    /// PM path.
    pub path: Counters,
    /// Situations.
    pub situations: Counters,
    /// As `path`, of what was done before the program first turned to its input.
    pub opening: Counters,
    /// Pages of tracked files that were written to.
    pub pages: BTreeSet<(FileId, u64)>,
    /// Tracked files, as the program calls them, and how to open them.
    pub files: FxHashMap<FileId, PathBuf>,
    /// A file has another length now, or another name.
    pub reshaped: bool,
    /// The signal that has ended it, and the instruction and context that got it.
    pub signal: Option<(i32, TargetAddr, ContextId)>,
    /// It has written to tracked files.
    pub has_touched: bool,
    /// The program has turned to its input.
    pub has_input: bool,
    /// The thread that the signal has met.
    pub thread: ThreadId,
    maps: AddressSpaces,
    modules: Vec<Module>,
    contexts: FxHashMap<ContextId, Called>,
    /// The last operation of each thread.
    last: FxHashMap<ThreadId, usize>,
    lines: FxHashMap<u64, Line>,
}

fn hashed(value: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    // The low bits of this hash are weak.
    let hash = hasher.finish();
    hash ^ hash >> 29
}

impl Watch {
    /// An address of code by module and offset, as a number; the same in each run.
    fn place(&self, addr: TargetAddr) -> u64 {
        match self.module(addr) {
            Some(module) => hashed((module.name, addr.0.wrapping_add(module.offset))),
            None => hashed(addr.0),
        }
    }

    fn module(&self, addr: TargetAddr) -> Option<&Module> {
        let mut last_first = self.modules.iter().rev();
        last_first.find(|m| (m.start..m.end).contains(&addr.0))
    }

    /// An instruction with its callers, as a number; the same in each run.
    pub fn site(&self, pc: TargetAddr, context: ContextId) -> u64 {
        let callers = self.contexts.get(&context).map_or(0, |called| called.chain);
        hashed((self.place(pc), callers))
    }

    /// An instruction, and from where its module was called, as a number; the same in each run.
    pub fn place_and_caller(&self, pc: TargetAddr, context: ContextId) -> u64 {
        let module = self.module(pc).map_or(0, |module| module.name);
        let mut caller = 0;
        let mut next = self.contexts.get(&context);
        while let Some(called) = next {
            if called.module != module {
                caller = called.call;
                break;
            }
            // A context is never its own caller, but a target may have written anything.
            next = (called.parent != context)
                .then(|| self.contexts.get(&called.parent))
                .flatten();
        }
        hashed((self.place(pc), caller))
    }

    fn operation(&mut self, thread: ThreadId, name: u64) {
        let current = name as usize % MAP;
        let last = self.last.entry(thread).or_insert(0);
        let at = current ^ *last;
        *last = current >> 1;
        match self.has_input {
            true => self.path.hit(at),
            false => self.opening.hit(at),
        }
    }

    fn stored(&mut self, event: &Event<'_>, access: &Access<'_>) {
        self.has_touched = true;
        let place = self.place(event.pc);
        self.operation(event.thread, place);
        let mut addr = access.addr.0;
        let mut left = u64::from(access.size);
        while left > 0 {
            let Some(found) = self.maps.translate(event.thread, TargetAddr(addr)) else {
                break;
            };
            let len = left.min(found.contiguous);
            let last = found.offset + len - 1;
            for page in found.offset / PAGE..=last / PAGE {
                self.pages.insert((found.file, page));
            }
            addr += len;
            left -= len;
        }
        let first = access.addr.0 / 64;
        let last = (access.addr.0 + u64::from(access.size).max(1) - 1) / 64;
        for line in first..=last.min(first + 64) {
            self.lines.insert(
                line,
                Line {
                    stored: place,
                    written_back: 0,
                },
            );
        }
    }

    fn fence(&mut self, place: u64) {
        for (_, line) in self.lines.drain() {
            let at = hashed((line.stored, line.written_back, place));
            self.situations.hit(at as usize);
        }
    }
}

impl EventSink for Watch {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match &event.kind {
            EventKind::Store(access)
            | EventKind::NtStore(access)
            | EventKind::StringStore { access, .. }
            | EventKind::KernelStore { access, .. } => self.stored(event, access),
            EventKind::Rmw(access) => {
                self.stored(event, access);
                self.fence(self.place(event.pc));
            }
            EventKind::Flush { addr, .. } => {
                let place = self.place(event.pc);
                self.operation(event.thread, place);
                if let Some(line) = self.lines.get_mut(&(addr.0 / 64)) {
                    line.written_back = place;
                }
            }
            EventKind::Fence(_) => {
                let place = self.place(event.pc);
                self.operation(event.thread, place);
                self.fence(place);
            }
            EventKind::LibraryCall { function, .. } => {
                let caller = self.contexts.get(&event.context);
                let caller = caller.map_or(0, |called| called.call);
                self.operation(event.thread, hashed((caller, function)));
            }
            EventKind::Msync { .. } | EventKind::Fsync { .. } => {
                let place = self.place(event.pc);
                self.operation(event.thread, place);
            }
            EventKind::FileWrite {
                file, offset, size, ..
            } => {
                let place = self.place(event.pc);
                self.operation(event.thread, place);
                self.has_touched = true;
                let last = offset + u64::from((*size).max(1)) - 1;
                for page in offset / PAGE..=last / PAGE {
                    self.pages.insert((*file, page));
                }
            }
            EventKind::Truncate { .. } | EventKind::Name { .. } => self.reshaped = true,
            EventKind::Input { .. } => self.has_input = true,
            EventKind::Signal { signal, .. } => {
                self.signal = Some((*signal, event.pc, event.context));
                self.thread = event.thread;
            }
            EventKind::Module {
                addr,
                len,
                offset,
                path,
                ..
            } => {
                let end = addr.0 + len;
                self.modules.retain(|m| m.end <= addr.0 || end <= m.start);
                if !path.is_empty() {
                    self.modules.push(Module {
                        start: addr.0,
                        end,
                        offset: offset.wrapping_sub(addr.0),
                        name: hashed(path),
                    });
                }
            }
            EventKind::Context {
                context,
                parent,
                return_addr,
            } => {
                let call = self.place(*return_addr);
                let above = self.contexts.get(parent).map_or(0, |called| called.chain);
                let called = Called {
                    parent: *parent,
                    chain: hashed((above, call)),
                    call,
                    module: self.module(*return_addr).map_or(0, |module| module.name),
                };
                self.contexts.insert(*context, called);
            }
            EventKind::File { file, path, .. } => {
                use std::os::unix::ffi::OsStrExt;
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
                self.files.insert(*file, path);
            }
            _ => {}
        }
        self.maps.observe(event).map_err(|fault| fault.into_error())
    }

    fn new_file(&mut self, _: FileId, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::event::{FenceKind, FlushKind, ProcessId};

    /// A run in which a module lies at an address, with a mapped file.
    fn watch(base: u64, events: &[(u64, EventKind<'_>)]) -> Watch {
        let mut watch = Watch::default();
        let before = [
            EventKind::ProcessStart {
                process: ProcessId(1),
                parent: ProcessId(0),
                pid: 1,
                exe: b"/p",
            },
            EventKind::ThreadStart {
                thread: ThreadId(1),
                process: ProcessId(1),
                tid: 1,
            },
            EventKind::Module {
                process: ProcessId(1),
                addr: TargetAddr(base),
                len: 0x10000,
                offset: 0x1000,
                path: b"/p",
            },
            EventKind::Map {
                addr: TargetAddr(0x7000_0000),
                len: 0x10000,
                file: FileId(1),
                offset: 0x2000,
                prot: 3,
                flags: 1,
            },
            EventKind::Input { fd: 0, at: 0 },
        ];
        let before = before.into_iter().map(|kind| (0, kind));
        let events = events.iter().map(|(at, kind)| (base + at, kind.clone()));
        for (pc, kind) in before.chain(events) {
            let event = Event {
                thread: ThreadId(1),
                pc: TargetAddr(pc),
                context: ContextId(0),
                kind,
            };
            watch.event(&event).expect("it makes sense");
        }
        watch
    }

    fn store(at: u64) -> EventKind<'static> {
        EventKind::Store(Access {
            addr: TargetAddr(0x7000_0000 + at),
            size: 8,
            bytes: &[0; 8],
        })
    }

    fn flush(at: u64) -> EventKind<'static> {
        EventKind::Flush {
            kind: FlushKind::Clwb,
            addr: TargetAddr(0x7000_0000 + at),
        }
    }

    const FENCE: EventKind<'static> = EventKind::Fence(FenceKind::Sfence);

    /// Maps survive restarts: what is at another address is the same.
    #[test]
    fn names_do_not_depend_on_addresses() {
        let events = [(0x10, store(0)), (0x20, flush(0)), (0x30, FENCE)];
        let one = watch(0x40_0000, &events);
        let other = watch(0x5555_0000, &events);
        assert_eq!(one.path.bytes(), other.path.bytes());
        assert_eq!(one.situations.bytes(), other.situations.bytes());
        assert_eq!(one.path.bytes().iter().filter(|n| **n > 0).count(), 3);
    }

    #[test]
    fn the_order_of_operations_is_a_path() {
        let one = watch(0, &[(0x10, store(0)), (0x20, store(64))]);
        let other = watch(0, &[(0x20, store(64)), (0x10, store(0))]);
        assert_ne!(one.path.bytes(), other.path.bytes());
    }

    /// The same path, and something is left behind.
    #[test]
    fn what_no_write_back_follows_is_another_situation() {
        let good = watch(0, &[(0x10, store(0)), (0x20, flush(0)), (0x30, FENCE)]);
        let bad = watch(0, &[(0x10, store(0)), (0x20, flush(640)), (0x30, FENCE)]);
        assert_eq!(good.path.bytes(), bad.path.bytes());
        assert_ne!(good.situations.bytes(), bad.situations.bytes());
    }

    #[test]
    fn pages_of_files_are_noted() {
        let watch = watch(0, &[(0x10, store(0xffc))]);
        let pages: Vec<_> = watch
            .pages
            .iter()
            .map(|(file, page)| (file.0, *page))
            .collect();
        assert_eq!(pages, [(1, 2), (1, 3)]);
    }
}

//! Which file bytes lie at which target address, followed along the stream.
//!
//! Guarantee: for a stream that keeps its promise (definitions before uses), the answer of
//! [`AddressSpaces::translate`] between two events is what the kernel's page tables said between
//! them, for tracked files.
//!
//! Threads belong to processes (`ThreadStart`), a forked process begins with a copy of its
//! parent's mappings, `execve` clears them.
//!
//! Deviation: processes that share one address space without being threads (`CLONE_VM` without
//! `CLONE_THREAD`) are treated like forked ones: later mappings of one are not seen in the other.

use std::collections::HashMap;
use std::fmt;

use crate::event::{Event, EventKind, FileId, ProcessId, TargetAddr, ThreadId};

/// A mapped range. `addr + len` may be 2^64, hence the 128-bit arithmetic below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    addr: u64,
    len: u64,
    file: FileId,
    offset: u64,
}

impl Mapping {
    fn end(&self) -> u128 {
        u128::from(self.addr) + u128::from(self.len)
    }
}

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The file.
    pub file: FileId,
    /// Offset in it of the address.
    pub offset: u64,
    /// Bytes from there to the end of the mapping.
    pub contiguous: u64,
    /// Bytes from the beginning of the mapping to there.
    pub preceding: u64,
}

/// A stretch of a tracked file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub file: FileId,
    /// Where it begins.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// An event that does not fit those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapFault {
    /// The thread has no `ThreadStart`.
    UnknownThread(ThreadId),
    /// A fork of a process that never started.
    UnknownProcess(ProcessId),
    /// A remap of a range that is not mapped.
    RemapOfUnmapped(TargetAddr),
    /// An access to, or a write-back of, memory that no tracked mapping of its process explains.
    Unmapped(ThreadId, TargetAddr),
}

impl std::error::Error for MapFault {}

impl MapFault {
    /// As the error of a sink.
    pub fn into_error(self) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, self)
    }

    /// Whether an error is one of these: then the stream is wrong, not what became of it.
    pub fn is_in(error: &std::io::Error) -> bool {
        error.get_ref().is_some_and(|error| error.is::<MapFault>())
    }
}

impl fmt::Display for MapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapFault::UnknownThread(thread) => write!(f, "thread {thread} was never started"),
            MapFault::UnknownProcess(process) => write!(f, "process {process} was never started"),
            MapFault::RemapOfUnmapped(addr) => {
                write!(f, "a mapping at {addr} is moved, but none is there")
            }
            MapFault::Unmapped(thread, addr) => {
                write!(f, "no mapping explains what thread {thread} does at {addr}")
            }
        }
    }
}

/// The tracked mappings of all processes.
#[derive(Debug, Default)]
pub struct AddressSpaces {
    /// Sorted by address, without overlap.
    processes: HashMap<ProcessId, Vec<Mapping>>,
    threads: HashMap<ThreadId, ProcessId>,
    /// The last translation: most accesses go where the previous one went.
    recent: Option<(ThreadId, Mapping)>,
}

impl AddressSpaces {
    /// No process yet.
    pub fn new() -> AddressSpaces {
        AddressSpaces::default()
    }

    /// The process of a thread.
    pub fn process_of(&self, thread: ThreadId) -> Option<ProcessId> {
        self.threads.get(&thread).copied()
    }

    /// Takes note of an event; all of them may be given, most change nothing.
    #[inline]
    pub fn observe(&mut self, event: &Event<'_>) -> Result<(), MapFault> {
        match event.kind {
            EventKind::Map { .. }
            | EventKind::Unmap { .. }
            | EventKind::Remap { .. }
            | EventKind::ProcessStart { .. }
            | EventKind::ProcessExit { .. }
            | EventKind::ThreadStart { .. } => {
                self.recent = None;
                self.change(event)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn change(&mut self, event: &Event<'_>) -> Result<(), MapFault> {
        match event.kind {
            EventKind::ThreadStart {
                thread, process, ..
            } => {
                self.threads.insert(thread, process);
            }
            // One that is known already begins anew by `execve`, before which it has lost its
            // mappings; or it is told twice.
            EventKind::ProcessStart {
                process, parent, ..
            } if !self.processes.contains_key(&process) => {
                let mappings = match parent {
                    ProcessId(0) => Vec::new(),
                    _ => self
                        .processes
                        .get(&parent)
                        .ok_or(MapFault::UnknownProcess(parent))?
                        .clone(),
                };
                self.processes.insert(process, mappings);
            }
            EventKind::ProcessExit { process, .. } => {
                // The entry stays, because a process that is known and starts again does so by
                // `execve`, and then inherits nothing.
                self.processes.insert(process, Vec::new());
            }
            EventKind::Map {
                addr,
                len,
                file,
                offset,
                ..
            } => {
                let mappings = self.mappings_of(event.thread)?;
                remove(mappings, addr.0, len);
                insert(
                    mappings,
                    Mapping {
                        addr: addr.0,
                        len,
                        file,
                        offset,
                    },
                );
            }
            EventKind::Unmap { addr, len } => {
                remove(self.mappings_of(event.thread)?, addr.0, len);
            }
            EventKind::Remap {
                old_addr,
                old_len,
                new_addr,
                new_len,
            } => {
                let mappings = self.mappings_of(event.thread)?;
                remap(mappings, old_addr.0, old_len, new_addr.0, new_len)
                    .ok_or(MapFault::RemapOfUnmapped(old_addr))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Where `addr` leads for `thread` now; `None` outside the tracked mappings.
    #[inline]
    pub fn translate(&mut self, thread: ThreadId, addr: TargetAddr) -> Option<Translation> {
        if let Some((of, mapping)) = self.recent
            && of == thread
            && addr.0.wrapping_sub(mapping.addr) < mapping.len
        {
            return Some(within(&mapping, addr.0));
        }
        let process = self.threads.get(&thread)?;
        let mappings = self.processes.get(process)?;
        let nth = mappings
            .partition_point(|mapping| mapping.addr <= addr.0)
            .checked_sub(1)?;
        let mapping = mappings[nth];
        if addr.0 - mapping.addr >= mapping.len {
            return None;
        }
        self.recent = Some((thread, mapping));
        Some(within(&mapping, addr.0))
    }

    /// What `len` bytes at `addr` lead to for `thread` now: file, offset, length, in address order.
    pub fn ranges(&self, thread: ThreadId, addr: TargetAddr, len: u64) -> Vec<FileRange> {
        let mappings = self
            .threads
            .get(&thread)
            .and_then(|process| self.processes.get(process));
        // `remove` finds what lies there; the copy pays for not saying the same twice.
        let mut copy = mappings.cloned().unwrap_or_default();
        remove(&mut copy, addr.0, len)
            .iter()
            .map(file_range)
            .collect()
    }

    /// True if a mapping of the thread's process lies wholly in `len` bytes at `addr`.
    pub fn is_whole_mapping(&self, thread: ThreadId, addr: TargetAddr, len: u64) -> bool {
        let mappings = self
            .threads
            .get(&thread)
            .and_then(|process| self.processes.get(process));
        let end = u128::from(addr.0) + u128::from(len);
        mappings
            .into_iter()
            .flatten()
            .any(|mapping| mapping.addr >= addr.0 && mapping.end() <= end)
    }

    /// All ranges of tracked files that a process has mapped.
    pub fn ranges_of(&self, process: ProcessId) -> Vec<FileRange> {
        let mappings = self.processes.get(&process);
        mappings.into_iter().flatten().map(file_range).collect()
    }

    /// All ranges of tracked files that any process has mapped; the same bytes may be in several.
    pub fn all_ranges(&self) -> impl Iterator<Item = FileRange> {
        self.processes.values().flatten().map(file_range)
    }

    fn mappings_of(&mut self, thread: ThreadId) -> Result<&mut Vec<Mapping>, MapFault> {
        let process = self
            .threads
            .get(&thread)
            .ok_or(MapFault::UnknownThread(thread))?;
        Ok(self.processes.entry(*process).or_default())
    }
}

fn file_range(mapping: &Mapping) -> FileRange {
    FileRange {
        file: mapping.file,
        offset: mapping.offset,
        len: mapping.len,
    }
}

fn within(mapping: &Mapping, addr: u64) -> Translation {
    let into = addr - mapping.addr;
    Translation {
        file: mapping.file,
        offset: mapping.offset.wrapping_add(into),
        contiguous: mapping.len - into,
        preceding: into,
    }
}

fn insert(mappings: &mut Vec<Mapping>, mapping: Mapping) {
    if mapping.len > 0 {
        let at = mappings.partition_point(|other| other.addr < mapping.addr);
        mappings.insert(at, mapping);
    }
}

/// Cuts the range out and returns what was there, clipped to it.
fn remove(mappings: &mut Vec<Mapping>, addr: u64, len: u64) -> Vec<Mapping> {
    let hole = Mapping {
        addr,
        len,
        file: FileId(0),
        offset: 0,
    };
    let mut kept = Vec::with_capacity(mappings.len() + 1);
    let mut removed = Vec::new();
    for &mapping in mappings.iter() {
        let from = mapping.addr.max(hole.addr);
        let to = mapping.end().min(hole.end());
        if u128::from(from) >= to {
            kept.push(mapping);
            continue;
        }
        // Each part is inside `mapping`, so its length fits.
        let part = |from: u64, to: u128| Mapping {
            addr: from,
            len: (to - u128::from(from)) as u64,
            file: mapping.file,
            offset: mapping.offset.wrapping_add(from - mapping.addr),
        };
        if mapping.addr < from {
            kept.push(part(mapping.addr, u128::from(from)));
        }
        removed.push(part(from, to));
        if to < mapping.end() {
            kept.push(part(to as u64, mapping.end()));
        }
    }
    *mappings = kept;
    removed
}

/// `None` if nothing is mapped at the old place.
fn remap(
    mappings: &mut Vec<Mapping>,
    old_addr: u64,
    old_len: u64,
    new_addr: u64,
    new_len: u64,
) -> Option<()> {
    let mut moved = if old_len == 0 {
        // mremap(2): with an old length of 0 a shared mapping is mapped a second time.
        let mapping = mappings
            .iter()
            .find(|mapping| old_addr.wrapping_sub(mapping.addr) < mapping.len)?;
        vec![Mapping {
            addr: old_addr,
            len: 0,
            offset: within(mapping, old_addr).offset,
            ..*mapping
        }]
    } else {
        remove(mappings, old_addr, old_len)
    };
    let last = moved.last_mut()?;
    if last.end() == u128::from(old_addr) + u128::from(old_len) && new_len > old_len {
        last.len += new_len - old_len;
    }
    remove(mappings, new_addr, new_len);
    for mut mapping in moved {
        let into = mapping.addr - old_addr;
        if into < new_len {
            mapping.len = mapping.len.min(new_len - into);
            mapping.addr = new_addr.wrapping_add(into);
            insert(mappings, mapping);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ContextId, ExitStatus};

    fn event(thread: u32, kind: EventKind<'_>) -> Event<'_> {
        Event {
            thread: ThreadId(thread),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind,
        }
    }

    fn start(process: u32, parent: u32) -> EventKind<'static> {
        let (process, parent) = (ProcessId(process), ProcessId(parent));
        EventKind::ProcessStart {
            process,
            parent,
            pid: 1,
            exe: b"",
        }
    }

    fn thread(thread: u32, process: u32) -> EventKind<'static> {
        let (thread, process) = (ThreadId(thread), ProcessId(process));
        EventKind::ThreadStart {
            thread,
            process,
            tid: 1,
        }
    }

    fn map(addr: u64, len: u64, file: u32, offset: u64) -> EventKind<'static> {
        let (addr, file) = (TargetAddr(addr), FileId(file));
        EventKind::Map {
            addr,
            len,
            file,
            offset,
            prot: 3,
            flags: 1,
        }
    }

    fn at(spaces: &mut AddressSpaces, thread: u32, addr: u64) -> Option<(u32, u64, u64)> {
        let found = spaces.translate(ThreadId(thread), TargetAddr(addr))?;
        Some((found.file.0, found.offset, found.contiguous))
    }

    fn spaces(events: &[(u32, EventKind<'static>)]) -> AddressSpaces {
        let mut spaces = AddressSpaces::new();
        for (thread, kind) in events {
            spaces
                .observe(&event(*thread, kind.clone()))
                .expect("the stream is sound");
        }
        spaces
    }

    #[test]
    fn an_unmap_in_the_middle_leaves_both_ends() {
        let unmap = EventKind::Unmap {
            addr: TargetAddr(0x2000),
            len: 0x1000,
        };
        let mut spaces = spaces(&[
            (0, start(1, 0)),
            (0, thread(1, 1)),
            (1, map(0x1000, 0x3000, 7, 0x9000)),
            (1, unmap),
        ]);
        assert_eq!(at(&mut spaces, 1, 0x1fff), Some((7, 0x9fff, 1)));
        assert_eq!(at(&mut spaces, 1, 0x2000), None);
        assert_eq!(at(&mut spaces, 1, 0x2fff), None);
        assert_eq!(at(&mut spaces, 1, 0x3010), Some((7, 0xb010, 0xff0)));
        assert_eq!(at(&mut spaces, 1, 0x4000), None);
    }

    #[test]
    fn a_map_replaces_what_was_there() {
        let mut spaces = spaces(&[
            (0, thread(1, 1)),
            (1, map(0x1000, 0x3000, 1, 0)),
            (1, map(0x2000, 0x1000, 2, 0x5000)),
        ]);
        assert_eq!(at(&mut spaces, 1, 0x1800), Some((1, 0x800, 0x800)));
        assert_eq!(at(&mut spaces, 1, 0x2800), Some((2, 0x5800, 0x800)));
        assert_eq!(at(&mut spaces, 1, 0x3800), Some((1, 0x2800, 0x800)));
    }

    #[test]
    fn a_fork_copies_and_then_goes_its_own_way() {
        let unmap = EventKind::Unmap {
            addr: TargetAddr(0x1000),
            len: 0x1000,
        };
        let mut spaces = spaces(&[
            (0, start(1, 0)),
            (0, thread(1, 1)),
            (1, map(0x1000, 0x1000, 1, 0)),
            (1, start(2, 1)),
            (1, thread(2, 2)),
            (1, unmap),
        ]);
        assert_eq!(at(&mut spaces, 1, 0x1000), None);
        assert_eq!(at(&mut spaces, 2, 0x1000), Some((1, 0, 0x1000)));
    }

    #[test]
    fn exec_clears_even_if_the_parent_still_maps() {
        let exit = EventKind::ProcessExit {
            process: ProcessId(2),
            status: ExitStatus::Exec,
        };
        let mut spaces = spaces(&[
            (0, start(1, 0)),
            (0, thread(1, 1)),
            (1, map(0x1000, 0x1000, 1, 0)),
            (1, start(2, 1)),
            (1, thread(2, 2)),
            (2, exit),
            (2, start(2, 1)),
        ]);
        assert_eq!(at(&mut spaces, 2, 0x1000), None);
        assert_eq!(at(&mut spaces, 1, 0x1000), Some((1, 0, 0x1000)));
    }

    #[test]
    fn remap_moves_grows_shrinks_and_duplicates() {
        let remap = |old_addr, old_len, new_addr, new_len| EventKind::Remap {
            old_addr: TargetAddr(old_addr),
            old_len,
            new_addr: TargetAddr(new_addr),
            new_len,
        };
        let before = [(0, thread(1, 1)), (1, map(0x1000, 0x2000, 1, 0x4000))];
        let after = |kind: EventKind<'static>| {
            let mut events = before.to_vec();
            events.push((1, kind));
            spaces(&events)
        };
        let mut moved = after(remap(0x1000, 0x2000, 0x8000, 0x4000));
        assert_eq!(at(&mut moved, 1, 0x1000), None);
        assert_eq!(at(&mut moved, 1, 0xbfff), Some((1, 0x7fff, 1)));
        let mut shrunk = after(remap(0x1000, 0x2000, 0x1000, 0x1000));
        assert_eq!(at(&mut shrunk, 1, 0x1fff), Some((1, 0x4fff, 1)));
        assert_eq!(at(&mut shrunk, 1, 0x2000), None);
        let mut tail = after(remap(0x2000, 0x1000, 0x9000, 0x1000));
        assert_eq!(at(&mut tail, 1, 0x1fff), Some((1, 0x4fff, 1)));
        assert_eq!(at(&mut tail, 1, 0x9000), Some((1, 0x5000, 0x1000)));
        let mut twice = after(remap(0x2000, 0, 0x9000, 0x1000));
        assert_eq!(at(&mut twice, 1, 0x2000), Some((1, 0x5000, 0x1000)));
        assert_eq!(at(&mut twice, 1, 0x9000), Some((1, 0x5000, 0x1000)));
    }

    #[test]
    fn unsound_streams_are_noticed() {
        let mut spaces = AddressSpaces::new();
        let fault = spaces.observe(&event(4, map(0, 4096, 1, 0)));
        assert_eq!(fault, Err(MapFault::UnknownThread(ThreadId(4))));
        let fault = spaces.observe(&event(0, start(2, 1)));
        assert_eq!(fault, Err(MapFault::UnknownProcess(ProcessId(1))));
    }
}

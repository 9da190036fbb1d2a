//! Writes events as a store log that `pmreorder` reads.
//!
//! | event | elements |
//! |---|---|
//! | `Map` of a file for the first time | `REGISTER_FILE` |
//! | `Store`, `KernelStore`, `FileWrite` | `STORE` for each aligned word it touches |
//! | `Rmw` | the same, then `FENCE` |
//! | `NtStore` | the same, then `FLUSH` of these words |
//! | `Flush` | `FLUSH` of the line; then `FENCE` if it is a `clflush` |
//! | `Fence` | `FENCE` |
//! | `Msync` with `MS_SYNC`, `Fsync`, `FileSync` | `FLUSH` of the range or of the file, `FENCE` |
//! | pmemcheck's `DO_FLUSH`, `DO_FENCE`; the annotations `FLUSH`, `FENCE` | `FLUSH`, `FENCE` |
//! | pmemcheck's `EMIT_LOG`; the annotation `MARKER` | sections, see below |
//! | others | nothing |
//!
//! Guarantee: `pmreorder` can parse the log, and finds every store that was persisted in the file,
//! at the offset, and in the order of the recording. (`tests/pmreorder.rs` does what it does and
//! compares the files.)
//!
//! Where the log is not what pmemcheck would have written:
//! 1. Stores are cut at 8-byte borders. A `STORE` is all or nothing to `pmreorder`, and flushed
//!    whole by a flush that touches it. pmemcheck cuts vectors likewise, but leaves unaligned words
//!    whole.
//! 2. A file has one range of addresses, registered once, with offset 0: the program's own, where
//!    that is possible. The module `layout` says why.
//! 3. Flushes of ranges are widened to whole words, for the same reason as 1.
//! 4. Markers that `pmreorder` would reject are made acceptable; the module `markers` says how.
//!
//! What is lost: threads. A fence in a log completes the flushes of all of them;
//! [`Exported::threads`] says whether that matters. Stores to memory outside the tracked mappings,
//! and what an annotation says a device stored, are left out and counted.
//!
//! `pmreorder` replays a log onto the file as it was *before* the run, so keep a copy.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::io::{self, Write};

use brownout_trace::event::{
    Access, Event, EventKind, FileId, FlushKind, MS_SYNC, TargetAddr, ThreadId,
};
use brownout_trace::maps::{AddressSpaces, MapFault};
use brownout_trace::{annotation, pmemcheck};

use crate::LINE;
use crate::layout::{Layout, invalid};
use crate::markers::{Sections, plain};

const WORD: u64 = 8;
const PAGE: u64 = 4096;
/// What is written at once.
const CHUNK_LEN: usize = 64 << 10;

/// Gives the call stack of a store: pushes its frames, innermost first.
type FrameSource<'a> = Box<dyn FnMut(&Event<'_>, &mut Vec<String>) + 'a>;

/// What a log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// `REGISTER_FILE` elements.
    pub registrations: u64,
    /// `STORE` elements.
    pub stores: u64,
    /// `FLUSH` elements.
    pub flushes: u64,
    /// `FENCE` elements.
    pub fences: u64,
    /// Markers of the program that are in it, in whatever form.
    pub markers: u64,
    /// Threads that flushed or fenced. With more than one, the log promises more than the processor
    /// did.
    pub threads: usize,
    /// Stores that are left out, because they have no values by their nature.
    pub stores_left_out: u64,
    /// Markers that are left out: ends without beginning, empty ones.
    pub markers_left_out: u64,
    /// Bytes written.
    pub len: u64,
}

/// Writes a store log to `W`, which need not be buffered.
pub struct Exporter<'a, W: Write> {
    out: W,
    /// What is still to be written.
    buffer: Vec<u8>,
    spaces: AddressSpaces,
    /// Addresses at which a mapping began or ended at some time.
    borders: BTreeSet<u64>,
    layout: Layout,
    sections: Sections,
    frame_source: Option<FrameSource<'a>>,
    frames: Vec<String>,
    /// The frames of the current store as they stand in the log.
    frame_text: String,
    fence_after_clflush: bool,
    threads: HashSet<ThreadId>,
    thread_last: Option<ThreadId>,
    exported: Exported,
}

impl<'a, W: Write> Exporter<'a, W> {
    /// A log without call stacks.
    pub fn new(out: W) -> Exporter<'a, W> {
        Exporter {
            out,
            buffer: b"START".to_vec(),
            spaces: AddressSpaces::new(),
            borders: BTreeSet::new(),
            layout: Layout::default(),
            sections: Sections::default(),
            frame_source: None,
            frames: Vec::new(),
            frame_text: String::new(),
            fence_after_clflush: true,
            threads: HashSet::new(),
            thread_last: None,
            exported: Exported::default(),
        }
    }

    /// Asks `source` for the frames of every store, innermost first, and writes them behind it, as
    /// pmemcheck does with `--log-stores-stacktraces=yes`. Its usual form is `0x109189: insert
    /// (list.c:20)`.
    pub fn frames(mut self, source: impl FnMut(&Event<'_>, &mut Vec<String>) + 'a) -> Self {
        self.frame_source = Some(Box::new(source));
        self
    }

    /// Whether a `clflush` is followed by a `FENCE`, since nothing later can be persistent before
    /// it. Default: yes, as pmemcheck does without `--expect-fence-after-clflush=yes`. It completes
    /// other flushes, too, which a `clflush` does not.
    pub fn fence_after_clflush(mut self, yes: bool) -> Self {
        self.fence_after_clflush = yes;
        self
    }

    /// Takes the next event of a recording with values.
    pub fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.spaces.observe(event).map_err(MapFault::into_error)?;
        match event.kind {
            EventKind::File {
                file, path, size, ..
            } => self.layout.define(file, path, size),
            EventKind::Truncate { file, size } => self.layout.resize(file, size),
            EventKind::Map {
                addr,
                len,
                file,
                offset,
                ..
            } => {
                self.add_borders(addr, len);
                if len > 0 {
                    let end = offset
                        .checked_add(len)
                        .ok_or_else(|| invalid(format!("file {file} is mapped beyond 2^64")))?;
                    self.place(file, end, addr.0.checked_sub(offset))?;
                }
            }
            EventKind::Unmap { addr, len } => self.add_borders(addr, len),
            EventKind::Remap {
                old_addr,
                old_len,
                new_addr,
                new_len,
            } => {
                self.add_borders(old_addr, old_len);
                self.add_borders(new_addr, new_len);
            }
            EventKind::Store(access)
            | EventKind::StringStore { access, .. }
            | EventKind::KernelStore { access, .. } => {
                self.store(event, &access)?;
            }
            EventKind::NtStore(access) => {
                self.store(event, &access)?;
                self.flush(event.thread, access.addr, u64::from(access.size));
            }
            EventKind::Rmw(access) => {
                self.store(event, &access)?;
                self.fence(event.thread);
            }
            EventKind::FileWrite {
                file,
                offset,
                size,
                bytes,
            } => self.file_write(event, file, offset, size, bytes)?,
            EventKind::Flush { kind, addr } => {
                self.flush(event.thread, TargetAddr(addr.0 & !(LINE - 1)), LINE);
                if kind == FlushKind::Clflush && self.fence_after_clflush {
                    self.fence(event.thread);
                }
            }
            EventKind::Fence(_) => self.fence(event.thread),
            EventKind::Msync { addr, len, flags } if flags & MS_SYNC != 0 => {
                let len = len.checked_next_multiple_of(PAGE).unwrap_or(len);
                self.flush(event.thread, addr, len);
                self.fence(event.thread);
            }
            EventKind::Fsync { file, .. } => {
                self.flush_file(file, 0, u64::MAX);
                self.fence(event.thread);
            }
            EventKind::FileSync { file, offset, size } => {
                self.flush_file(file, offset, size);
                self.fence(event.thread);
            }
            EventKind::Pmemcheck { code, args, text } => match code {
                pmemcheck::DO_FLUSH => self.flush(event.thread, TargetAddr(args[0]), args[1]),
                pmemcheck::DO_FENCE => self.fence(event.thread),
                pmemcheck::EMIT_LOG => self.marker(text),
                _ => {}
            },
            EventKind::Annotation { code, args, text } => match code {
                annotation::FLUSH => self.flush(event.thread, TargetAddr(args[0]), args[1]),
                annotation::FENCE => self.fence(event.thread),
                annotation::STORE => self.exported.stores_left_out += 1,
                annotation::MARKER => self.marker(text),
                _ => {}
            },
            _ => {}
        }
        self.write_out(CHUNK_LEN)
    }

    /// Ends the log. Without it `pmreorder` does nothing with what was written.
    pub fn finish(mut self) -> io::Result<Exported> {
        self.buffer.extend_from_slice(b"|STOP\n");
        self.write_out(0)?;
        self.out.flush()?;
        self.exported.threads = self.threads.len();
        Ok(self.exported)
    }

    /// Writes if at least `len` bytes wait.
    fn write_out(&mut self, len: usize) -> io::Result<()> {
        if self.buffer.len() >= len {
            self.out.write_all(&self.buffer)?;
            self.exported.len += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    fn element(&mut self, element: fmt::Arguments<'_>) {
        // Writing to memory does not fail.
        let _ = write!(self.buffer, "|{element}");
    }

    fn add_borders(&mut self, addr: TargetAddr, len: u64) {
        self.borders.extend([addr.0, addr.0.saturating_add(len)]);
    }

    /// The address in the log of the file's first byte.
    fn place(&mut self, file: FileId, end: u64, wanted: Option<u64>) -> io::Result<u64> {
        let (place, new) = self.layout.place(file, end, wanted)?;
        if let Some(path) = new {
            let _ = write!(
                self.buffer,
                "|REGISTER_FILE;{path};{:#x};{:#x};0x0",
                place.base, place.size
            );
            self.exported.registrations += 1;
        }
        Ok(place.base)
    }

    fn store(&mut self, event: &Event<'_>, access: &Access<'_>) -> io::Result<()> {
        let mut bytes = with_values(access.bytes, access.size)?;
        self.describe_stack(event);
        let mut at = access.addr.0;
        while !bytes.is_empty() {
            let mut len = bytes.len().min((WORD - at % WORD) as usize);
            if let Some(to) = self.spaces.translate(event.thread, TargetAddr(at)) {
                len = len
                    .min(usize::try_from(to.contiguous).unwrap_or(len))
                    .max(1);
                let (piece, rest) = bytes.split_at(len);
                self.store_piece(to.file, to.offset, at.checked_sub(to.offset), piece)?;
                bytes = rest;
            } else {
                return Err(MapFault::Unmapped(event.thread, TargetAddr(at)).into_error());
            }
            at = at.wrapping_add(len as u64);
        }
        Ok(())
    }

    /// The same file lies in memory, so a write to it is a store.
    fn file_write(
        &mut self,
        event: &Event<'_>,
        file: FileId,
        offset: u64,
        size: u32,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut bytes = with_values(bytes, size)?;
        self.describe_stack(event);
        let mut at = offset;
        while !bytes.is_empty() {
            let len = bytes.len().min((WORD - at % WORD) as usize);
            let (piece, rest) = bytes.split_at(len);
            self.store_piece(file, at, None, piece)?;
            at += len as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// At most a word, inside one.
    fn store_piece(
        &mut self,
        file: FileId,
        offset: u64,
        wanted: Option<u64>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let end = offset
            .checked_add(bytes.len() as u64)
            .ok_or_else(|| invalid(format!("file {file} is written beyond 2^64")))?;
        let addr = self.place(file, end, wanted)? + offset;
        let mut word = [0; WORD as usize];
        word[..bytes.len()].copy_from_slice(bytes);
        let value = u64::from_le_bytes(word);
        let _ = write!(
            self.buffer,
            "|STORE;{addr:#x};{value:#x};{:#x}{}",
            bytes.len(),
            self.frame_text
        );
        self.exported.stores += 1;
        self.write_out(CHUNK_LEN)
    }

    fn describe_stack(&mut self, event: &Event<'_>) {
        if let Some(source) = &mut self.frame_source {
            self.frames.clear();
            source(event, &mut self.frames);
            self.frame_text.clear();
            for frame in &self.frames {
                self.frame_text.push(';');
                self.frame_text.push_str(&plain(frame));
            }
        }
    }

    /// Flushes whole words, as far as they lie in tracked mappings.
    fn flush(&mut self, thread: ThreadId, addr: TargetAddr, len: u64) {
        self.note_thread(thread);
        let Some(last) = len.checked_sub(1) else {
            return;
        };
        let last = addr.0.saturating_add(last) | (WORD - 1);
        let mut at = addr.0 & !(WORD - 1);
        loop {
            let step = match self.spaces.translate(thread, TargetAddr(at)) {
                Some(to) => {
                    let len = to.contiguous.min((last - at).saturating_add(1));
                    self.flush_file(to.file, to.offset, len);
                    len
                }
                None => match self.borders.range(at.saturating_add(1)..).next() {
                    Some(border) => border - at,
                    None => return,
                },
            };
            match at.checked_add(step) {
                Some(next) if next <= last => at = next,
                _ => return,
            }
        }
    }

    fn flush_file(&mut self, file: FileId, offset: u64, len: u64) {
        for nth in 0..self.layout.places(file).len() {
            let place = self.layout.places(file)[nth];
            let len = len.min(place.size.saturating_sub(offset));
            if len > 0 {
                self.element(format_args!("FLUSH;{:#x};{len:#x}", place.base + offset));
                self.exported.flushes += 1;
            }
        }
    }

    fn fence(&mut self, thread: ThreadId) {
        self.note_thread(thread);
        self.element(format_args!("FENCE"));
        self.exported.fences += 1;
    }

    fn note_thread(&mut self, thread: ThreadId) {
        if self.thread_last != Some(thread) {
            self.thread_last = Some(thread);
            self.threads.insert(thread);
        }
    }

    fn marker(&mut self, text: &[u8]) {
        let buffer = &mut self.buffer;
        let written = self.sections.marker(text, |name, suffix| {
            let _ = write!(buffer, "|{name}{suffix}");
        });
        if written {
            self.exported.markers += 1;
        } else {
            self.exported.markers_left_out += 1;
        }
    }
}

fn with_values(bytes: &[u8], size: u32) -> io::Result<&[u8]> {
    if bytes.len() == size as usize {
        return Ok(bytes);
    }
    Err(invalid(
        "the recording has no values, and a store log is nothing without them; record it without --no-values"
            .to_owned(),
    ))
}

//! Writes a trace.
//!
//! Guarantee: after [`Writer::flush`], or after a block filled up, everything pushed so far is
//! with the operating system in whole blocks; a `kill -9` loses at most the block in the making.
//! After an error of the output (a full disk) nothing more is written, every later call fails with
//! the same kind of error, and what was written before stays readable.
//!
//! Speed: [`Writer::push`] is a few nanoseconds for stores of up to 8 bytes, flushes and fences,
//! and allocates nothing; compression runs once a block, on the calling thread, because the
//! recorder has one core to itself and the rest belong to the target.
//! `cargo run --release -p brownout-trace --example throughput` measures it.
//!
//! Deviation: one event carries at most [`PAYLOAD_LEN_MAX`] bytes. A longer store, load or file
//! write becomes several consecutive events over its parts, which the persistency model treats
//! alike (a wide store *is* a sequence of its aligned pieces); [`Writer::event_count`] counts
//! what is in the file.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use zstd::bulk::Compressor;

use crate::codec::{Encoder, ValueLengthMismatch, put_varint};
use crate::event::{Access, Elements, Event, EventKind, TargetAddr};
use crate::format::{
    BlockHeader, BlockKind, Encoding, Meta, PAYLOAD_LEN_MAX, RAW_LEN_MAX, checksum,
    encode_file_header, encode_trailer,
};

/// How to write. [`WriterOptions::default`] is right for recording.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// zstd level. Default -4, one of the fast ones: higher levels make traces a fifth smaller, and
    /// cost the recording core its lead over the target.
    pub level: i32,
    /// Events in a block, at most. Default 65,536: a few hundred kilobytes, so that a block fits
    /// the second-level cache and the site table is paid rarely. Clamped to what readers accept.
    pub events_per_block: u32,
    /// Bytes of strings and wide values after which a block ends. Default 1 MiB.
    pub bytes_per_block: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            level: -4,
            events_per_block: 1 << 16,
            bytes_per_block: 1 << 20,
        }
    }
}

/// What [`Writer::finish`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Events in the file.
    pub events: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// Writes events to `W`, which need not be buffered: it gets one `write_all` a block.
pub struct Writer<W: Write> {
    out: W,
    encoder: Encoder,
    compressor: Compressor<'static>,
    /// The payload before compression.
    raw: Vec<u8>,
    /// Header and payload as they go out.
    framed: Vec<u8>,
    /// Per block: length in the file, events.
    index: Vec<u8>,
    blocks: u32,
    bytes_per_block: usize,
    /// Events in the blocks written so far.
    events_written: u64,
    offset: u64,
    duration: Option<Duration>,
    state: State,
}

enum State {
    Open,
    Finished,
    /// The output failed; its error, to be repeated.
    Failed(io::ErrorKind, String),
}

impl Writer<File> {
    /// Creates (or empties) the file and writes the header.
    pub fn create(path: &Path, meta: &Meta) -> io::Result<Writer<File>> {
        Writer::new(File::create(path)?, meta)
    }
}

impl<W: Write> Writer<W> {
    /// Starts a trace with default options.
    pub fn new(out: W, meta: &Meta) -> io::Result<Writer<W>> {
        Writer::with_options(out, meta, &WriterOptions::default())
    }

    /// Starts a trace.
    pub fn with_options(mut out: W, meta: &Meta, options: &WriterOptions) -> io::Result<Writer<W>> {
        let header = encode_file_header(meta);
        out.write_all(&header)?;
        Ok(Writer {
            out,
            encoder: Encoder::new(options.events_per_block),
            compressor: Compressor::new(options.level)?,
            raw: Vec::new(),
            framed: Vec::new(),
            index: Vec::new(),
            blocks: 0,
            bytes_per_block: options.bytes_per_block.clamp(1, PAYLOAD_LEN_MAX),
            events_written: 0,
            offset: header.len() as u64,
            duration: None,
            state: State::Open,
        })
    }

    /// Appends one event.
    ///
    /// Fails if the output fails, or with [`io::ErrorKind::InvalidInput`] if the event breaks the
    /// contract of [`Access`] or carries a string or an atomic access longer than
    /// [`PAYLOAD_LEN_MAX`]; such an event is not recorded, and the writer stays usable.
    #[inline]
    pub fn push(&mut self, event: &Event<'_>) -> io::Result<()> {
        if self.encoder.is_full() || self.encoder.variable_bytes() >= self.bytes_per_block {
            self.write_block()?;
        }
        if let EventKind::Store(Access { bytes, .. }) = &event.kind {
            // The hot case needs no look at the other variants.
            if bytes.len() > PAYLOAD_LEN_MAX {
                return self.push_parts(event);
            }
        } else if payload_len(&event.kind) > PAYLOAD_LEN_MAX {
            return self.push_parts(event);
        }
        match self.encoder.push(event) {
            Ok(()) => Ok(()),
            Err(ValueLengthMismatch) => {
                Err(invalid("an access has another length than its values"))
            }
        }
    }

    /// Events pushed so far; the index that the next one gets.
    pub fn event_count(&self) -> u64 {
        self.events_written + u64::from(self.encoder.count())
    }

    /// Bytes written so far, without the block in the making.
    pub fn byte_count(&self) -> u64 {
        self.offset
    }

    /// Notes how long the recorded run took, for the footer.
    pub fn set_duration(&mut self, duration: Duration) {
        self.duration = Some(duration);
    }

    /// Ends the current block early, so that all events so far survive a `kill -9` of the
    /// recorder. Meant for moments when the target is idle: small blocks compress worse.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write_block()?;
        self.guarded(|writer| writer.out.flush())
    }

    /// Writes what is pending and the footer, which marks the recording as ended in order.
    pub fn finish(mut self) -> io::Result<Written> {
        self.write_block()?;
        let mut payload = Vec::with_capacity(self.index.len() + 10);
        let duration_ns = self.duration.map_or(0, |duration| {
            u64::try_from(duration.as_nanos())
                .unwrap_or(u64::MAX - 1)
                .saturating_add(1)
        });
        put_varint(&mut payload, duration_ns);
        payload.extend_from_slice(&self.index);
        if payload.len() > RAW_LEN_MAX {
            // Millions of blocks: readers then walk the block headers instead.
            payload.truncate(payload.len() - self.index.len());
        }
        let header = BlockHeader {
            kind: BlockKind::Index,
            sequence: self.blocks,
            first_event: self.events_written,
            count: self.blocks,
            raw_len: payload.len() as u32,
            stored_len: payload.len() as u32,
            encoding: Encoding::Plain,
            payload_checksum: checksum(&payload),
        };
        let trailer = encode_trailer(self.offset);
        let mut framed = std::mem::take(&mut self.framed);
        framed.clear();
        framed.extend_from_slice(&header.encode());
        framed.extend_from_slice(&payload);
        framed.extend_from_slice(&trailer);
        self.guarded(|writer| {
            writer.out.write_all(&framed)?;
            writer.out.flush()
        })?;
        self.offset += framed.len() as u64;
        self.state = State::Finished;
        Ok(Written {
            events: self.events_written,
            bytes: self.offset,
        })
    }

    /// Runs an output operation unless an earlier one failed, and remembers a failure.
    fn guarded(&mut self, operation: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        match &self.state {
            State::Open => {}
            State::Finished => return Err(io::Error::other("the trace has been finished")),
            State::Failed(kind, text) => return Err(io::Error::new(*kind, text.clone())),
        }
        let result = operation(self);
        if let Err(error) = &result {
            self.state = State::Failed(error.kind(), error.to_string());
        }
        result
    }

    #[inline(never)]
    fn write_block(&mut self) -> io::Result<()> {
        self.guarded(Self::write_block_open)
    }

    fn write_block_open(&mut self) -> io::Result<()> {
        let count = self.encoder.count();
        if count == 0 {
            return Ok(());
        }
        self.raw.clear();
        self.encoder.finish_block(&mut self.raw);
        debug_assert!(self.raw.len() <= RAW_LEN_MAX);

        self.framed.clear();
        let mut header = BlockHeader {
            kind: BlockKind::Events,
            sequence: self.blocks,
            first_event: self.events_written,
            count,
            raw_len: self.raw.len() as u32,
            stored_len: 0,
            encoding: Encoding::Zstd,
            payload_checksum: 0,
        };
        let header_len = header.encode().len();
        self.framed.resize(
            header_len + zstd::zstd_safe::compress_bound(self.raw.len()),
            0,
        );
        let stored = self
            .compressor
            .compress_to_buffer(&self.raw, &mut self.framed[header_len..])
            .ok()
            .filter(|&stored| stored < self.raw.len());
        match stored {
            Some(stored) => self.framed.truncate(header_len + stored),
            None => {
                header.encoding = Encoding::Plain;
                self.framed.truncate(header_len);
                self.framed.extend_from_slice(&self.raw);
            }
        }
        header.stored_len = (self.framed.len() - header_len) as u32;
        header.payload_checksum = checksum(&self.framed[header_len..]);
        self.framed[..header_len].copy_from_slice(&header.encode());
        self.out.write_all(&self.framed)?;

        put_varint(&mut self.index, self.framed.len() as u64);
        put_varint(&mut self.index, u64::from(count));
        self.offset += self.framed.len() as u64;
        self.events_written += u64::from(count);
        self.blocks = self
            .blocks
            .checked_add(1)
            .ok_or_else(|| io::Error::other("the trace has as many blocks as the format allows"))?;
        Ok(())
    }

    /// Records a payload that is too long for one event as consecutive parts.
    #[cold]
    fn push_parts(&mut self, event: &Event<'_>) -> io::Result<()> {
        let part = |kind| Event {
            thread: event.thread,
            pc: event.pc,
            context: event.context,
            kind,
        };
        if let EventKind::FileWrite {
            file,
            offset,
            bytes,
            size,
        } = event.kind
        {
            if size as usize != bytes.len() {
                return Err(invalid("a file write has another length than its values"));
            }
            let mut offset = offset;
            for bytes in aligned_parts(offset, bytes) {
                let size = bytes.len() as u32;
                self.push(&part(EventKind::FileWrite {
                    file,
                    offset,
                    size,
                    bytes,
                }))?;
                offset = offset.wrapping_add(u64::from(size));
            }
            return Ok(());
        }
        let Some(whole) = event.kind.access() else {
            return Err(invalid("a string in an event is too long"));
        };
        if whole.size as usize != whole.bytes.len() {
            return Err(invalid("an access has another length than its values"));
        }
        if let EventKind::StringStore { elements, .. } = event.kind {
            for (into, bytes) in element_parts(elements, whole.bytes) {
                let access = Access {
                    addr: TargetAddr(whole.addr.0.wrapping_add(into as u64)),
                    size: bytes.len() as u32,
                    bytes,
                };
                self.push(&part(EventKind::StringStore { access, elements }))?;
            }
            return Ok(());
        }
        let mut addr = whole.addr;
        for bytes in aligned_parts(addr.0, whole.bytes) {
            let access = Access {
                addr,
                size: bytes.len() as u32,
                bytes,
            };
            let kind = match event.kind {
                EventKind::Store(_) => EventKind::Store(access),
                EventKind::NtStore(_) => EventKind::NtStore(access),
                EventKind::Load(_) => EventKind::Load(access),
                EventKind::KernelStore { syscall, .. } => {
                    EventKind::KernelStore { syscall, access }
                }
                // Atomic, so its parts would not mean the same; and no instruction is that wide.
                _ => return Err(invalid("an atomic access is too long")),
            };
            self.push(&part(kind))?;
            addr = TargetAddr(addr.0.wrapping_add(bytes.len() as u64));
        }
        Ok(())
    }
}

impl<W: Write> Drop for Writer<W> {
    /// Writes the pending block, so that a recorder that fails elsewhere loses nothing. There is
    /// no footer: the recording did not end in order.
    fn drop(&mut self) {
        if matches!(self.state, State::Open) {
            // Nobody is left to tell.
            let _ = self.flush();
        }
    }
}

#[inline(always)]
fn payload_len(kind: &EventKind<'_>) -> usize {
    match kind {
        EventKind::Flush { .. } | EventKind::Fence(_) => 0,
        EventKind::Store(access)
        | EventKind::NtStore(access)
        | EventKind::Load(access)
        | EventKind::Rmw(access)
        | EventKind::StringStore { access, .. }
        | EventKind::KernelStore { access, .. } => access.bytes.len(),
        EventKind::FileWrite { bytes, .. } => bytes.len(),
        EventKind::File { path, .. } | EventKind::Module { path, .. } => path.len(),
        EventKind::ProcessStart { exe, .. } => exe.len(),
        EventKind::Pmemcheck { text, .. }
        | EventKind::Annotation { text, .. }
        | EventKind::Note { text } => text.len(),
        _ => 0,
    }
}

/// Cuts at cache-line boundaries, so that no aligned piece that persists as one is torn.
fn aligned_parts(start: u64, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let first = PAYLOAD_LEN_MAX - (start % 64) as usize;
    let (first, rest) = bytes.split_at(first.min(bytes.len()));
    std::iter::once(first).chain(rest.chunks(PAYLOAD_LEN_MAX))
}

/// Cuts between elements, in the order in which they were stored: where each part begins, and its
/// bytes.
fn element_parts(elements: Elements, bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let element = usize::from(elements.bytes).max(1);
    let part = PAYLOAD_LEN_MAX / element * element;
    let mut parts: Vec<_> = (0..).step_by(part).zip(bytes.chunks(part)).collect();
    if elements.descending {
        parts.reverse();
    }
    parts
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

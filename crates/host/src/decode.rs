//! Ring records to events.
//!
//! The ring lies in memory that the program can write to. Whatever is there, reading it neither
//! panics nor goes on for ever: what is not a record ends the stream with [`Broken`], which is a
//! bug of ours (or a program that has overwritten the engine's memory).

use crate::control::{Records, Shared};
use crate::rare::WORDS;
use crate::{EventSink, ExitStatus, LaunchError};
use brownout_abi::{HEAD_LEN, RecordHead, annotation, kind, rare};
use brownout_trace::event::{self, *};
use brownout_trace::{Beginning, Executed};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::io;

/// Compiles patterns of persistent memory, which are matched with absolute paths. `*` does not
/// cross `/`; `**` does.
pub fn globs(patterns: &[String]) -> Result<GlobSet, LaunchError> {
    let mut set = GlobSetBuilder::new();
    for p in patterns {
        // What it is relative to is the caller's to say, who knows who wrote it.
        if !p.starts_with('/') && !p.starts_with("**") {
            return Err(LaunchError::BadGlob(p.clone(), "it is relative".into()));
        }
        let glob = GlobBuilder::new(p)
            .literal_separator(true)
            .build()
            .map_err(|e| LaunchError::BadGlob(p.clone(), e.kind().to_string()))?;
        set.add(glob);
    }
    set.build()
        .map_err(|e| LaunchError::BadGlob(patterns.join(", "), e.kind().to_string()))
}

/// What is in the ring is not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// Why a record has not become an event of the sink.
#[derive(Debug)]
pub enum Failure {
    Broken(Broken),
    Sink(io::Error),
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Sink(e)
    }
}

fn broken<T>(what: &'static str) -> Result<T, Failure> {
    Err(Failure::Broken(Broken(what)))
}

/// Turns records into events, resolving site numbers to addresses.
pub struct Decoder {
    shared: Shared,
    events: u64,
    /// A long access whose pieces are being put together.
    long: Option<Long>,
}

struct Long {
    thread: ThreadId,
    pc: TargetAddr,
    context: ContextId,
    kind: AccessKind,
    addr: u64,
    bytes: Vec<u8>,
    total: u64,
    values: bool,
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("in bounds"))
}
fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("in bounds"))
}

impl Decoder {
    pub fn new(shared: &Shared) -> Self {
        Decoder {
            shared: shared.clone(),
            events: 0,
            long: None,
        }
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    /// The run is over.
    pub fn end(&mut self, status: ExitStatus, sink: &mut dyn EventSink) -> io::Result<()> {
        let status = match status {
            ExitStatus::Code(c) => event::ExitStatus::Code(c),
            ExitStatus::Signal(s) => event::ExitStatus::Signal(s),
        };
        self.emit(
            sink,
            ThreadId(0),
            TargetAddr(0),
            ContextId(0),
            EventKind::End { status },
        )
    }

    /// Where a site is.
    #[inline]
    fn pc(&self, site: u32) -> TargetAddr {
        TargetAddr(self.shared.site(site))
    }

    fn emit(
        &mut self,
        sink: &mut dyn EventSink,
        thread: ThreadId,
        pc: TargetAddr,
        context: ContextId,
        kind: EventKind<'_>,
    ) -> io::Result<()> {
        self.events += 1;
        sink.event(&Event {
            thread,
            pc,
            context,
            kind,
        })
    }

    /// One whole record, of those that a [`Batch`] leaves. If it asks for an answer, that is
    /// returned with the thread that waits for it.
    pub fn record(
        &mut self,
        r: &[u8],
        sink: &mut dyn EventSink,
    ) -> Result<Option<(u32, [u64; 3])>, Failure> {
        let Some(asker) = asker(r) else {
            self.pass_on(r, sink)?;
            return Ok(None);
        };
        let mut asking = Asking {
            sink,
            answer: [0; 3],
        };
        self.pass_on(r, &mut asking)?;
        Ok(Some((asker, asking.answer)))
    }

    fn pass_on(&mut self, r: &[u8], sink: &mut dyn EventSink) -> Result<(), Failure> {
        let record_kind = r[1];
        if record_kind != kind::MORE {
            // Its writer was killed before it had told all of it: then it has told nothing.
            self.long = None;
        }
        let thread = ThreadId(u16::from_le_bytes([r[2], r[3]]) as u32);
        let site = u32_at(r, 4);
        let context = ContextId(u32_at(r, 8));
        let size = u32_at(r, 12);
        let addr = u64_at(r, 16);
        let payload = &r[HEAD_LEN..];
        let pc = self.pc(site);
        match record_kind {
            kind::STORE
            | kind::NT_STORE
            | kind::LOAD
            | kind::RMW
            | kind::KERNEL_STORE
            | kind::STRING_STORE => {
                let (detail, payload) = match record_kind {
                    kind::KERNEL_STORE | kind::STRING_STORE => match payload.split_at_checked(8) {
                        Some((detail, payload)) => (u64_at(detail, 0) as u32, payload),
                        None => return broken("an access without its detail"),
                    },
                    _ => (0, payload),
                };
                let Some(record_kind) = AccessKind::of(record_kind, detail) else {
                    return broken("a store of unknown elements");
                };
                let values = !payload.is_empty();
                if values && (size as usize) > payload.len() {
                    // The first piece of a long access: `MORE` records follow at once.
                    self.long = Some(Long {
                        thread,
                        pc,
                        context,
                        kind: record_kind,
                        addr,
                        bytes: payload.to_vec(),
                        total: size as u64,
                        values,
                    });
                    return Ok(());
                }
                let bytes = if values {
                    &payload[..size as usize]
                } else {
                    &[][..]
                };
                let access = Access {
                    addr: TargetAddr(addr),
                    size,
                    bytes,
                };
                let kind = record_kind.with(access);
                Ok(self.emit(sink, thread, pc, context, kind)?)
            }
            kind::MORE => {
                let Some(mut long) = self.long.take() else {
                    return broken("a continuation without its beginning");
                };
                let left = (long.total as usize - long.bytes.len()).min(payload.len());
                long.bytes.extend_from_slice(&payload[..left]);
                if (long.bytes.len() as u64) < long.total {
                    self.long = Some(long);
                    return Ok(());
                }
                let bytes = if long.values {
                    &long.bytes[..]
                } else {
                    &[][..]
                };
                let access = Access {
                    addr: TargetAddr(long.addr),
                    size: long.total as u32,
                    bytes,
                };
                let (t, p, c, k) = (long.thread, long.pc, long.context, long.kind.with(access));
                Ok(self.emit(sink, t, p, c, k)?)
            }
            kind::CONTEXT => {
                let kind = EventKind::Context {
                    context,
                    parent: ContextId(size),
                    return_addr: TargetAddr(addr),
                };
                Ok(self.emit(sink, thread, TargetAddr(0), ContextId(0), kind)?)
            }
            kind::RARE => {
                let used = &payload[..(size as usize).min(payload.len())];
                let Some((words, text)) = used.split_at_checked(8 * WORDS) else {
                    return broken("a record that is too short");
                };
                let words = std::array::from_fn(|i| u64_at(words, 8 * i));
                let Some(kind) = crate::rare::kind(addr, words, text) else {
                    return broken("an unknown event");
                };
                Ok(self.emit(sink, thread, pc, context, kind)?)
            }
            kind::BLOCK => {
                let whole = payload.split_at_checked(context.0 as usize);
                let parts =
                    whole.and_then(|(steps, code)| Some((steps, code.get(..size as usize)?)));
                let Some((steps, code)) = parts else {
                    return broken("a block that is too short");
                };
                Ok(sink.executed(&Executed::Block {
                    number: site,
                    pc: addr,
                    steps,
                    code,
                })?)
            }
            kind::EXECUTED => Ok(sink.executed(&Executed::Words {
                thread,
                fs: addr,
                words: &payload[..(size as usize).min(payload.len())],
            })?),
            kind::CAPTURED => Ok(sink.executed(&Executed::Captured {
                thread,
                pc: addr,
                words: &payload[..(size as usize).min(payload.len())],
            })?),
            kind::SYSCALL => Ok(sink.executed(&Executed::Call {
                thread,
                number: addr as u32,
                what: size,
                words: payload,
            })?),
            _ => broken("an unknown record"),
        }
    }
}

/// Bytes of a write-back.
const LINE: u64 = 64;

/// Events that are handed to the sink at a time: enough that calling it costs nothing beside them,
/// few enough that they are still in the innermost cache when it reads them.
const EVENTS_AT_ONCE: usize = 32;

/// A stretch of the stream, as events.
///
/// It ends before a record that is more than an event: one that asks, or that announces a process,
/// or that is put together from several.
struct Batch<'r, 'd> {
    records: Records<'r>,
    decoder: &'d mut Decoder,
    /// Where the next record begins.
    read: u64,
    /// Records that begin before are in this stretch; no record reaches beyond the second.
    end: u64,
    published: u64,
    events_max: u64,
    /// Lines of the record at `read` that were events already.
    lines: u32,
}

impl<'r, 'd> Batch<'r, 'd> {
    /// The records from `read` on that begin before `end`, as far as there are no more than
    /// `events_max` events. The writer has published all before `published`.
    ///
    /// # Safety
    /// The writer has published this stretch, and it is not released while the batch, or an event
    /// from it, lives.
    unsafe fn new(
        records: Records<'r>,
        decoder: &'d mut Decoder,
        (read, end, published): (u64, u64, u64),
        events_max: u64,
    ) -> Batch<'r, 'd> {
        Batch {
            records,
            decoder,
            read,
            end,
            published,
            events_max,
            lines: 0,
        }
    }

    /// The next line of a write-back; `self.lines` is 0 if it is the last.
    #[inline(always)]
    fn flush(&mut self, head: &RecordHead, kind: FlushKind) -> EventKind<'r> {
        let into = u64::from(self.lines) * LINE;
        let is_last = u64::from(head.size) <= into + LINE;
        self.lines = if is_last { 0 } else { self.lines + 1 };
        EventKind::Flush {
            kind,
            addr: TargetAddr(head.addr.wrapping_add(into)),
        }
    }

    /// Gives all events to the sink.
    fn pass_on(&mut self, events: &mut Vec<Event<'r>>, sink: &mut dyn EventSink) -> io::Result<()> {
        loop {
            events.clear();
            while events.len() < EVENTS_AT_ONCE
                && let Some(event) = self.next()
            {
                events.push(event);
            }
            if events.is_empty() {
                return Ok(());
            }
            sink.events(events)?;
        }
    }

    /// The next event.
    #[inline(always)]
    fn next(&mut self) -> Option<Event<'r>> {
        if self.read >= self.end || self.decoder.events >= self.events_max {
            return None;
        }
        // SAFETY: `new`'s caller has promised that records begin here.
        let head = unsafe { self.records.head(self.read) };
        let len = usize::from(head.words) * 8;
        let payload_len = len.checked_sub(HEAD_LEN)?;
        if self.read + len as u64 > self.published {
            return None;
        }
        // SAFETY: likewise, the whole record. The ring is not written to before it is released.
        let payload = unsafe { self.records.bytes(self.read + HEAD_LEN as u64, payload_len) };
        let access = |payload: &'r [u8]| {
            let bytes = match payload.is_empty() {
                true => &[][..],
                // `None` is the first piece of a long access.
                false => payload.get(..head.size as usize)?,
            };
            Some(Access {
                addr: TargetAddr(head.addr),
                size: head.size,
                bytes,
            })
        };
        let kind = match head.kind {
            kind::STORE => EventKind::Store(access(payload)?),
            kind::NT_STORE => EventKind::NtStore(access(payload)?),
            kind::LOAD => EventKind::Load(access(payload)?),
            kind::RMW => EventKind::Rmw(access(payload)?),
            kind::CLFLUSH => self.flush(&head, FlushKind::Clflush),
            kind::CLFLUSHOPT => self.flush(&head, FlushKind::Clflushopt),
            kind::CLWB => self.flush(&head, FlushKind::Clwb),
            kind::FENCE => EventKind::Fence(fence_kind(head.size)),
            kind::REQUEST if payload_len >= 40 => EventKind::Pmemcheck {
                code: (u64_at(payload, 0) & 0xffff) as u32,
                args: std::array::from_fn(|i| u64_at(payload, 8 * i + 8)),
                text: &[],
            },
            kind::CALL if payload_len >= 40 => EventKind::LibraryCall {
                function: head.addr as u32,
                args: std::array::from_fn(|i| u64_at(payload, 8 * i)),
            },
            _ => return None,
        };
        if self.lines == 0 {
            self.read += len as u64;
        }
        self.decoder.events += 1;
        Some(Event {
            thread: ThreadId(head.thread.into()),
            pc: self.decoder.pc(head.site),
            context: ContextId(head.ctx),
            kind,
        })
    }
}

/// What became of a stretch of the ring.
pub struct Taken {
    /// Where what was not taken begins.
    pub read: u64,
    pub failure: Option<Failure>,
}

/// What else a record means to whoever reads the ring.
pub trait Reader {
    /// A process of the run has told a number. If a program was started in it, that is what it was
    /// started with.
    fn announced(&mut self, pid: i32) -> Option<Beginning>;
    /// The thread with this number gets an answer.
    fn answered(&mut self, thread: u32, answer: [u64; 3]);
}

/// Gives the records from `read` on that begin before `stop` to the sink (`None`: to nobody), up to
/// `events_max` events in total. The writer has published all before `published`.
///
/// # Safety
/// Nothing before `published` is released meanwhile.
pub unsafe fn take(
    records: Records<'_>,
    decoder: &mut Decoder,
    (mut read, stop, published): (u64, u64, u64),
    events_max: u64,
    mut sink: Option<&mut dyn EventSink>,
    reader: &mut dyn Reader,
) -> Taken {
    let mut failure = None;
    let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
    while read < stop {
        if decoder.events >= events_max {
            sink = None;
        }
        if let Some(wanted) = &mut sink {
            // SAFETY: the caller's promise.
            let mut batch =
                unsafe { Batch::new(records, decoder, (read, stop, published), events_max) };
            let taken = batch.pass_on(&mut events, *wanted);
            // Where the first record begins that was not an event.
            read = batch.read;
            if let Err(e) = taken {
                failure = Some(Failure::Sink(e));
                sink = None;
            }
            if read >= stop {
                break;
            }
        }
        // SAFETY: likewise.
        let words = u64::from(unsafe { records.head(read) }.words);
        if words < 3 || read + words * 8 > published {
            failure = Some(Failure::Broken(Broken("a record of a wrong length")));
            break;
        }
        // SAFETY: likewise, the whole record.
        let record = unsafe { records.bytes(read, words as usize * 8) };
        read += words * 8;
        let beginning =
            announced(record).and_then(|(process, pid)| Some((process, reader.announced(pid)?)));
        let wanted = match &mut sink {
            Some(wanted) if decoder.events < events_max => Some(wanted),
            _ => None,
        };
        let answered = match wanted {
            Some(wanted) => decoder.record(record, *wanted).and_then(|answered| {
                if let Some((process, beginning)) = &beginning {
                    wanted.beginning(*process, beginning)?;
                }
                Ok(answered)
            }),
            None => Ok(asker(record).map(|thread| (thread, [0; 3]))),
        };
        match answered {
            Ok(None) => {}
            Ok(Some((thread, answer))) => reader.answered(thread, answer),
            Err(e) => {
                if let Some(thread) = asker(record) {
                    reader.answered(thread, [0; 3]);
                }
                let is_broken = matches!(e, Failure::Broken(_));
                failure = Some(e);
                sink = None;
                if is_broken {
                    break;
                }
            }
        }
    }
    Taken { read, failure }
}

fn fence_kind(size: u32) -> FenceKind {
    match size {
        0 => FenceKind::Sfence,
        1 => FenceKind::Mfence,
        _ => FenceKind::Locked,
    }
}

/// The thread that waits for an answer to this record, if it is such a record.
pub fn asker(r: &[u8]) -> Option<u32> {
    let asks = r[1] == kind::RARE
        && u64_at(r, 16) == rare::ANNOTATION
        && r.len() >= HEAD_LEN + 8
        && matches!(
            u64_at(r, HEAD_LEN) as u32,
            annotation::CHECKPOINT | annotation::FIND_VARIABLE
        );
    asks.then(|| u16::from_le_bytes([r[2], r[3]]) as u32)
}

/// Which words of the records in a copy of a stretch of the stream are the number of the process
/// that wrote them, as the kernel has it.
pub fn own_numbers(stretch: &[u64], pid: u32) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + HEAD_LEN / 8 <= stretch.len() {
        let words = (stretch[at] & 0xff) as usize;
        let words_of: &[usize] = match ((stretch[at] >> 8) as u8, stretch[at + 2]) {
            (kind::RARE, rare::PROCESS_START) => &[2],
            (kind::RARE, rare::THREAD_START) => &[2, 3],
            _ => &[],
        };
        for word in words_of.iter().map(|n| at + HEAD_LEN / 8 + n) {
            if stretch.get(word) == Some(&u64::from(pid)) {
                found.push(word);
            }
        }
        at += words.max(1);
    }
    found
}

/// The process that this record announces, and its number as a process of the run knows it, if it
/// is such a record.
pub fn announced(r: &[u8]) -> Option<(ProcessId, i32)> {
    if r[1] != kind::RARE || u64_at(r, 16) != rare::THREAD_START || r.len() < HEAD_LEN + 32 {
        return None;
    }
    let pid = u64_at(r, HEAD_LEN + 24) as i32;
    let process = ProcessId(u64_at(r, HEAD_LEN + 8) as u32);
    (pid > 0).then_some((process, pid))
}

/// Passes one event on and asks for the answer.
struct Asking<'a> {
    sink: &'a mut dyn EventSink,
    answer: [u64; 3],
}

impl EventSink for Asking<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.sink.event(event)?;
        self.answer = self.sink.answer(event);
        Ok(())
    }
}

/// What kind of access a record is.
#[derive(Clone, Copy)]
enum AccessKind {
    Store,
    NtStore,
    Load,
    Rmw,
    Kernel(u32),
    String(Elements),
}

impl AccessKind {
    fn of(record_kind: u8, detail: u32) -> Option<AccessKind> {
        Some(match record_kind {
            kind::STORE => AccessKind::Store,
            kind::NT_STORE => AccessKind::NtStore,
            kind::LOAD => AccessKind::Load,
            kind::RMW => AccessKind::Rmw,
            kind::STRING_STORE => AccessKind::String(Elements::from_code(detail)?),
            _ => AccessKind::Kernel(detail),
        })
    }

    fn with(self, access: Access<'_>) -> EventKind<'_> {
        match self {
            AccessKind::Store => EventKind::Store(access),
            AccessKind::NtStore => EventKind::NtStore(access),
            AccessKind::Load => EventKind::Load(access),
            AccessKind::Rmw => EventKind::Rmw(access),
            AccessKind::Kernel(syscall) => EventKind::KernelStore { syscall, access },
            AccessKind::String(elements) => EventKind::StringStore { access, elements },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Beginning;
    use brownout_abi::{RING_BASE, RING_LEN};
    use brownout_random::Random;
    use std::sync::atomic::Ordering;

    /// Counts.
    #[derive(Default)]
    struct Count(u64);

    impl EventSink for Count {
        fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
            // As an analysis would.
            if let Some(access) = event.kind.access() {
                assert!(access.bytes.is_empty() || access.bytes.len() == access.size as usize);
            }
            self.0 += 1;
            Ok(())
        }
    }

    impl Reader for () {
        fn announced(&mut self, _: i32) -> Option<brownout_trace::Beginning> {
            None
        }
        fn answered(&mut self, _: u32, _: [u64; 3]) {}
    }

    fn shared() -> Shared {
        let beginning = Beginning {
            cpu_hidden: brownout_abi::cpu::Features::NONE,
            cpu_lacking: brownout_abi::cpu::Features::NONE,
            mode: 0,
            layout: 0,
            input: (0, 0, false),
            known: Vec::new(),
            redirect_count: 0,
            redirects: Vec::new(),
            stop_at: 0,
            kept_flags: 0,
            world_count: 0,
            world: Vec::new(),
        };
        Shared::create(&beginning, None).expect("memory").0
    }

    /// Writes words into the ring, as a program could.
    fn fill(shared: &Shared, from: u64, words: &[u64]) {
        for (i, word) in words.iter().enumerate() {
            let at = (from + 8 * i as u64) & (RING_LEN - 1);
            // SAFETY: inside the ring, which this test alone uses.
            let place = unsafe { shared.records().bytes(at, 8) }.as_ptr().cast_mut();
            // SAFETY: likewise, eight bytes.
            unsafe { place.cast::<u64>().write(*word) };
        }
    }

    #[test]
    fn whatever_is_in_the_ring_reading_it_ends_and_never_panics() {
        let shared = shared();
        for seed in 1..=400u64 {
            let mut random = Random::new(seed);
            let count = 1 + random.bits() % 4096;
            let words: Vec<u64> = (0..count)
                .map(|_| {
                    let word = random.bits();
                    match seed % 4 {
                        0 => word,
                        // Heads of all kinds and lengths, most of them as they are.
                        1 => {
                            let kind = random.bits() % 30;
                            word & 0xffff_0000 | kind << 8 | (3 + random.bits() % 12)
                        }
                        2 => {
                            let kinds = [
                                kind::RARE,
                                kind::KERNEL_STORE,
                                kind::STRING_STORE,
                                kind::MORE,
                                kind::STORE,
                            ];
                            let kind = kinds[random.bits() as usize % 5];
                            word & 0x1f_0000_0000 | u64::from(kind) << 8 | (3 + random.bits() % 9)
                        }
                        // Small numbers: events of all kinds, lengths that nearly fit.
                        _ => random.bits() % 64 * [1, 256, 1 << 32][random.bits() as usize % 3],
                    }
                })
                .collect();
            let read = RING_BASE + random.bits() % RING_LEN / 8 * 8;
            fill(&shared, read, &words);
            let write = RING_BASE + (read + 8 * count + seed % 3) % RING_LEN;
            let control = shared.control();
            control.ring_write.store(write, Ordering::Relaxed);
            let published = shared.published(read);
            assert!(published - read <= RING_LEN);
            let mut decoder = Decoder::new(&shared);
            let mut sink = Count::default();
            let range = (read, published.min(read + RING_LEN / 16), published);
            // A write-back of four gigabytes is many events, too.
            let events_max = 100_000;
            // SAFETY: nobody else has this ring.
            let taken = unsafe {
                take(
                    shared.records(),
                    &mut decoder,
                    range,
                    events_max,
                    Some(&mut sink),
                    &mut (),
                )
            };
            assert!(taken.read <= published, "seed {seed}");
            assert_eq!(sink.0, decoder.events(), "seed {seed}");
            assert!(!matches!(taken.failure, Some(Failure::Sink(_))));
        }
    }

    #[test]
    fn what_is_no_record_is_called_so() {
        let shared = shared();
        let broken = |words: &[u64]| {
            fill(&shared, RING_BASE, words);
            let end = RING_BASE + 8 * words.len() as u64;
            let mut decoder = Decoder::new(&shared);
            let mut sink = Count::default();
            let range = (RING_BASE, end, end);
            // SAFETY: nobody else has this ring.
            let taken = unsafe {
                take(
                    shared.records(),
                    &mut decoder,
                    range,
                    u64::MAX,
                    Some(&mut sink),
                    &mut (),
                )
            };
            match taken.failure {
                Some(Failure::Broken(Broken(what))) => what,
                other => panic!("{words:x?}: {other:?}"),
            }
        };
        let head = |kind: u8, words: u64| u64::from(kind) << 8 | words;
        assert_eq!(broken(&[0, 0, 0]), "a record of a wrong length");
        assert_eq!(
            broken(&[head(kind::STORE, 4), 0, 0]),
            "a record of a wrong length"
        );
        assert_eq!(broken(&[head(99, 3), 0, 0]), "an unknown record");
        assert_eq!(
            broken(&[head(kind::MORE, 4), 0, 0, 0]),
            "a continuation without its beginning"
        );
        assert_eq!(
            broken(&[head(kind::KERNEL_STORE, 3), 0, 0]),
            "an access without its detail"
        );
        assert_eq!(
            broken(&[head(kind::RARE, 3), 0, 0]),
            "a record that is too short"
        );
        assert_eq!(
            broken(&[head(kind::STRING_STORE, 5), 8 << 32, 0x1000, 3, 0]),
            "a store of unknown elements"
        );
        let mut rare = vec![head(kind::RARE, 9), 48 << 32, 999];
        rare.extend([0; 6]);
        assert_eq!(broken(&rare), "an unknown event");
        // Half of a long access whose writer was killed is forgotten: what follows it is not its
        // rest.
        let cut = [
            head(kind::STORE, 4),
            100 << 32,
            0x1000,
            7,
            head(kind::FENCE, 3),
            0,
            0,
        ];
        let mut then_more = cut.to_vec();
        then_more.extend([head(kind::CONTEXT, 3), 0, 0, head(kind::MORE, 4), 0, 0, 0]);
        assert_eq!(broken(&then_more), "a continuation without its beginning");
    }
}

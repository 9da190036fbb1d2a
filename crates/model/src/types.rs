//! The words of the model: keys, lines, threads, epochs, moments, and the events that change
//! what a crash may leave behind.

use std::borrow::Cow;
use std::fmt;

pub use brownout_trace::event::FlushKind;
use brownout_trace::event::{Elements, TargetAddr, ThreadId};

/// Size of a cache line, bytes.
pub const LINE_BYTES: u64 = 64;

/// Size of a page, bytes.
pub const PAGE_BYTES: u64 = 4096;

/// A thread of the run, as the trace numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread(pub u32);

impl From<ThreadId> for Thread {
    fn from(id: ThreadId) -> Self {
        Thread(id.0)
    }
}

/// What stands for a byte of persistent memory: see [`keys`](crate::keys). No program has such an
/// address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Key(pub u64);

impl Key {
    /// The key of a byte in a run of one process that maps one file once: there addresses tell
    /// bytes apart.
    #[inline]
    pub fn of_lone_mapping(addr: TargetAddr) -> Key {
        Key(addr.0)
    }
}

/// A 64-byte cache line: its key divided by 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u64);

impl Line {
    /// The line that holds `key`.
    pub fn of(key: Key) -> Self {
        Line(key.0 / LINE_BYTES)
    }

    /// The bytes of the line.
    pub fn range(self) -> ByteRange {
        ByteRange::new(Key(self.0 * LINE_BYTES), LINE_BYTES)
    }
}

/// What a domain writes back as a whole: a line or a page; its key divided by its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit(pub u64);

/// A span of time between two fences. Every fence of any thread begins a new one, and so does
/// whatever else completes a persist at once (`clflush`, `msync`, a store under eADR): two things
/// of one epoch are never ordered by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A place in the total order of events that a view has been given, from 1. 0 is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

/// A half-open range of keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

impl ByteRange {
    /// `len` bytes from `key`, cut off at the end of all keys.
    pub fn new(key: Key, len: u64) -> Self {
        ByteRange {
            start: key.0,
            end: key.0.saturating_add(len),
        }
    }

    /// First key.
    pub fn start(self) -> Key {
        Key(self.start)
    }

    /// First key after the range.
    pub fn end(self) -> Key {
        Key(self.end)
    }

    /// Number of bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// True if there is no byte in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// True if a byte is in both.
    pub fn overlaps(self, other: ByteRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Cuts off what lies before the next multiple of `size`, and gives that.
    #[inline]
    pub(crate) fn take_first(&mut self, size: u64) -> ByteRange {
        let start = self.start;
        let end = (start - start % size).saturating_add(size).min(self.end);
        self.start = end;
        ByteRange { start, end }
    }

    /// The pieces between multiples of `size`, in the order of keys.
    pub fn split(self, size: u64) -> impl Iterator<Item = ByteRange> {
        let mut rest = self;
        std::iter::from_fn(move || (rest.start < rest.end).then(|| rest.take_first(size)))
    }
}

/// What one store may leave half done after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Atomicity {
    /// 8 aligned bytes are never torn: what the architecture promises.
    #[default]
    Word,
    /// A store inside one line is never torn: what ADR parts do in practice.
    Line,
    /// A store inside one page is never torn: what one `write` puts into an ordinary file is
    /// written back with its page.
    Page,
}

impl Atomicity {
    /// The size whose multiples cut a store.
    pub fn bytes(self) -> u64 {
        match self {
            Atomicity::Word => 8,
            Atomicity::Line => LINE_BYTES,
            Atomicity::Page => PAGE_BYTES,
        }
    }
}

/// The bytes that a store leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    range: ByteRange,
    bytes: Option<Cow<'a, [u8]>>,
    /// Of a string instruction.
    elements: Option<Elements>,
}

impl<'a> Write<'a> {
    /// A store of `bytes` at `key`.
    pub fn new(key: Key, bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        let bytes = bytes.into();
        let mut range = ByteRange::new(key, bytes.len() as u64);
        // A store that would wrap is impossible in user space; keep range and bytes in step anyway.
        range.end = range.end.max(range.start);
        Write {
            range,
            bytes: Some(bytes),
            elements: None,
        }
    }

    /// The same bytes, stored element by element.
    pub fn by(self, elements: Elements) -> Self {
        Write {
            elements: Some(elements),
            ..self
        }
    }

    /// A store whose values were not recorded: enough for intervals, not for crash states.
    pub fn without_values(range: ByteRange) -> Self {
        Write {
            range,
            bytes: None,
            elements: None,
        }
    }

    /// In which order and parts, if it is more than an ordinary store's.
    pub fn elements(&self) -> Option<Elements> {
        self.elements
    }

    /// Where.
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// What, if recorded.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }

    /// The parts that a crash can separate, in the order in which they are stored: in the order of
    /// keys, but for a string instruction that goes downwards. Of such instructions no part is
    /// larger than an element (unless a store inside one line is never torn).
    pub fn pieces(&self, atomicity: Atomicity) -> impl Iterator<Item = Write<'_>> {
        let size = atomicity.bytes();
        let (step, descending) = match (self.elements, atomicity) {
            (None, _) => (u64::MAX, false),
            (Some(elements), Atomicity::Word) => (elements.bytes.into(), elements.descending),
            // Lines in the order of the instruction, each as a whole.
            (Some(elements), Atomicity::Line | Atomicity::Page) => (u64::MAX, elements.descending),
        };
        let parts = Parts {
            rest: self.range,
            step,
            descending,
            within: ByteRange { start: 0, end: 0 },
            size,
        };
        parts.map(|range| Write {
            range,
            bytes: self.bytes.as_deref().map(|bytes| {
                let from = (range.start - self.range.start) as usize;
                Cow::Borrowed(&bytes[from..from + range.len() as usize])
            }),
            elements: None,
        })
    }
}

/// Cuts a range into elements of `step` bytes, counted from its beginning, and these at multiples
/// of `size`.
struct Parts {
    /// What is not begun yet.
    rest: ByteRange,
    step: u64,
    descending: bool,
    /// What is left of the element at hand.
    within: ByteRange,
    size: u64,
}

impl Iterator for Parts {
    type Item = ByteRange;

    #[inline]
    fn next(&mut self) -> Option<ByteRange> {
        if self.within.is_empty() {
            if self.rest.is_empty() {
                return None;
            }
            if !self.descending {
                let end = self.rest.start.saturating_add(self.step).min(self.rest.end);
                self.within = ByteRange {
                    start: self.rest.start,
                    end,
                };
                self.rest.start = end;
            } else {
                // Whole elements from the beginning; without elements, what a unit holds.
                let start = match self.step {
                    u64::MAX => {
                        let last = self.rest.end - 1;
                        (last - last % self.size).max(self.rest.start)
                    }
                    step => {
                        let last = (self.rest.len() - 1) / step;
                        self.rest.start + last * step
                    }
                };
                self.within = ByteRange {
                    start,
                    end: self.rest.end,
                };
                self.rest.end = start;
            }
        }
        Some(self.within.take_first(self.size))
    }
}

/// What happened, as far as persistency is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// An ordinary store.
    Store(Write<'a>),
    /// A non-temporal store.
    NtStore(Write<'a>),
    /// A locked read-modify-write of tracked memory: a fence, a load and a store.
    Rmw(Write<'a>),
    /// A load. It persists nothing; under [`FlushOrder::Program`](crate::FlushOrder) it keeps later
    /// write-backs in place.
    Load(ByteRange),
    /// A write-back of one line.
    Flush {
        /// Which instruction.
        kind: FlushKind,
        /// Which line.
        line: Line,
    },
    /// `sfence`.
    Sfence,
    /// `mfence`.
    Mfence,
    /// A locked instruction on memory that is not tracked.
    Locked,
    /// `msync(MS_SYNC)` that returned.
    Msync(ByteRange),
    /// HOPS: what the thread stores later persists later.
    Ofence,
    /// HOPS: what the thread stored is persistent.
    Dfence,
}

/// An operation and its thread. Its place is where it stands in the sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Who.
    pub thread: Thread,
    /// What.
    pub op: Op<'a>,
}

impl<'a> Event<'a> {
    /// `op` by `thread`.
    pub fn new(thread: Thread, op: Op<'a>) -> Self {
        Event { thread, op }
    }

    /// The event as a sequence of events between which a crash can fall. A wide store becomes its
    /// pieces; the fence of a locked instruction comes with the first.
    ///
    /// Views split by themselves. This is for whoever wants to crash *inside* a store, which
    /// shows only where stores are persistent at once (eADR).
    pub fn pieces(&self, atomicity: Atomicity) -> Vec<Event<'_>> {
        let event = |op| Event {
            thread: self.thread,
            op,
        };
        match &self.op {
            Op::Store(write) => write
                .pieces(atomicity)
                .map(|w| event(Op::Store(w)))
                .collect(),
            Op::NtStore(write) => write
                .pieces(atomicity)
                .map(|w| event(Op::NtStore(w)))
                .collect(),
            Op::Rmw(write) => write
                .pieces(atomicity)
                .enumerate()
                .map(|(i, w)| event(if i == 0 { Op::Rmw(w) } else { Op::Store(w) }))
                .collect(),
            _ => vec![self.clone()],
        }
    }
}

/// What the caller calls an event by (its code location, say). Kept with what the event did; not
/// interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(
        addr: u64,
        len: usize,
        elements: Option<(u8, bool)>,
        of: Atomicity,
    ) -> Vec<(u64, u64)> {
        let bytes: Vec<u8> = (0..len as u8).collect();
        let mut write = Write::new(Key(addr), bytes);
        if let Some((bytes, descending)) = elements {
            write = write.by(Elements { bytes, descending });
        }
        let pieces: Vec<_> = write.pieces(of).collect();
        for piece in &pieces {
            let from = (piece.range().start - addr) as u8;
            let expected: Vec<u8> = (from..from + piece.range().len() as u8).collect();
            assert_eq!(piece.bytes(), Some(&expected[..]));
        }
        let range = |piece: &Write<'_>| (piece.range().start, piece.range().end);
        pieces.iter().map(range).collect()
    }

    #[test]
    fn a_wide_store_is_its_aligned_words() {
        assert_eq!(pieces(4, 12, None, Atomicity::Word), [(4, 8), (8, 16)]);
        assert_eq!(pieces(60, 8, None, Atomicity::Line), [(60, 64), (64, 68)]);
    }

    #[test]
    fn a_string_instruction_is_its_elements() {
        let word = Atomicity::Word;
        let bytes = [(8, 9), (9, 10), (10, 11)];
        assert_eq!(pieces(8, 3, Some((1, false)), word), bytes);
        let mut downwards = bytes;
        downwards.reverse();
        assert_eq!(pieces(8, 3, Some((1, true)), word), downwards);
        assert_eq!(pieces(8, 8, Some((4, false)), word), [(8, 12), (12, 16)]);
        assert_eq!(pieces(8, 8, Some((4, true)), word), [(12, 16), (8, 12)]);
        // An element that is not aligned is torn at the word's end, and never joined with its
        // neighbour.
        assert_eq!(
            pieces(4, 16, Some((8, false)), word),
            [(4, 8), (8, 12), (12, 16), (16, 20)]
        );
        assert_eq!(
            pieces(4, 16, Some((8, true)), word),
            [(12, 16), (16, 20), (4, 8), (8, 12)]
        );
        assert_eq!(pieces(8, 16, Some((8, true)), word), [(16, 24), (8, 16)]);
    }

    #[test]
    fn lines_that_are_never_torn_are_whole_in_any_direction() {
        let line = Atomicity::Line;
        assert_eq!(pieces(60, 8, Some((1, false)), line), [(60, 64), (64, 68)]);
        assert_eq!(pieces(60, 8, Some((1, true)), line), [(64, 68), (60, 64)]);
    }
}

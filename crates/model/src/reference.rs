//! Legal crash states by brute force, for small cases: what the other two views are tested against.
//!
//! It shares nothing with them but the event type: every *set* of stores is tried, and kept if no
//! rule of the domain, read off the event sequence and nothing else, forbids it. Exponential on
//! purpose.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{Config, Domain, FlushOrder};
use crate::types::{Atomicity, Event, FlushKind, Op, Thread};

/// Bytes by address: all that were given at first or stored to.
pub type Image = BTreeMap<u64, u8>;

/// Stores (after splitting) beyond which [`enumerate`] refuses.
pub const STORES_MAX: usize = 16;

struct Piece {
    /// Index of the event.
    at: usize,
    thread: Thread,
    addr: u64,
    bytes: Vec<u8>,
    nt: bool,
}

/// Every memory that a crash after `events` may leave, or `None` if there are too many stores, or
/// stores without values.
pub fn enumerate(config: Config, initial: &Image, events: &[Event<'_>]) -> Option<BTreeSet<Image>> {
    let pieces = pieces(config, events)?;
    if pieces.len() > STORES_MAX {
        return None;
    }
    let mut before = initial.clone();
    for piece in &pieces {
        for i in 0..piece.bytes.len() as u64 {
            before.entry(piece.addr + i).or_insert(0);
        }
    }
    let images = (0u32..1 << pieces.len())
        .filter(|set| is_legal(config, events, &pieces, |i| set >> i & 1 == 1))
        .map(|set| {
            let mut image = before.clone();
            for (_, piece) in pieces.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1) {
                for (addr, byte) in (piece.addr..).zip(&piece.bytes) {
                    image.insert(addr, *byte);
                }
            }
            image
        })
        .collect();
    Some(images)
}

fn pieces(config: Config, events: &[Event<'_>]) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let (Op::Store(write) | Op::Rmw(write) | Op::NtStore(write)) = &event.op else {
            continue;
        };
        let start = write.range().start().0;
        let mut bytes: Vec<(u64, u8)> = (start..).zip(write.bytes()?.iter().copied()).collect();
        // Which element a byte belongs to; all to the same, but for a string instruction.
        let by_line = config.atomicity == Atomicity::Line;
        let element = |addr: u64| match write.elements() {
            Some(_) if by_line => addr / config.atomicity.bytes(),
            Some(elements) => (addr - start) / u64::from(elements.bytes),
            None => 0,
        };
        if write.elements().is_some_and(|e| e.descending) {
            bytes.sort_by_key(|(addr, _)| (std::cmp::Reverse(element(*addr)), *addr));
        }
        let mut last_word = None;
        for (addr, byte) in bytes {
            let word = (element(addr), addr / config.atomicity.bytes());
            if last_word != Some(word) {
                let nt = matches!(event.op, Op::NtStore(_))
                    && matches!(config.domain, Domain::X86 | Domain::Eadr);
                let bytes = Vec::new();
                pieces.push(Piece {
                    at,
                    thread: event.thread,
                    addr,
                    bytes,
                    nt,
                });
                last_word = Some(word);
            }
            if let Some(piece) = pieces.last_mut() {
                piece.bytes.push(byte);
            }
        }
    }
    Some(pieces)
}

fn is_fence(op: &Op<'_>) -> bool {
    matches!(op, Op::Sfence | Op::Mfence | Op::Locked | Op::Rmw(_))
}

fn is_legal(
    config: Config,
    events: &[Event<'_>],
    pieces: &[Piece],
    persisted: impl Fn(usize) -> bool,
) -> bool {
    let unit_bytes = if config.domain == Domain::Page {
        4096
    } else {
        64
    };
    let fenced = |thread: Thread, after: usize| {
        events[after + 1..]
            .iter()
            .any(|event| event.thread == thread && is_fence(&event.op))
    };
    let between = |thread: Thread, from: usize, to: usize, is: fn(&Op<'_>) -> bool| {
        from < to
            && events[from..to]
                .iter()
                .any(|e| e.thread == thread && is(&e.op))
    };
    for (i, piece) in pieces.iter().enumerate() {
        let unit = piece.addr / unit_bytes;
        // What the event sequence forces to be persistent.
        let forced = if piece.nt {
            fenced(piece.thread, piece.at)
        } else {
            match config.domain {
                Domain::Eadr => true,
                Domain::X86 => (piece.at + 1..events.len()).any(|at| {
                    let flusher = events[at].thread;
                    match &events[at].op {
                        Op::Flush {
                            kind: FlushKind::Clflush,
                            line,
                        } => line.0 == unit,
                        Op::Flush { line, .. } => {
                            let in_place = config.flush_order == FlushOrder::Recorded
                                || flusher == piece.thread
                                || between(flusher, piece.at + 1, at, |op| {
                                    is_fence(op) || matches!(op, Op::Load(_))
                                })
                                || pieces.iter().any(|own| {
                                    own.thread == flusher
                                        && !own.nt
                                        && own.addr / unit_bytes == unit
                                        && own.at > piece.at
                                        && own.at < at
                                });
                            line.0 == unit && in_place && fenced(flusher, at)
                        }
                        Op::Msync(range) => syncs(range, unit, unit_bytes),
                        _ => false,
                    }
                }),
                Domain::Page => events[piece.at + 1..].iter().any(|event| match &event.op {
                    Op::Msync(range) => syncs(range, unit, unit_bytes),
                    _ => false,
                }),
                Domain::Hops => between(piece.thread, piece.at + 1, events.len(), |op| {
                    matches!(op, Op::Dfence)
                }),
            }
        };
        if forced && !persisted(i) {
            return false;
        }
        // What its being persistent implies.
        if !persisted(i) || piece.nt {
            continue;
        }
        for (j, earlier) in pieces[..i]
            .iter()
            .enumerate()
            .filter(|(_, piece)| !piece.nt)
        {
            let same_unit = earlier.addr / unit_bytes == unit;
            let earlier_epoch = config.domain == Domain::Hops
                && earlier.thread == piece.thread
                && between(piece.thread, earlier.at + 1, piece.at, |op| {
                    matches!(op, Op::Ofence | Op::Dfence)
                });
            if (same_unit || earlier_epoch) && !persisted(j) {
                return false;
            }
        }
    }
    true
}

fn syncs(range: &crate::types::ByteRange, unit: u64, unit_bytes: u64) -> bool {
    !range.is_empty()
        && range.start().0 / unit_bytes <= unit
        && unit <= (range.end().0 - 1) / unit_bytes
}

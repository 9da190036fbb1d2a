//! The operations that move labels, and their interpreter.
//!
//! An instruction's data flow is a short straight list of these. They run in order, and each reads
//! all of a byte's (or a lane's) sources before it writes that byte or lane; `flow` builds lists in
//! which no operation overwrites what a later byte still needs, by way of temporaries.

use crate::place::Place;

/// What an operation does with `count` bytes from `to`, `from` and `with` on. `lane` is a number of
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// `to[i] = nothing`.
    Clear,
    /// `to[i] = from[i]`.
    Copy,
    /// `to[i] = from[i] ∪ with[i]`.
    Union,
    /// Each byte of a lane of `to` is the union of that whole lane of `from` and `with`.
    Lanes,
    /// Within each lane, `to[i]` is the union of bytes `0..=i` of `from` and `with`: an addition.
    Carry,
    /// `to[0] = ∪ from[..count]`.
    Fold,
    /// `to[0] = to[0] ∪ from[..count]`.
    FoldMore,
    /// `to[i] = from[0]`.
    Fill,
    /// `to[i] = to[i] ∪ from[0]`.
    FillMore,
    /// `to[i] = to[i] ∪ from[i / lane / 8]`: bit *n* of a mask acts on lane *n*.
    Masked,
    /// `to[j] = ∪` of lanes `8j..8j+8` of `from`, which has `count` bytes: a bit for each lane.
    Bits,
    /// As `Bits`, of the last byte of each lane: the sign.
    Signs,
}

/// One operation. Plain data without pointers, so that lists of them can be kept anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Op {
    /// What is done.
    pub kind: Kind,
    /// Bytes of a lane, where `kind` speaks of lanes; else 1.
    pub lane: u8,
    /// How many bytes.
    pub count: u16,
    /// Where the first label goes.
    pub to: Place,
    /// Where the first label comes from.
    pub from: Place,
    /// The second source, of kinds that have two; otherwise as `from`.
    pub with: Place,
}

const _: () = assert!(size_of::<Op>() == 10);

impl Op {
    /// What a fresh list is filled with.
    pub(crate) const NOTHING: Op = Op {
        kind: Kind::Clear,
        lane: 1,
        count: 0,
        to: Place(0),
        from: Place(0),
        with: Place(0),
    };

    /// How many places from `to` on are written.
    #[must_use]
    pub fn written(&self) -> usize {
        let count = usize::from(self.count);
        match self.kind {
            Kind::Fold | Kind::FoldMore => 1,
            Kind::Bits | Kind::Signs => count.div_ceil(8 * usize::from(self.lane)),
            _ => count,
        }
    }

    /// How many places from `from` on are read.
    #[must_use]
    pub fn read(&self) -> usize {
        let count = usize::from(self.count);
        match self.kind {
            Kind::Clear => 0,
            Kind::Fill | Kind::FillMore => 1,
            Kind::Masked => count.div_ceil(8 * usize::from(self.lane)),
            _ => count,
        }
    }

    /// Whether `with` is a source of its own.
    #[must_use]
    pub fn has_second(&self) -> bool {
        matches!(self.kind, Kind::Union | Kind::Lanes | Kind::Carry)
    }

    /// Whether what `to` holds is a source, too.
    #[must_use]
    pub fn keeps(&self) -> bool {
        matches!(self.kind, Kind::FoldMore | Kind::FillMore | Kind::Masked)
    }
}

/// Where labels are kept. A label is a number for a set of sources; 0 is the empty set.
pub trait Shadow {
    /// The label of a register's byte, a flag or a temporary; never of memory or `st`.
    fn register(&self, place: Place) -> u32;
    /// Sets it.
    fn set_register(&mut self, place: Place, label: u32);
    /// The label of byte `byte` of memory operand `operand`.
    fn load(&mut self, operand: usize, byte: usize) -> u32;
    /// Sets it.
    fn store(&mut self, operand: usize, byte: usize, label: u32);
    /// A label for both.
    fn union(&mut self, a: u32, b: u32) -> u32;
    /// The top of the x87 stack (bits 11–13 of the status word) before the instruction. Only asked
    /// for instructions whose [`crate::Summary::x87`] says so.
    fn x87_top(&self) -> u8;
}

pub(crate) fn get<S: Shadow + ?Sized>(shadow: &mut S, place: Place) -> u32 {
    if place.is_memory() {
        let (operand, byte) = split(place);
        shadow.load(operand, byte)
    } else if place.is_st() {
        let top = shadow.x87_top();
        shadow.register(place.resolve(top))
    } else {
        shadow.register(place)
    }
}

pub(crate) fn set<S: Shadow + ?Sized>(shadow: &mut S, place: Place, label: u32) {
    if place.is_memory() {
        let (operand, byte) = split(place);
        shadow.store(operand, byte, label);
    } else if place.is_st() {
        let top = shadow.x87_top();
        shadow.set_register(place.resolve(top), label);
    } else {
        shadow.set_register(place, label);
    }
}

fn split(place: Place) -> (usize, usize) {
    let number = usize::from(place.0) - usize::from(Place::memory(0).0);
    (number >> 12, number & 0xFFF)
}

fn join<S: Shadow + ?Sized>(shadow: &mut S, a: u32, b: u32) -> u32 {
    if a == b || b == 0 {
        a
    } else if a == 0 {
        b
    } else {
        shadow.union(a, b)
    }
}

/// The union of adjacent places.
pub(crate) fn fold<S: Shadow + ?Sized>(shadow: &mut S, from: Place, count: usize) -> u32 {
    (0..count).fold(0, |label, byte| {
        let next = get(shadow, from.plus(byte));
        join(shadow, label, next)
    })
}

/// Runs operations in order.
pub fn run<S: Shadow + ?Sized>(ops: &[Op], shadow: &mut S) {
    for op in ops {
        step(op, shadow);
    }
}

fn step<S: Shadow + ?Sized>(op: &Op, shadow: &mut S) {
    let (count, lane) = (usize::from(op.count), usize::from(op.lane));
    let Op { to, from, with, .. } = *op;
    match op.kind {
        Kind::Clear => (0..count).for_each(|byte| set(shadow, to.plus(byte), 0)),
        Kind::Copy => {
            for byte in 0..count {
                let label = get(shadow, from.plus(byte));
                set(shadow, to.plus(byte), label);
            }
        }
        Kind::Union => {
            for byte in 0..count {
                let (a, b) = (get(shadow, from.plus(byte)), get(shadow, with.plus(byte)));
                let label = join(shadow, a, b);
                set(shadow, to.plus(byte), label);
            }
        }
        Kind::Lanes => {
            for first in (0..count).step_by(lane) {
                let bytes = lane.min(count - first);
                let a = fold(shadow, from.plus(first), bytes);
                let b = fold(shadow, with.plus(first), bytes);
                let label = join(shadow, a, b);
                (first..first + bytes).for_each(|byte| set(shadow, to.plus(byte), label));
            }
        }
        Kind::Carry => {
            let mut label = 0;
            for byte in 0..count {
                if byte % lane == 0 {
                    label = 0;
                }
                for source in [from, with] {
                    let next = get(shadow, source.plus(byte));
                    label = join(shadow, label, next);
                }
                set(shadow, to.plus(byte), label);
            }
        }
        Kind::Fold => {
            let label = fold(shadow, from, count);
            set(shadow, to, label);
        }
        Kind::FoldMore => {
            let (old, new) = (get(shadow, to), fold(shadow, from, count));
            let label = join(shadow, old, new);
            set(shadow, to, label);
        }
        Kind::Fill => {
            let label = get(shadow, from);
            (0..count).for_each(|byte| set(shadow, to.plus(byte), label));
        }
        Kind::FillMore => {
            let more = get(shadow, from);
            if more != 0 {
                for byte in 0..count {
                    let old = get(shadow, to.plus(byte));
                    let label = join(shadow, old, more);
                    set(shadow, to.plus(byte), label);
                }
            }
        }
        Kind::Masked => {
            for byte in 0..count {
                let more = get(shadow, from.plus(byte / lane / 8));
                let old = get(shadow, to.plus(byte));
                let label = join(shadow, old, more);
                set(shadow, to.plus(byte), label);
            }
        }
        Kind::Bits | Kind::Signs => {
            for (number, first) in (0..count).step_by(8 * lane).enumerate() {
                let bytes = (8 * lane).min(count - first);
                let label = if op.kind == Kind::Bits {
                    fold(shadow, from.plus(first), bytes)
                } else {
                    (lane - 1..bytes).step_by(lane).fold(0, |label, byte| {
                        let next = get(shadow, from.plus(first + byte));
                        join(shadow, label, next)
                    })
                };
                set(shadow, to.plus(number), label);
            }
        }
    }
}

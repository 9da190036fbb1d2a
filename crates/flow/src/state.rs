//! Saving and restoring of processor state (`fxsave`, `xsave` and their like).
//!
//! Every lazily bound call of a function goes through `xsavec` and `xrstor`, so labels must come
//! through them. Where the components lie depends on the processor, and which are meant on
//! registers and memory, so this is done when the instruction is executed.
//!
//! # Deviations
//!
//! The header has no labels: whether a component is in its initial state tells nothing that its
//! bytes do not tell, unless a program looks at the header itself. Components without places here
//! (protection keys and others) have no labels. For the pointers to the last x87 instruction see
//! the crate.

use crate::op::{Shadow, fold, get, set};
use crate::place::{Place, Span};
use brownout_insn::{StateArea, StateTransfer, XSAVE_HEADER_END, XsaveLayout};

/// What is known when the instruction is executed.
pub struct StateFacts<'a> {
    /// Where components lie in the standard format.
    pub layout: &'a XsaveLayout,
    /// `edx:eax`; without meaning for `fxsave` and `fxrstor`.
    pub requested: u64,
    /// `XSTATE_BV`, the first word of the header: after saving, before restoring.
    pub used: u64,
    /// `XCOMP_BV`, the second word of the header; 0 in the standard format.
    pub compaction: u64,
    /// The top of the x87 stack after restoring.
    pub top: u8,
}

const X87: u64 = 1;
const SSE: u64 = 2;
const AVX: u64 = 4;

/// Where labels go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Save,
    Restore,
    /// The component is in its initial state.
    Initialize,
}

fn move_labels<S: Shadow + ?Sized>(
    shadow: &mut S,
    direction: Direction,
    registers: Span,
    at: usize,
) {
    for byte in 0..registers.len() {
        let place = registers.place.plus(byte);
        match direction {
            Direction::Save => {
                let label = get(shadow, place);
                shadow.store(0, at + byte, label);
            }
            Direction::Restore => {
                let label = shadow.load(0, at + byte);
                set(shadow, place, label);
            }
            Direction::Initialize => set(shadow, place, 0),
        }
    }
}

/// Moves labels between the registers and memory operand 0, whose byte 0 is the beginning of the
/// area, as the instruction moves data.
pub fn transfer_state<S: Shadow + ?Sized>(
    transfer: &StateTransfer,
    facts: &StateFacts<'_>,
    shadow: &mut S,
) {
    let saves = transfer.effect.write;
    let legacy = transfer.area == StateArea::Fxsave;
    let (requested, used) = if legacy {
        (X87 | SSE, X87 | SSE)
    } else {
        (facts.requested & facts.layout.enabled, facts.used)
    };
    let direction = |component: u64| match (saves, used & component != 0) {
        // What is not in use is not written, or with constants: the labels stay.
        (true, false) => None,
        (true, true) => Some(Direction::Save),
        (false, true) => Some(Direction::Restore),
        (false, false) => Some(Direction::Initialize),
    };
    if requested & X87 != 0
        && let Some(direction) = direction(X87)
    {
        move_x87(shadow, direction, facts.top);
    }
    if requested & (SSE | AVX) != 0 {
        // `MXCSR` belongs to both, and is moved whether they are in use or not.
        move_mxcsr(shadow, saves);
    }
    if requested & SSE != 0
        && let Some(direction) = direction(SSE)
    {
        for number in 0..16 {
            let register = Span::new(Place::vector(number), 16);
            move_labels(shadow, direction, register, 160 + 16 * number);
        }
    }
    if legacy {
        return;
    }
    let compacted = match (transfer.area, saves) {
        (StateArea::Compacted, _) => Some(requested),
        (_, false) if facts.compaction >> 63 == 1 => Some(facts.compaction),
        _ => None,
    };
    let mut end = XSAVE_HEADER_END;
    for number in 2..facts.layout.components.len() {
        let component = facts.layout.components[number];
        let offset = match compacted {
            Some(set) if set >> number & 1 == 0 => component.offset,
            Some(_) => {
                let from = if component.aligned {
                    end.next_multiple_of(64)
                } else {
                    end
                };
                end = from + component.size;
                from
            }
            None => component.offset,
        };
        if requested >> number & 1 == 0 {
            continue;
        }
        let Some(direction) = direction(1 << number) else {
            continue;
        };
        move_component(shadow, direction, number, offset as usize);
    }
}

fn move_component<S: Shadow + ?Sized>(
    shadow: &mut S,
    direction: Direction,
    component: usize,
    at: usize,
) {
    let (count, bytes, place): (usize, usize, fn(usize) -> Place) = match component {
        2 => (16, 16, |number| Place::vector(number).plus(16)),
        5 => (8, 8, Place::opmask),
        6 => (16, 32, |number| Place::vector(number).plus(32)),
        7 => (16, 64, |number| Place::vector(16 + number)),
        _ => return,
    };
    for number in 0..count {
        let register = Span::new(place(number), bytes);
        move_labels(shadow, direction, register, at + number * bytes);
    }
}

fn union_of<S: Shadow + ?Sized>(shadow: &mut S, labels: &[u32]) -> u32 {
    labels.iter().fold(0, |all, label| match (all, *label) {
        (0, label) => label,
        (all, 0) => all,
        (all, label) => shadow.union(all, label),
    })
}

fn move_mxcsr<S: Shadow + ?Sized>(shadow: &mut S, saves: bool) {
    if saves {
        let control = shadow.register(Place::MXCSR_CONTROL);
        let status = shadow.register(Place::MXCSR_STATUS);
        let both = union_of(shadow, &[control, status]);
        for byte in 0..8 {
            let label = [both, control, control, control, 0, 0, 0, 0][byte];
            shadow.store(0, 24 + byte, label);
        }
    } else {
        let bytes = [24, 25, 26, 27].map(|byte| shadow.load(0, byte));
        let control = union_of(shadow, &bytes);
        shadow.set_register(Place::MXCSR_CONTROL, control);
        shadow.set_register(Place::MXCSR_STATUS, bytes[0]);
    }
}

fn move_x87<S: Shadow + ?Sized>(shadow: &mut S, direction: Direction, top: u8) {
    let units = [
        Place::X87_CONTROL,
        Place::X87_EXCEPTIONS,
        Place::X87_CONDITIONS,
        Place::X87_STACK,
    ];
    match direction {
        Direction::Save => {
            let [control, exceptions, conditions, stack] = units.map(|unit| shadow.register(unit));
            let high = union_of(shadow, &[exceptions, conditions, stack]);
            let head = [control, control, exceptions, high, stack, 0];
            (0..24).for_each(|byte| {
                shadow.store(0, byte, head.get(byte).copied().unwrap_or(0));
            });
        }
        Direction::Restore => {
            let head = [0, 1, 2, 3, 4].map(|byte| shadow.load(0, byte));
            let control = union_of(shadow, &head[..2]);
            let exceptions = union_of(shadow, &head[..4]);
            let stack = union_of(shadow, &head[3..]);
            shadow.set_register(Place::X87_CONTROL, control);
            shadow.set_register(Place::X87_EXCEPTIONS, exceptions);
            shadow.set_register(Place::X87_CONDITIONS, head[3]);
            shadow.set_register(Place::X87_STACK, stack);
        }
        Direction::Initialize => units.iter().for_each(|unit| shadow.set_register(*unit, 0)),
    }
    // They are restored relative to the new top.
    let resolved = match direction {
        Direction::Save => shadow.x87_top(),
        _ => top,
    };
    for number in 0..8 {
        let register = Span::new(Place::st(number).resolve(resolved), 10);
        move_labels(shadow, direction, register, 32 + 16 * number);
        if direction == Direction::Save {
            (10..16).for_each(|byte| shadow.store(0, 32 + 16 * number + byte, 0));
        }
    }
    if direction == Direction::Restore {
        // An empty register holds bits, too, and they move.
        let stack = fold(shadow, Place::X87_STACK, 1);
        for number in 0..80 {
            let place = Place::mmx(0).plus(number);
            let old = shadow.register(place);
            let label = union_of(shadow, &[old, stack]);
            shadow.set_register(place, label);
        }
    }
}

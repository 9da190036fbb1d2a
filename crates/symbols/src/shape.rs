//! What an instruction stores to, in the programmer's words: `root->count`, `map->buckets[i].key`.
//!
//! **Purpose.** `pool+0x3c0560` tells nobody which member was lost. The memory operand of an
//! instruction is registers and numbers; debug information says which variable each of these
//! registers holds, and what the bytes are that it points to.
//!
//! ```text
//!  mov [rax+rdx*8+16], rcx ─▶ rax + 8·rdx + 16 ─▶ walked back: load(rbp-24) + 8·load(rbp-28) + 16 ─▶ map + 8·i + 16 ─▶ map->slots[i]
//! ```
//!
//! **Guarantee.** A name is said only if it follows: every register and stack slot that the address
//! was made of is unchanged at the instruction, and is the home of the variable there; walking back
//! stops at calls, at places that something else may jump to, and, if memory was read, at whatever
//! may write memory; the member has exactly the size of the access, or all members that it covers
//! are named. In any other case there is no name.
//!
//! **Deviations.** An address is all that machine code has, so that of two arrays of equal elements
//! that lie side by side in a structure, `second[i - 4]` looks like `first[i]`; and what is stored
//! through a pointer that was cast is named by the type of the variable. An index that is not known
//! is written `…`.

mod address;
mod copies;
mod types;
mod variables;

use crate::elf::Unit;
use address::{Code, DEPTH_MAX, Leaf, Linear, Registers, Walk};
use copies::Frame;
use types::{Shape, Step, Types};
pub(crate) use variables::UnitIndex;
use variables::{Home, Variable};

/// DWARF's number of it.
const STACK_POINTER: u8 = 7;

/// What an instruction accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accessed {
    /// How many bytes.
    pub size: u64,
    /// What they are called.
    pub name: String,
}

/// What the access of the instruction at `pc` is called. `code` has the bytes at an address; `cfa`
/// says where the call frame lies at `pc`.
pub(crate) fn accessed<'data>(
    unit: Unit<'_, 'data>,
    index: &UnitIndex,
    pc: u64,
    code: impl Fn(u64, u64) -> Option<&'data [u8]>,
    cfa: impl FnOnce() -> Option<(u8, i64)>,
) -> Option<Accessed> {
    let function = index.function(pc)?;
    let ranges = variables::ranges(unit, function)?;
    let code = Code::decode(&ranges, code)?;
    let (mut walk, size) = Walk::begin(&code, pc)?;
    let mut variables = variables::at(unit, function, pc, cfa)?;
    variables.extend(index.globals(unit));
    let mut names = Names {
        variables,
        types: Types::new(unit),
        arrow: index.arrow(),
        frame: Frame::of(&code),
        at: walk.at(),
    };
    // The first name that is complete; else the first with an index that is not known.
    let mut partial = None;
    loop {
        if let Some(found) = names.pointed(walk.address(), walk.changed(), size, 0) {
            let accessed = Accessed {
                size,
                name: found.text,
            };
            match found.is_complete {
                true => return Some(accessed),
                false => partial = partial.or(Some(accessed)),
            }
        }
        if !walk.back() {
            return partial;
        }
        names.at = walk.at();
    }
}

/// What a value or some memory is called.
struct Named {
    text: String,
    shape: Shape,
    /// No index is unknown.
    is_complete: bool,
}

struct Names<'u, 'data, 'c> {
    variables: Vec<Variable>,
    types: Types<'u, 'data>,
    /// How this language writes a member of what a pointer points to.
    arrow: &'static str,
    /// What may be a copy of a variable.
    frame: Option<Frame<'c>>,
    /// Registers are as they were before this instruction.
    at: usize,
}

impl Names<'_, '_, '_> {
    /// The memory at an address that comes from one pointer.
    fn pointed(
        &self,
        address: &Linear,
        changed: Registers,
        size: u64,
        depth: usize,
    ) -> Option<Named> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut bases = (0..address.terms.len()).filter_map(|at| {
            let (coefficient, leaf) = &address.terms[at];
            let (value, moved) = (*coefficient == 1)
                .then(|| self.value(leaf, changed, depth))
                .flatten()?;
            let target = self.types.target(value.shape)?;
            Some((at, value, target, moved))
        });
        let (at, base, target, moved) = bases.next()?;
        if bases.next().is_some() {
            return None;
        }
        let others = address.terms.iter().enumerate();
        let indices = others
            .filter(|(other, _)| *other != at)
            .map(|(_, (coefficient, leaf))| (*coefficient, self.index(leaf, changed, depth)))
            .collect::<Vec<_>>();
        let offset = address.constant.checked_sub(moved)?;
        let path = self.types.behind(target, offset, &indices, size)?;
        Some(self.told(base, path.steps, path.shape, self.arrow))
    }

    fn told(&self, base: Named, steps: Vec<Step>, shape: Shape, arrow: &str) -> Named {
        let mut text = base.text;
        let mut is_complete = base.is_complete;
        if steps.is_empty() && !arrow.is_empty() {
            text.insert(0, '*');
        }
        let mut joint = arrow;
        for step in steps {
            match step {
                Step::Member(name) => {
                    text += if joint.is_empty() { "." } else { joint };
                    text += &name;
                }
                Step::Index(Some(index)) => text += &format!("[{index}]"),
                Step::Index(None) => {
                    text += "[…]";
                    is_complete = false;
                }
            }
            joint = ".";
        }
        Named {
            text,
            shape,
            is_complete,
        }
    }

    /// What a leaf is the value of, and how much the leaf is larger than that.
    fn value(&self, leaf: &Leaf, changed: Registers, depth: usize) -> Option<(Named, i64)> {
        match leaf {
            Leaf::Register(register, width) => {
                let put = |home| {
                    let frame = self.frame.as_ref();
                    frame.is_some_and(|frame| frame.is_put(self.at, *register, *width, home))
                };
                if let Some(named) = self.copied(changed, u64::from(*width), put) {
                    return Some((named, 0));
                }
                if changed & 1 << register != 0 {
                    return None;
                }
                // Scopes that lie further in come later.
                self.variables.iter().rev().find_map(|variable| {
                    let Home::Register(home, more) = variable.home else {
                        return None;
                    };
                    let shape = self.types.shape(variable.ty)?;
                    let fits = home == *register && self.types.size(shape)? == u64::from(*width);
                    fits.then(|| (variable.named(shape), more.wrapping_neg()))
                })
            }
            Leaf::Loaded(address, width) => {
                let width = u64::from(*width);
                let held = self.held(address, changed, width);
                let held = held.or_else(|| {
                    let frame = self.frame.as_ref()?;
                    let [(1, Leaf::Register(STACK_POINTER, 8))] = address.terms[..] else {
                        return None;
                    };
                    self.copied(changed, width, |home| {
                        frame.are_copies(address.constant, home, width as i64)
                    })
                });
                let named = held.or_else(|| self.pointed(address, changed, width, depth + 1))?;
                Some((named, 0))
            }
        }
    }

    /// The variable, or the part of one, that lies at an address.
    fn held(&self, address: &Linear, changed: Registers, width: u64) -> Option<Named> {
        let frame = match &address.terms[..] {
            [] => None,
            [(1, Leaf::Register(register, 8))] if changed & 1 << register == 0 => Some(*register),
            _ => return None,
        };
        self.variables.iter().rev().find_map(|variable| {
            let start = match (variable.home, frame) {
                (Home::Memory(register, offset), Some(frame)) if register == frame => offset,
                (Home::Global(address), None) => address as i64,
                _ => return None,
            };
            let shape = self.types.shape(variable.ty)?;
            let offset = address.constant.checked_sub(start)?;
            let path = self.types.within(shape, offset, &[], width)?;
            Some(self.told(variable.named(shape), path.steps, path.shape, ""))
        })
    }

    /// The one variable in the frame whose home has the same as what is asked about.
    fn copied(
        &self,
        changed: Registers,
        width: u64,
        is_copy: impl Fn(i64) -> bool,
    ) -> Option<Named> {
        if changed & 1 << STACK_POINTER != 0 {
            return None;
        }
        let mut found = self.variables.iter().filter_map(|variable| {
            let Home::Memory(STACK_POINTER, home) = variable.home else {
                return None;
            };
            let shape = self.types.shape(variable.ty)?;
            let fits = self.types.size(shape)? == width && is_copy(home);
            fits.then(|| variable.named(shape))
        });
        let named = found.next()?;
        // Two variables that are given the same value.
        found.next().is_none().then_some(named)
    }

    /// What stands in brackets.
    fn index(&self, leaf: &Leaf, changed: Registers, depth: usize) -> Option<String> {
        let (named, moved) = self.value(leaf, changed, depth)?;
        let is_plain = named.is_complete && moved == 0 && self.types.is_number(named.shape);
        is_plain.then_some(named.text)
    }
}

impl Variable {
    fn named(&self, shape: Shape) -> Named {
        Named {
            text: self.name.clone(),
            shape,
            is_complete: true,
        }
    }
}

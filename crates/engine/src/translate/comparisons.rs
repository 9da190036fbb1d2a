//! What the program compares: the operands of `cmp`, and what the first two arguments of a call
//! point to.
//!
//! Whoever searches for inputs looks for one of the two in the input, and puts the other in its
//! place. Functions such as `memcmp` and `strcmp` are reached in many ways and have many forms,
//! some of which no symbol names; so each call counts whose first two arguments point to memory
//! that can be read, whatever it calls.
//!
//! The thread leaves the cache at each of these instructions and comes back to it. That is slow,
//! and meant for one run in hundreds. An instruction that compares ever other values is noted a few
//! times only; equal operands say nothing and are not noted at all.

use super::builder::{Builder, Decoded, Form, Pass};
use super::interpret::{Goes, Interpreter};
use crate::address::ProgramAddr;
use crate::copy::read_memory;
use crate::machine::Machine;
use crate::pm::reach;
use alloc::boxed::Box;
use brownout_abi::{COMPARED_LEN, COMPARISONS_MAX};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// See the module's header.
pub struct Comparisons;

/// How often one instruction is noted.
const NOTED_MAX: u32 = 16;

/// An instruction that compares. Lives for ever: code refers to it.
struct Comparing {
    name: u64,
    noted: AtomicU32,
    /// A number for what was noted last.
    last: AtomicU64,
}

impl Pass for Comparisons {
    fn is_wanted(&self, mode: &crate::mode::Mode) -> bool {
        mode.comparisons
    }

    fn before(&self, b: &mut Builder, d: &Decoded) {
        if d.form == Form::Valid && compares(&d.insn) {
            let comparing = Box::leak(Box::new(Comparing {
                name: b.name(d.pc()),
                noted: AtomicU32::new(0),
                last: AtomicU64::new(0),
            }));
            b.interpreted(&d.insn, comparing);
        }
    }
}

fn compares(insn: &Instruction) -> bool {
    match insn.mnemonic() {
        // A segment's base takes a system call to find out, and what lies there is seldom an input.
        Mnemonic::Cmp => !matches!(insn.segment_prefix(), Register::FS | Register::GS),
        _ => matches!(
            insn.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ),
    }
}

/// A side of a comparison.
type Bytes = [u8; COMPARED_LEN];

impl Interpreter for Comparing {
    fn execute(&self, machine: &mut Machine, insn: &Instruction) -> Goes {
        if self.noted.load(Ordering::Relaxed) < NOTED_MAX {
            let sides = match insn.mnemonic() {
                Mnemonic::Cmp => operands(machine, insn),
                _ => arguments(machine),
            };
            if let Some((len, left, right)) = sides {
                self.note(len, &left, &right);
            }
        }
        Goes::Here
    }
}

impl Comparing {
    fn note(&self, len: usize, left: &Bytes, right: &Bytes) {
        if left[..len] == right[..len] {
            return;
        }
        let number = left
            .iter()
            .chain(right)
            .fold(0u64, |hash, byte| hash.rotate_left(5) ^ u64::from(*byte))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if self.last.swap(number, Ordering::Relaxed) == number {
            return;
        }
        let table = &crate::control::control().comparisons;
        let at = table.count.fetch_add(1, Ordering::Relaxed) as usize;
        // A full table stays full; the count says by how much.
        if at >= COMPARISONS_MAX {
            return;
        }
        self.noted.fetch_add(1, Ordering::Relaxed);
        let entry = &table.entries[at];
        for (to, from) in [(&entry.left, left), (&entry.right, right)] {
            let (words, _) = from.as_chunks::<8>();
            for (to, word) in to.iter().zip(words) {
                to.store(u64::from_le_bytes(*word), Ordering::Relaxed);
            }
        }
        entry.name.store(self.name, Ordering::Relaxed);
        // Last: an entry without a length is none.
        entry.len.store(len as u64, Ordering::Release);
    }
}

/// Both operands of `cmp`.
fn operands(machine: &Machine, insn: &Instruction) -> Option<(usize, Bytes, Bytes)> {
    let register = (0..2).find(|i| insn.op_kind(*i) == OpKind::Register);
    let len = match register {
        Some(i) => insn.op_register(i).size(),
        None => insn.memory_size().size(),
    };
    let side = |i: u32| -> Option<Bytes> {
        let mut bytes = [0; COMPARED_LEN];
        let value = match insn.op_kind(i) {
            OpKind::Register => value_of(machine, insn.op_register(i)),
            OpKind::Memory => {
                let from = reach(ProgramAddr::new(machine.address(insn)));
                return read_memory(from, &mut bytes[..len]).then_some(bytes);
            }
            _ => insn.immediate(i),
        };
        bytes[..len].copy_from_slice(&value.to_le_bytes()[..len]);
        Some(bytes)
    };
    if !(1..=8).contains(&len) {
        return None;
    }
    Some((len, side(0)?, side(1)?))
}

fn value_of(machine: &Machine, register: Register) -> u64 {
    let full = machine.gpr(register.full_register().number());
    match register {
        Register::AH | Register::CH | Register::DH | Register::BH => full >> 8,
        _ => full,
    }
}

/// What the first two arguments point to. Not all of it need be compared.
fn arguments(machine: &Machine) -> Option<(usize, Bytes, Bytes)> {
    const RSI: usize = 6;
    const RDI: usize = 7;
    /// What is below is no memory of anybody's.
    const LOWEST: u64 = 0x1_0000;
    let pointers = [machine.gpr(RDI), machine.gpr(RSI)];
    if pointers[0] == pointers[1] || pointers.iter().any(|p| *p < LOWEST || *p >> 47 != 0) {
        return None;
    }
    let mut sides = [[0; COMPARED_LEN]; 2];
    let mut len = COMPARED_LEN;
    for (pointer, side) in pointers.iter().zip(&mut sides) {
        // Not beyond the page: the next one need not exist.
        let here = (4096 - *pointer as usize % 4096).min(COMPARED_LEN);
        if !read_memory(reach(ProgramAddr::new(*pointer)), &mut side[..here]) {
            return None;
        }
        len = len.min(here);
    }
    Some((len, sides[0], sides[1]))
}

//! Instructions that Rust code executes instead of the processor.
//!
//! ```text
//!  emitted:  … │ leave(INTERPRET) │ next instruction …
//!                     │                ▲
//!                     ▼                │ or anywhere else
//!              Interpreter::execute(Machine) ─▶ Goes
//! ```
//! The thread leaves the cache with all its registers saved; the interpreter finds and changes them
//! in a [`Machine`], and says where to go on. It may execute as many instructions as it likes
//! before it does. Signals wait meanwhile, as for all engine code. What it does to memory is its
//! own business: accesses to tracked memory are for `pm` to make.

use super::builder::{Builder, Decoded, Needs, Pass, Placed};
use crate::address::{CacheAddr, ProgramAddr};
use crate::block::Saved;
use crate::exit;
use crate::machine::Machine;
use alloc::boxed::Box;
use iced_x86::{Code, FlowControl, Instruction, OpKind, Register};

/// Executes instructions for the program.
pub trait Interpreter: Sync {
    /// Executes `insn`, and perhaps more.
    fn execute(&self, machine: &mut Machine, insn: &Instruction) -> Goes;
}

/// Where the program goes on.
pub enum Goes {
    /// Behind the instruction.
    On,
    /// With the instruction itself, which was only looked at: its code is behind that of the look.
    Here,
    /// There.
    To(ProgramAddr),
}

/// An instruction in the cache that is interpreted. Lives for ever: code refers to it.
pub struct Interpreted {
    pub insn: Instruction,
    /// Code of what comes next: the next instruction, or this one if it is only looked at.
    pub next_code: CacheAddr,
    pub by: &'static dyn Interpreter,
}

impl Builder<'_> {
    /// Has `insn` executed by `by` whenever the program comes there.
    pub fn interpreted(&mut self, insn: &Instruction, by: &'static dyn Interpreter) {
        self.begin(ProgramAddr::of(insn), Saved::NONE);
        let it = Box::leak(Box::new(Interpreted {
            insn: *insn,
            next_code: CacheAddr::NONE,
            by,
        }));
        self.special(
            exit::INTERPRET,
            ProgramAddr::of(insn),
            &raw const *it as u64,
        );
        it.next_code = self.hot.at;
    }
}

/// Interprets a few common instructions between registers, so that the way there and back is
/// exercised by every program, and its cost can be measured; and puts code that changes registers
/// and flags in front of some others. For tests.
pub struct Exercise;

const TWO_REGISTERS_AND_FLAGS: Needs = Needs {
    registers: 2,
    flags: true,
};

impl Pass for Exercise {
    fn is_wanted(&self, mode: &crate::mode::Mode) -> bool {
        mode.interpret
    }

    fn before(&self, b: &mut Builder, d: &Decoded) {
        // Not in front of each: also what is left as it is must go on working.
        if d.pc().get().is_multiple_of(3) {
            b.begin(d.pc(), Saved::NONE);
            b.with_scratch(d.pc(), TWO_REGISTERS_AND_FLAGS, |b, registers| {
                for register in registers {
                    b.hot.xor_self(register);
                }
            });
        }
    }

    fn instead(&self, b: &mut Builder, d: &Decoded) -> Placed {
        if !is_exercised(&d.insn) {
            return Placed::Nothing;
        }
        b.interpreted(&d.insn, &Exercise);
        match d.insn.flow_control() {
            FlowControl::Next => Placed::Instead(d.behind()),
            _ => Placed::Last,
        }
    }
}

fn is_exercised(insn: &Instruction) -> bool {
    use Code::*;
    match insn.code() {
        Lea_r64_m => {
            insn.segment_prefix() == Register::None
                && insn.memory_base().size() != 4
                && insn.memory_index().size() != 4
        }
        Jmp_rel8_64 | Jmp_rel32_64 | Fnstsw_AX | Fnclex | VEX_Kmovq_kr_r64 | VEX_Kmovq_r64_kr => {
            true
        }
        Mov_r64_rm64
        | Mov_rm64_r64
        | Mov_r32_rm32
        | Mov_rm32_r32
        | Add_rm64_r64
        | Adc_rm64_r64
        | Not_rm64
        | Movdqa_xmm_xmmm128
        | Movaps_xmm_xmmm128
        | VEX_Vmovdqa_ymm_ymmm256
        | VEX_Vmovdqa_xmm_xmmm128
        | VEX_Vmovaps_ymm_ymmm256 => {
            insn.op_kinds().all(|k| k == OpKind::Register) && !insn.has_lock_prefix()
        }
        _ => false,
    }
}

impl Interpreter for Exercise {
    fn execute(&self, machine: &mut Machine, insn: &Instruction) -> Goes {
        use Code::*;
        let to = insn.op0_register().number();
        let from = insn.op1_register().number();
        match insn.code() {
            Lea_r64_m => {
                let value = insn.virtual_address(1, 0, |r, _, _| match r {
                    r if r.is_gpr() => Some(machine.gpr(r.number())),
                    _ => Some(0),
                });
                machine.set_gpr(to, value.unwrap_or(0));
            }
            Mov_r64_rm64 | Mov_rm64_r64 => machine.set_gpr(to, machine.gpr(from)),
            Mov_r32_rm32 | Mov_rm32_r32 => machine.set_gpr(to, machine.gpr(from) as u32 as u64),
            Not_rm64 => machine.set_gpr(to, !machine.gpr(to)),
            Add_rm64_r64 | Adc_rm64_r64 => {
                let carry = insn.code() == Adc_rm64_r64 && machine.flags() & 1 != 0;
                let (a, b) = (machine.gpr(to), machine.gpr(from));
                machine.set_gpr(to, a.wrapping_add(b).wrapping_add(carry.into()));
                machine.set_arithmetic_flags(flags_of_sum(a, b, carry));
            }
            Jmp_rel8_64 | Jmp_rel32_64 => return Goes::To(ProgramAddr::target_of(insn)),
            VEX_Kmovq_kr_r64 => machine.set_mask(to, machine.gpr(from)),
            VEX_Kmovq_r64_kr => {
                let value = machine.mask(from);
                machine.set_gpr(to, value);
            }
            Fnstsw_AX => {
                let status = u16::from_le_bytes([machine.legacy()[2], machine.legacy()[3]]);
                machine.set_gpr(0, machine.gpr(0) & !0xFFFF | status as u64);
            }
            // The exceptions, the summary and the busy bit.
            Fnclex => machine.change_legacy(|legacy| {
                legacy[2] = 0;
                legacy[3] &= 0x7F;
            }),
            Movdqa_xmm_xmmm128 | Movaps_xmm_xmmm128 => {
                let mut value = machine.vector(to);
                value[..2].copy_from_slice(&machine.vector(from)[..2]);
                machine.set_vector(to, value);
            }
            VEX_Vmovdqa_ymm_ymmm256 | VEX_Vmovaps_ymm_ymmm256 => {
                let [a, b, c, d, ..] = machine.vector(from);
                machine.set_vector(to, [a, b, c, d, 0, 0, 0, 0]);
            }
            _ => {
                let [a, b, ..] = machine.vector(from);
                machine.set_vector(to, [a, b, 0, 0, 0, 0, 0, 0]);
            }
        }
        Goes::On
    }
}

/// The arithmetic flags behind `add a, b`, or `adc` with that carry.
fn flags_of_sum(a: u64, b: u64, carry: bool) -> u64 {
    let whole = a as u128 + b as u128 + carry as u128;
    let (sum, carry) = (whole as u64, whole >> 64 != 0);
    let parity = (sum as u8).count_ones().is_multiple_of(2);
    let adjust = (a ^ b ^ sum) & 0x10 != 0;
    let overflow = ((a ^ sum) & (b ^ sum)) >> 63 != 0;
    let at = [carry, parity, adjust, sum == 0, sum >> 63 != 0, overflow].into_iter();
    at.zip([0, 2, 4, 6, 7, 11])
        .fold(0, |flags, (on, bit)| flags | (on as u64) << bit)
}

#[cfg(test)]
mod tests {
    use super::flags_of_sum;
    use core::arch::asm;

    #[test]
    fn flags_are_those_of_the_processor() {
        let values = [
            0,
            1,
            7,
            8,
            0xf,
            0x7fff_ffff_ffff_ffff,
            1 << 63,
            u64::MAX,
            0x55,
        ];
        for a in values {
            for b in values {
                let mut flags: u64;
                // SAFETY: changes flags and a register; pushes and pops.
                unsafe {
                    asm!("add {a}, {b}", "pushfq", "pop {f}", a = inout(reg) a => _, b = in(reg) b, f = out(reg) flags)
                };
                assert_eq!(flags_of_sum(a, b, false), flags & 0x8D5, "{a:#x} + {b:#x}");
                // SAFETY: as above.
                unsafe {
                    asm!("stc", "adc {a}, {b}", "pushfq", "pop {f}", a = inout(reg) a => _, b = in(reg) b, f = out(reg) flags)
                };
                assert_eq!(
                    flags_of_sum(a, b, true),
                    flags & 0x8D5,
                    "{a:#x} + {b:#x} + 1"
                );
            }
        }
    }
}

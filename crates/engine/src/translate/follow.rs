//! Tells the tool which instructions are executed, and where their operands are (`follow.rs` has
//! the rest).
//!
//! ```text
//!  head of a block:    buffer full? → leave, empty it;  word HEAD with its number
//!  memory operand:     word OPERAND with its address, by `lea`;  word STACK with rsp
//!  anything else:      leave; word DETAIL, and what Rust code finds out
//!  x87 instruction:    word X87 with the status word
//!  taken branch:       word EXIT
//! ```
//! All of it stands in front of the instruction, and in front of what other passes put there: an
//! announced instruction counts as executed only when a later word comes, so one that faults, or
//! loses its turn first, is announced in vain or too early, which does no harm.
//!
//! The words behind DETAIL:
//!
//! | instruction | words |
//! |---|---|
//! | string | `rsi`, `rdi`, `rcx`, RFLAGS; a repeated comparison has a word REST behind it |
//! | gather, scatter | the address of each element, 0 if its mask bit is clear |
//! | `tzcnt`, `bsf` of a register | what it holds |
//! | `xsave`, `xrstor` and their like | address, components asked for, components in use, format, x87 top in what is saved or restored |
//! | others | address; of `movdir64b`, that of the operand in memory, then that in the register |
//!
//! An operand in `fs` is told without the base, which is the same for all words of a record;
//! addresses behind DETAIL have it.
//!
//! Deviations: `xsave` is said to save all components that it is asked for, though it leaves out
//! those in their initial state; these have no labels, unless something with a label was cleared by
//! `vzeroall` and its like. What 32-bit addresses of elements wrap to is not looked at.

use super::builder::{Builder, Decoded, Edge, Form, Needs, Pass};
use super::interpret::{Goes, Interpreted, Interpreter};
use super::site::address_code;
use crate::address::ProgramAddr;
use crate::block::Saved;
use crate::context::{FOLLOW_FULL_SHIFT, FOLLOW_OFFSET, off, slot};
use crate::emit::{Emitter, RCX, RDX};
use crate::exit;
use crate::follow;
use crate::machine::Machine;
use alloc::boxed::Box;
use alloc::vec::Vec;
use brownout_abi::follow::{DETAIL, EXIT, HEAD, OPERAND, REST, STACK, X87, word};
use brownout_insn::{Mask, MemoryForm, Repeat, StateArea, StateTransfer, VectorIndexed, classify};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// See the module's header.
pub struct Follow;

const ONE_REGISTER: Needs = Needs {
    registers: 1,
    flags: false,
};
const TWO_REGISTERS: Needs = Needs {
    registers: 2,
    flags: false,
};

impl Pass for Follow {
    fn is_wanted(&self, mode: &crate::mode::Mode) -> bool {
        mode.follow
    }

    fn before(&self, b: &mut Builder, d: &Decoded) {
        let pc = d.pc();
        let offset = (pc - b.request.pc) as u16;
        let step = match &mut b.followed {
            Some(block) => {
                block.steps.push(offset);
                block.steps.len() - 1
            }
            None => {
                let block = follow::Block::new(offset);
                let number = block.number;
                b.followed = Some(block);
                b.head(pc, number);
                0
            }
        };
        if d.form == Form::Valid {
            b.announce(d, step);
        }
    }

    fn after(&self, b: &mut Builder, d: &Decoded) {
        let step = b.followed.as_ref().map_or(0, |block| block.steps.len() - 1);
        if d.form == Form::Valid && is_repeated_comparison(&d.insn) {
            b.with_scratch(d.pc(), TWO_REGISTERS, |b, _| b.push_rcx(REST, step));
        }
    }

    fn edge(&self, b: &mut Builder, edge: Edge) {
        let Some(block) = &b.followed else {
            return;
        };
        let step = block.steps.len() - 1;
        // Only what leaves the block in the middle.
        if edge.is_choice && b.out_of_line {
            b.with_scratch(edge.from, ONE_REGISTER, |b, _| {
                b.hot.reload(RCX, off::FOLLOW);
                b.hot.word_at_rcx(word(EXIT, step, 0));
                b.hot.add_rcx(8);
                b.hot.spill(off::FOLLOW, RCX);
            });
        }
    }
}

fn is_repeated_comparison(insn: &Instruction) -> bool {
    match classify(insn) {
        MemoryForm::String(string) => {
            matches!(string.repeat, Repeat::WhileEqual | Repeat::WhileNotEqual)
        }
        _ => false,
    }
}

/// Whether it looks for the first bit that is set in a register: what lies behind that makes no
/// difference.
fn finds_first_bit(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Tzcnt | Mnemonic::Bsf)
        && insn.op1_kind() == OpKind::Register
}

/// Whether it may mean registers that are counted from the top of the x87 stack, or move that.
fn is_x87(d: &Decoded) -> bool {
    let is_prefix = |byte: &u8| {
        matches!(
            byte,
            0x26 | 0x2E | 0x36 | 0x3E | 0x40..=0x4F | 0x64..=0x67 | 0xF0 | 0xF2 | 0xF3
        )
    };
    let opcode = d.raw.iter().copied().find(|byte| !is_prefix(byte));
    matches!(opcode, Some(0xD8..=0xDF))
}

impl Emitter {
    /// `mov qword gs:[rcx + buffer], value`
    fn word_at_rcx(&mut self, value: u64) {
        for (at, half) in [(0, value as u32), (4, (value >> 32) as u32)] {
            self.bytes(&[0x65, 0xC7, 0x81]);
            self.u32(FOLLOW_OFFSET + at);
            self.u32(half);
        }
    }

    /// `mov gs:[rdx + buffer], rcx; mov word gs:[rdx + buffer + 6], tag`
    fn tagged_rcx_at_rdx(&mut self, kind: u8, step: usize) {
        self.bytes(&[0x65, 0x48, 0x89, 0x8A]);
        self.u32(FOLLOW_OFFSET);
        self.tag_at_rdx(kind, step);
    }

    fn tag_at_rdx(&mut self, kind: u8, step: usize) {
        self.bytes(&[0x65, 0x66, 0xC7, 0x82]);
        self.u32(FOLLOW_OFFSET + 6);
        self.bytes(&[step as u8, kind]);
    }

    /// `fnstsw gs:[rdx + buffer]`
    fn x87_status_at_rdx(&mut self) {
        self.bytes(&[0x65, 0xDD, 0xBA]);
        self.u32(FOLLOW_OFFSET);
    }
}

impl Builder<'_> {
    /// The block is entered.
    fn head(&mut self, pc: ProgramAddr, number: u32) {
        self.begin(pc, Saved::NONE);
        let start = self.hot.at;
        let it = Box::leak(Box::new(Interpreted {
            insn: {
                let mut insn = Instruction::default();
                insn.set_ip(pc.get());
                insn
            },
            // It is looked at again, and there is room then.
            next_code: start,
            by: &Full,
        }));
        let payload = &raw const *it as u64;
        self.with_scratch(pc, ONE_REGISTER, |b, _| {
            b.hot.reload(RCX, off::FOLLOW);
            b.hot.rorx_rcx(RCX, FOLLOW_FULL_SHIFT);
            b.hot.bytes(&[0x0F, 0xB6, 0xC9]); // movzx ecx, cl
            b.hot.jrcxz(0);
            let not_full = b.hot.at;
            b.hot.reload(RCX, off::spill(slot::PASS));
            b.special(exit::INTERPRET, pc, payload);
            b.hot.jrcxz_goes_here(not_full);
            b.hot.reload(RCX, off::FOLLOW);
            b.hot.word_at_rcx(word(HEAD, 0, number.into()));
            b.hot.add_rcx(8);
            b.hot.spill(off::FOLLOW, RCX);
        });
    }

    /// Tells where the instruction's operands are.
    fn announce(&mut self, d: &Decoded, step: usize) {
        let insn = &d.insn;
        let pc = d.pc();
        if is_x87(d) {
            self.begin(pc, Saved::NONE);
            self.with_scratch(pc, TWO_REGISTERS, |b, _| {
                b.hot.reload(RDX, off::FOLLOW);
                b.hot.x87_status_at_rdx();
                b.hot.tag_at_rdx(X87, step);
                b.advance();
            });
        }
        if matches!(insn.mnemonic(), Mnemonic::Wrfsbase) || finds_first_bit(insn) {
            return self.told_by_rust(insn, step);
        }
        match classify(insn) {
            MemoryForm::None | MemoryForm::Flush(_) | MemoryForm::Unsupported(_) => {}
            MemoryForm::StackImplicit => self.stack(insn, step),
            MemoryForm::Explicit { .. } | MemoryForm::Masked(_) => {
                let is_simple = insn.mnemonic() != Mnemonic::Xlatb
                    && !(insn.mnemonic() == Mnemonic::Pop && insn.memory_base() == Register::RSP);
                match address_code(insn, RCX).filter(|_| is_simple) {
                    Some(code) => {
                        self.begin(pc, Saved::NONE);
                        self.with_scratch(pc, TWO_REGISTERS, |b, _| {
                            b.hot.bytes(&code);
                            b.push_rcx(OPERAND, step);
                        });
                    }
                    None => self.told_by_rust(insn, step),
                }
                if insn.is_stack_instruction() {
                    self.stack(insn, step);
                }
            }
            _ => self.told_by_rust(insn, step),
        }
    }

    /// The stack pointer, or for `leave` the frame pointer.
    fn stack(&mut self, insn: &Instruction, step: usize) {
        let pc = ProgramAddr::of(insn);
        self.begin(pc, Saved::NONE);
        self.with_scratch(pc, TWO_REGISTERS, |b, _| {
            match insn.mnemonic() {
                Mnemonic::Leave => b.hot.bytes(&[0x48, 0x89, 0xE9]), // mov rcx, rbp
                _ => b.hot.bytes(&[0x48, 0x89, 0xE1]),               // mov rcx, rsp
            }
            b.push_rcx(STACK, step);
        });
    }

    fn push_rcx(&mut self, kind: u8, step: usize) {
        self.hot.reload(RDX, off::FOLLOW);
        self.hot.tagged_rcx_at_rdx(kind, step);
        self.advance();
    }

    /// rdx is the number of bytes in use; now there are eight more.
    fn advance(&mut self) {
        self.hot.lea_sum(RDX, RDX, None, 8);
        self.hot.spill(off::FOLLOW, RDX);
    }

    fn told_by_rust(&mut self, insn: &Instruction, step: usize) {
        let by = Box::leak(Box::new(Details { step }));
        self.interpreted(insn, by);
    }
}

/// The buffer is full.
struct Full;

impl Interpreter for Full {
    fn execute(&self, machine: &mut Machine, _: &Instruction) -> Goes {
        let ctx = machine.thread();
        // The head comes after that: this is still the block before.
        follow::ended(ctx);
        follow::flush(ctx);
        Goes::Here
    }
}

/// An instruction whose operands take more than a `lea`.
struct Details {
    step: usize,
}

impl Interpreter for Details {
    fn execute(&self, machine: &mut Machine, insn: &Instruction) -> Goes {
        const RAX_NUMBER: usize = 0;
        const RCX_NUMBER: usize = 1;
        const RDI: usize = 7;
        const RSI: usize = 6;
        if insn.mnemonic() == Mnemonic::Wrfsbase {
            // What follows has another base.
            let ctx = machine.thread();
            follow::stands(ctx);
            ctx.follow_fs = 0;
            return Goes::Here;
        }
        let mut words = alloc::vec![0u64];
        match classify(insn) {
            _ if finds_first_bit(insn) => {
                let from = insn.op1_register();
                let bits = 8 * from.size() as u32;
                let value = machine.gpr(from.full_register().number());
                words.push(value & u64::MAX >> (64 - bits));
            }
            MemoryForm::String(_) => words.extend([
                machine.gpr(RSI),
                machine.gpr(RDI),
                machine.gpr(RCX_NUMBER),
                machine.flags(),
            ]),
            MemoryForm::Gather(vector) | MemoryForm::Scatter(vector) => {
                elements(machine, insn, &vector, &mut words);
            }
            MemoryForm::XState(transfer) => words.extend(state(machine, insn, &transfer)),
            MemoryForm::ImplicitRdi(_) => words.push(segment(insn).wrapping_add(machine.gpr(RDI))),
            MemoryForm::ImplicitRax { .. } => words.push(machine.gpr(RAX_NUMBER) & !63),
            MemoryForm::RegisterAddress { .. } => words.extend([
                machine.address(insn),
                machine.gpr(insn.op0_register().number()),
            ]),
            MemoryForm::BitString(bits) => {
                let gpr = core::array::from_fn(|n| machine.gpr(n));
                let segments = brownout_insn::SegmentBases {
                    fs: segment(insn),
                    gs: 0,
                };
                let at = brownout_insn::bit_string_address(insn, &bits, &gpr, segments);
                words.push(at);
            }
            _ => {
                let gpr = core::array::from_fn(|n| machine.gpr(n));
                let segments = brownout_insn::SegmentBases {
                    fs: segment(insn),
                    gs: 0,
                };
                words.push(brownout_insn::effective_address(insn, &gpr, segments));
            }
        }
        words[0] = word(DETAIL, self.step, words.len() as u64 - 1);
        follow::push(machine.thread(), &words);
        Goes::Here
    }
}

/// The base of the segment of an operand.
fn segment(insn: &Instruction) -> u64 {
    match insn.memory_segment() == Register::FS || insn.segment_prefix() == Register::FS {
        true => crate::insn::fs_base(),
        false => 0,
    }
}

/// The address of each element, or 0.
fn elements(
    machine: &mut Machine,
    insn: &Instruction,
    vector: &VectorIndexed,
    words: &mut Vec<u64>,
) {
    let first = machine.address(insn);
    let indices = machine.vector(vector.index.into());
    let lane_bits = 8 * usize::from(vector.element_bytes);
    let bit = |words: &[u64; 8], at: usize| words[at / 64] >> (at % 64) & 1 == 1;
    let mask = match vector.mask {
        Mask::Opmask(n) => machine.mask(n.into()),
        Mask::Vector(n) => {
            let value = machine.vector(n.into());
            (0..usize::from(vector.elements))
                .filter(|lane| bit(&value, lane * lane_bits + lane_bits - 1))
                .fold(0, |set, lane| set | 1 << lane)
        }
    };
    for lane in 0..usize::from(vector.elements) {
        let index = match vector.index_bytes {
            8 => indices[lane] as i64,
            _ => i64::from((indices[lane / 2] >> (32 * (lane % 2))) as i32),
        };
        let scaled = (index as u64).wrapping_mul(u64::from(insn.memory_index_scale()));
        words.push(match mask >> lane & 1 {
            1 => first.wrapping_add(scaled),
            _ => 0,
        });
    }
}

/// See the module's header.
fn state(machine: &mut Machine, insn: &Instruction, transfer: &StateTransfer) -> [u64; 5] {
    const RAX: usize = 0;
    const RDX: usize = 2;
    const HEADER: u64 = 512;
    let area = machine.address(insn);
    let requested = machine.gpr(RDX) << 32 | machine.gpr(RAX) & 0xFFFF_FFFF;
    if transfer.effect.write {
        let [_, _, low, high, ..] = *machine.legacy();
        let top = u64::from(u16::from_le_bytes([low, high])) >> 11 & 7;
        return [area, requested, requested, 0, top];
    }
    let (mut status, mut header) = (0u16, [0u64; 2]);
    crate::values::read_value(area.wrapping_add(2), &mut status);
    if transfer.area != StateArea::Fxsave {
        crate::values::read_value(area.wrapping_add(HEADER), &mut header);
    }
    let top = u64::from(status) >> 11 & 7;
    [area, requested, header[0], header[1], top]
}

//! String instructions, one element at a time.
//!
//! Guarantee: `movs`, `stos`, `lods`, `scas` and `cmps` of 1, 2, 4 and 8 bytes. `ins` and `outs`
//! are unsupported.
//!
//! Source: Intel SDM volume 2, at the instructions' names and at `rep`.

use crate::operands::{Known, Lifter, RAX, RCX, RDI, RSI};
use crate::{Flag, Machine, Unsupported};
use iced_x86::{Code, OpKind};

/// What is done with an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Move,
    Store,
    Load,
    Scan,
    Compare,
}

impl<M: Machine> Lifter<'_, M> {
    fn string_act(&self) -> Known<(Act, u32)> {
        Ok(match self.i.code() {
            Code::Movsb_m8_m8 => (Act::Move, 8),
            Code::Movsw_m16_m16 => (Act::Move, 16),
            Code::Movsd_m32_m32 => (Act::Move, 32),
            Code::Movsq_m64_m64 => (Act::Move, 64),
            Code::Stosb_m8_AL => (Act::Store, 8),
            Code::Stosw_m16_AX => (Act::Store, 16),
            Code::Stosd_m32_EAX => (Act::Store, 32),
            Code::Stosq_m64_RAX => (Act::Store, 64),
            Code::Lodsb_AL_m8 => (Act::Load, 8),
            Code::Lodsw_AX_m16 => (Act::Load, 16),
            Code::Lodsd_EAX_m32 => (Act::Load, 32),
            Code::Lodsq_RAX_m64 => (Act::Load, 64),
            Code::Scasb_AL_m8 => (Act::Scan, 8),
            Code::Scasw_AX_m16 => (Act::Scan, 16),
            Code::Scasd_EAX_m32 => (Act::Scan, 32),
            Code::Scasq_RAX_m64 => (Act::Scan, 64),
            Code::Cmpsb_m8_m8 => (Act::Compare, 8),
            Code::Cmpsw_m16_m16 => (Act::Compare, 16),
            Code::Cmpsd_m32_m32 => (Act::Compare, 32),
            Code::Cmpsq_m64_m64 => (Act::Compare, 64),
            _ => return Err(Unsupported),
        })
    }

    /// Whether there is a prefix that repeats it.
    pub(crate) fn is_repeated(&self) -> bool {
        self.i.has_rep_prefix() || self.i.has_repne_prefix()
    }

    pub(crate) fn string_iteration(&mut self) -> Known<()> {
        self.check_operands()?;
        let (act, bits) = self.string_act()?;
        let address_bits = match self.i.op_kind(0) {
            OpKind::MemoryESEDI | OpKind::MemorySegESI => 32,
            OpKind::MemoryESRDI | OpKind::MemorySegRSI => 64,
            _ => match self.i.op_kind(1) {
                OpKind::MemoryESEDI | OpKind::MemorySegESI => 32,
                OpKind::MemoryESRDI | OpKind::MemorySegRSI => 64,
                _ => return Err(Unsupported),
            },
        };
        let source = self.gpr(RSI, address_bits);
        let source = self.fit(source, 64);
        let source = self.in_segment(source);
        let destination = self.gpr(RDI, address_bits);
        let destination = self.fit(destination, 64);
        match act {
            Act::Move => {
                let value = self.m.load(source, bits / 8);
                self.m.store(destination, value);
            }
            Act::Store => {
                let value = self.gpr(RAX, bits);
                self.m.store(destination, value);
            }
            Act::Load => {
                let value = self.m.load(source, bits / 8);
                self.set_gpr(RAX, value);
            }
            Act::Scan | Act::Compare => {
                let a = if act == Act::Scan {
                    self.gpr(RAX, bits)
                } else {
                    self.m.load(source, bits / 8)
                };
                let b = self.m.load(destination, bits / 8);
                let (_, borrow) = self.difference(a, b, None);
                self.m.set_flag(Flag::Carry, borrow);
            }
        }
        let backwards = self.m.flag(Flag::Direction);
        let bytes = u64::from(bits / 8);
        let up = self.constant(address_bits, bytes);
        let down = self.constant(address_bits, bytes.wrapping_neg());
        let step = self.m.ite(backwards, down, up);
        if matches!(act, Act::Move | Act::Load | Act::Compare) {
            self.advance(RSI, step);
        }
        if act != Act::Load {
            self.advance(RDI, step);
        }
        if self.is_repeated() {
            let minus_one = self.ones(address_bits);
            self.advance(RCX, minus_one);
        }
        Ok(())
    }

    fn advance(&mut self, register: usize, step: M::Value) {
        let bits = self.m.bits(step);
        let value = self.gpr(register, bits);
        let value = self.m.add(value, step);
        self.set_gpr(register, value);
    }
}

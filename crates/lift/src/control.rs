//! The stack, and where control goes.
//!
//! Guarantee: near branches of 64-bit code and operations of 16 and 64 bits on the stack. Forms
//! with a 16-bit instruction pointer are unsupported: Intel and AMD do not agree on them.
//!
//! Source: Intel SDM volume 2, at `push`, `pop`, `call`, `ret`, `loop`.

use crate::operands::{Known, Lifter, RBP, RCX, RSP};
use crate::{Flag, Machine, Next, Unsupported};
use iced_x86::{Code, Mnemonic, OpKind};

impl<M: Machine> Lifter<'_, M> {
    fn push_value(&mut self, value: M::Value) {
        let bytes = self.m.bits(value) / 8;
        let top = self.m.gpr(RSP);
        let bytes = self.constant(64, u64::from(bytes));
        let top = self.m.sub(top, bytes);
        self.m.store(top, value);
        self.m.set_gpr(RSP, top);
    }

    fn pop_value(&mut self, bits: u32) -> M::Value {
        let top = self.m.gpr(RSP);
        let value = self.m.load(top, bits / 8);
        let bytes = self.constant(64, u64::from(bits / 8));
        let top = self.m.add(top, bytes);
        self.m.set_gpr(RSP, top);
        value
    }

    /// How many bits the instruction pushes or pops.
    fn stack_bits(&self) -> Known<u32> {
        match self.i.stack_pointer_increment() {
            8 | -8 => Ok(64),
            2 | -2 => Ok(16),
            _ => Err(Unsupported),
        }
    }

    pub(crate) fn push(&mut self) -> Known<()> {
        let bits = self.stack_bits()?;
        let value = self.read(0, bits)?;
        self.push_value(value);
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Known<()> {
        let bits = self.stack_bits()?;
        // An address that contains the stack pointer is computed after it has changed.
        let value = self.pop_value(bits);
        self.write(0, value)
    }

    pub(crate) fn leave(&mut self) -> Known<()> {
        if self.i.code() != Code::Leaveq {
            return Err(Unsupported);
        }
        let frame = self.m.gpr(RBP);
        self.m.set_gpr(RSP, frame);
        let value = self.pop_value(64);
        self.m.set_gpr(RBP, value);
        Ok(())
    }

    fn target(&self) -> Known<u64> {
        if self.i.op0_kind() == OpKind::NearBranch64 {
            Ok(self.i.near_branch64())
        } else {
            Err(Unsupported)
        }
    }

    pub(crate) fn jcc(&mut self) -> Known<Next<M::Value>> {
        let target = self.target()?;
        let taken = self.condition()?;
        Ok(Next::Branch { taken, target })
    }

    /// `jrcxz`, `loop` and their like.
    pub(crate) fn count_branch(&mut self, mnemonic: Mnemonic) -> Known<Next<M::Value>> {
        let target = self.target()?;
        let bits = match self.i.code() {
            Code::Jrcxz_rel8_64
            | Code::Loop_rel8_64_RCX
            | Code::Loope_rel8_64_RCX
            | Code::Loopne_rel8_64_RCX => 64,
            Code::Jecxz_rel8_64
            | Code::Loop_rel8_64_ECX
            | Code::Loope_rel8_64_ECX
            | Code::Loopne_rel8_64_ECX => 32,
            _ => return Err(Unsupported),
        };
        let count = self.gpr(RCX, bits);
        if matches!(mnemonic, Mnemonic::Jrcxz | Mnemonic::Jecxz) {
            let taken = self.is_zero(count);
            return Ok(Next::Branch { taken, target });
        }
        let one = self.constant(bits, 1);
        let count = self.m.sub(count, one);
        self.set_gpr(RCX, count);
        let done = self.is_zero(count);
        let mut taken = self.m.not(done);
        if mnemonic != Mnemonic::Loop {
            let mut go_on = self.m.flag(Flag::Zero);
            if mnemonic == Mnemonic::Loopne {
                go_on = self.m.not(go_on);
            }
            taken = self.m.and(taken, go_on);
        }
        Ok(Next::Branch { taken, target })
    }

    pub(crate) fn jump(&mut self) -> Known<Next<M::Value>> {
        match self.i.code() {
            Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => Ok(Next::Jump {
                target: self.target()?,
            }),
            Code::Jmp_rm64 => Ok(Next::Computed {
                target: self.read(0, 64)?,
            }),
            _ => Err(Unsupported),
        }
    }

    pub(crate) fn call(&mut self) -> Known<Next<M::Value>> {
        let next = match self.i.code() {
            Code::Call_rel32_64 => Next::Jump {
                target: self.target()?,
            },
            Code::Call_rm64 => Next::Computed {
                target: self.read(0, 64)?,
            },
            _ => return Err(Unsupported),
        };
        let back = self.constant(64, self.i.next_ip());
        self.push_value(back);
        Ok(next)
    }

    pub(crate) fn ret(&mut self) -> Known<Next<M::Value>> {
        let more = match self.i.code() {
            Code::Retnq => 0,
            Code::Retnq_imm16 => u64::from(self.i.immediate16()),
            _ => return Err(Unsupported),
        };
        let target = self.pop_value(64);
        if more != 0 {
            let top = self.m.gpr(RSP);
            let more = self.constant(64, more);
            let top = self.m.add(top, more);
            self.m.set_gpr(RSP, top);
        }
        Ok(Next::Computed { target })
    }
}

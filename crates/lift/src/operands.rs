//! Operands: registers of any size, memory, immediates.
//!
//! Guarantee: an operand that no rule can mean (segment, control, mask, MMX registers, vectors of
//! indices, far pointers) makes the whole instruction unsupported before anything else is looked
//! at. The address of the memory operand is computed once, from the registers before the
//! instruction.
//!
//! Source: Intel SDM volume 1, 3.4.1.1 (what is written by operations of 8, 16 and 32 bits) and
//! 3.7.5 (effective addresses).

use crate::{Machine, Unsupported};
use iced_x86::{CodeSize, EncodingKind, Instruction, OpKind, Register};

/// A rule's answer: it may turn out that the form has none.
pub(crate) type Known<T> = Result<T, Unsupported>;

pub(crate) const RAX: usize = 0;
pub(crate) const RCX: usize = 1;
pub(crate) const RDX: usize = 2;
pub(crate) const RBX: usize = 3;
pub(crate) const RSP: usize = 4;
pub(crate) const RBP: usize = 5;
pub(crate) const RSI: usize = 6;
pub(crate) const RDI: usize = 7;

/// One instruction on one machine.
pub(crate) struct Lifter<'a, M: Machine> {
    pub(crate) m: &'a mut M,
    pub(crate) i: &'a Instruction,
    address: Option<M::Value>,
}

fn is_high_byte(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::CH | Register::DH | Register::BH
    )
}

/// The number of the general register that contains this one.
pub(crate) fn gpr_number(register: Register) -> usize {
    register.full_register().number()
}

impl<'a, M: Machine> Lifter<'a, M> {
    pub(crate) fn new(instruction: &'a Instruction, machine: &'a mut M) -> Self {
        Lifter {
            m: machine,
            i: instruction,
            address: None,
        }
    }

    /// Whether it is 64-bit code with operands of the kinds that rules are about.
    pub(crate) fn check_operands(&self) -> Known<()> {
        let encoding = matches!(self.i.encoding(), EncodingKind::Legacy | EncodingKind::VEX);
        let mode = matches!(self.i.code_size(), CodeSize::Code64 | CodeSize::Unknown);
        let operands = (0..self.i.op_count()).all(|operand| match self.i.op_kind(operand) {
            OpKind::Register => {
                let register = self.i.op_register(operand);
                register.is_gpr() || register.is_xmm() || register.is_ymm()
            }
            OpKind::Memory => {
                let (base, index) = (self.i.memory_base(), self.i.memory_index());
                let base_known = base == Register::None
                    || base == Register::RIP
                    || base == Register::EIP
                    || base.is_gpr32()
                    || base.is_gpr64();
                let index_known = index == Register::None
                    || index == Register::AL
                    || index.is_gpr32()
                    || index.is_gpr64();
                base_known && index_known
            }
            OpKind::FarBranch16 | OpKind::FarBranch32 => false,
            OpKind::NearBranch16 | OpKind::NearBranch32 => false,
            _ => true,
        });
        if encoding && mode && operands {
            Ok(())
        } else {
            Err(Unsupported)
        }
    }

    pub(crate) fn is_vex(&self) -> bool {
        self.i.encoding() == EncodingKind::VEX
    }

    pub(crate) fn is_memory(&self, operand: u32) -> bool {
        self.i.op_kind(operand) == OpKind::Memory
    }

    /// A constant, cut to its width.
    pub(crate) fn constant(&mut self, bits: u32, value: u64) -> M::Value {
        let mask = u128::MAX >> (128 - bits);
        self.m.constant(bits, u128::from(value) & mask)
    }

    pub(crate) fn zero(&mut self, bits: u32) -> M::Value {
        self.m.constant(bits, 0)
    }

    pub(crate) fn ones(&mut self, bits: u32) -> M::Value {
        self.m.constant(bits, u128::MAX >> (128 - bits))
    }

    /// Cut or made wider by zeros, if need be.
    pub(crate) fn fit(&mut self, value: M::Value, bits: u32) -> M::Value {
        let has = self.m.bits(value);
        if has < bits {
            self.m.zext(value, bits)
        } else if has > bits {
            self.m.extract(value, 0, bits)
        } else {
            value
        }
    }

    /// Made wider by copies of the sign, if need be.
    pub(crate) fn widen_signed(&mut self, value: M::Value, bits: u32) -> M::Value {
        if self.m.bits(value) < bits {
            self.m.sext(value, bits)
        } else {
            value
        }
    }

    /// One bit of a value.
    pub(crate) fn bit(&mut self, value: M::Value, number: u32) -> M::Value {
        self.part(value, number, 1)
    }

    /// Some bits of a value, or all of them.
    pub(crate) fn part(&mut self, value: M::Value, low: u32, bits: u32) -> M::Value {
        if self.m.bits(value) == bits {
            value
        } else {
            self.m.extract(value, low, bits)
        }
    }

    pub(crate) fn top_bit(&mut self, value: M::Value) -> M::Value {
        let bits = self.m.bits(value);
        self.bit(value, bits - 1)
    }

    pub(crate) fn is_zero(&mut self, value: M::Value) -> M::Value {
        let bits = self.m.bits(value);
        let zero = self.zero(bits);
        self.m.eq(value, zero)
    }

    /// The low bits of a general register.
    pub(crate) fn gpr(&mut self, number: usize, bits: u32) -> M::Value {
        let whole = self.m.gpr(number);
        self.fit(whole, bits)
    }

    /// Writes the low bits of a general register as an operation of that width does: 32 bits clear
    /// what is above, fewer leave it.
    pub(crate) fn set_gpr(&mut self, number: usize, value: M::Value) {
        let value = match self.m.bits(value) {
            64 => value,
            32 => self.m.zext(value, 64),
            bits => {
                let whole = self.m.gpr(number);
                let high = self.m.extract(whole, bits, 64 - bits);
                self.m.concat(high, value)
            }
        };
        self.m.set_gpr(number, value);
    }

    /// What a general register of any size holds.
    pub(crate) fn register(&mut self, register: Register) -> M::Value {
        let whole = self.m.gpr(gpr_number(register));
        if is_high_byte(register) {
            self.m.extract(whole, 8, 8)
        } else {
            self.fit(whole, 8 * register.size() as u32)
        }
    }

    /// Writes a general register of any size; the value is as wide as it is.
    pub(crate) fn set_register(&mut self, register: Register, value: M::Value) {
        let number = gpr_number(register);
        if is_high_byte(register) {
            let whole = self.m.gpr(number);
            let low = self.m.extract(whole, 0, 8);
            let high = self.m.extract(whole, 16, 48);
            let value = self.m.concat(value, low);
            let value = self.m.concat(high, value);
            self.m.set_gpr(number, value);
        } else {
            self.set_gpr(number, value);
        }
    }

    /// How wide a register or memory operand is.
    pub(crate) fn bits_of(&self, operand: u32) -> Known<u32> {
        let bytes = match self.i.op_kind(operand) {
            OpKind::Register => self.i.op_register(operand).size(),
            OpKind::Memory => self.i.memory_size().size(),
            _ => 0,
        };
        if matches!(bytes, 1 | 2 | 4 | 8 | 16 | 32) {
            Ok(8 * bytes as u32)
        } else {
            Err(Unsupported)
        }
    }

    /// Whether addresses are computed with 32 bits.
    pub(crate) fn is_narrow_address(&self) -> bool {
        let (base, index) = (self.i.memory_base(), self.i.memory_index());
        match (base, index) {
            (Register::None, Register::None) => self.i.memory_displ_size() == 4,
            (Register::None, index) => index.is_gpr32(),
            (base, _) => base.is_gpr32() || base == Register::EIP,
        }
    }

    /// The effective address without the segment, 64 bits.
    pub(crate) fn offset(&mut self) -> M::Value {
        let (base, index) = (self.i.memory_base(), self.i.memory_index());
        let displacement = self.i.memory_displacement64();
        let relative = matches!(base, Register::RIP | Register::EIP);
        let mut sum = None;
        if base != Register::None && !relative {
            let value = self.register(base);
            sum = Some(self.fit(value, 64));
        }
        if index != Register::None {
            let value = self.register(index);
            let mut value = self.fit(value, 64);
            let shift = self.i.memory_index_scale().trailing_zeros();
            if shift != 0 {
                let count = self.constant(64, u64::from(shift));
                value = self.m.shl(value, count);
            }
            sum = Some(match sum {
                Some(base) => self.m.add(base, value),
                None => value,
            });
        }
        let offset = match sum {
            Some(sum) if displacement == 0 => sum,
            Some(sum) => {
                let displacement = self.constant(64, displacement);
                self.m.add(sum, displacement)
            }
            None => self.constant(64, displacement),
        };
        self.narrow(offset)
    }

    /// Cut to 32 bits if addresses are.
    pub(crate) fn narrow(&mut self, offset: M::Value) -> M::Value {
        if self.is_narrow_address() {
            let low = self.m.extract(offset, 0, 32);
            self.m.zext(low, 64)
        } else {
            offset
        }
    }

    /// Adds the base of the segment, if it has one.
    pub(crate) fn in_segment(&mut self, offset: M::Value) -> M::Value {
        match self.i.memory_segment() {
            segment @ (Register::FS | Register::GS) => {
                let base = self.m.segment_base(segment);
                self.m.add(base, offset)
            }
            _ => offset,
        }
    }

    /// The address of the memory operand.
    pub(crate) fn address(&mut self) -> M::Value {
        if let Some(address) = self.address {
            return address;
        }
        let offset = self.offset();
        let address = self.in_segment(offset);
        self.address = Some(address);
        address
    }

    /// The memory operand is there, not where its registers say.
    pub(crate) fn set_address(&mut self, address: M::Value) {
        self.address = Some(address);
    }

    /// The low bits of an operand. Memory is read as wide as that, immediates are cut.
    pub(crate) fn read(&mut self, operand: u32, bits: u32) -> Known<M::Value> {
        Ok(match self.i.op_kind(operand) {
            OpKind::Register => {
                let register = self.i.op_register(operand);
                if bits > 128 || bits > 8 * register.size() as u32 {
                    return Err(Unsupported);
                }
                let value = if register.is_gpr() {
                    self.register(register)
                } else {
                    self.m.xmm(register.number())
                };
                self.fit(value, bits)
            }
            OpKind::Memory => {
                if bits > 128 {
                    return Err(Unsupported);
                }
                let address = self.address();
                self.m.load(address, bits / 8)
            }
            OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => {
                let value = self.i.immediate(operand);
                self.constant(bits, value)
            }
            _ => return Err(Unsupported),
        })
    }

    /// Writes a general register or memory; the value is as wide as the operand is.
    pub(crate) fn write(&mut self, operand: u32, value: M::Value) -> Known<()> {
        match self.i.op_kind(operand) {
            OpKind::Register => {
                let register = self.i.op_register(operand);
                if !register.is_gpr() || self.m.bits(value) != 8 * register.size() as u32 {
                    return Err(Unsupported);
                }
                self.set_register(register, value);
            }
            OpKind::Memory => {
                let address = self.address();
                self.m.store(address, value);
            }
            _ => return Err(Unsupported),
        }
        Ok(())
    }
}

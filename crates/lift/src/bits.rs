//! Single bits: tests, scans, counts, and what BMI1 and BMI2 add.
//!
//! Source: Intel SDM volume 2 and AMD APM volume 3, at the instructions' names.

use crate::operands::{Known, Lifter, gpr_number};
use crate::{Flag, Machine};
use iced_x86::{Mnemonic, OpKind};

impl<M: Machine> Lifter<'_, M> {
    /// `bt`, `bts`, `btr`, `btc`.
    pub(crate) fn bit_test(&mut self, mnemonic: Mnemonic) -> Known<()> {
        let bits = self.bits_of(0)?;
        let number = self.read(1, bits)?;
        if self.is_memory(0) && self.i.op_kind(1) == OpKind::Register {
            // The register counts bits from the operand on, in both directions.
            let signed = self.widen_signed(number, 64);
            let shift = self.constant(64, u64::from(bits.trailing_zeros()));
            let units = self.m.ashr(signed, shift);
            let bytes = self.constant(64, u64::from(bits / 8));
            let distance = self.m.mul(units, bytes);
            let offset = self.offset();
            let offset = self.m.add(offset, distance);
            let offset = self.narrow(offset);
            let address = self.in_segment(offset);
            self.set_address(address);
        }
        let value = self.read(0, bits)?;
        let mask = self.constant(bits, u64::from(bits) - 1);
        let number = self.m.and(number, mask);
        let moved = self.m.lshr(value, number);
        let bit = self.bit(moved, 0);
        self.m.set_flag(Flag::Carry, bit);
        self.undefine_flags(&[Flag::Overflow, Flag::Sign, Flag::Adjust, Flag::Parity]);
        if mnemonic == Mnemonic::Bt {
            return Ok(());
        }
        let one = self.constant(bits, 1);
        let mask = self.m.shl(one, number);
        let result = match mnemonic {
            Mnemonic::Bts => self.m.or(value, mask),
            Mnemonic::Btc => self.m.xor(value, mask),
            _ => {
                let mask = self.m.not(mask);
                self.m.and(value, mask)
            }
        };
        self.write(0, result)
    }

    /// The number of the lowest set bit, or `otherwise`.
    fn lowest(&mut self, value: M::Value, otherwise: M::Value) -> M::Value {
        let bits = self.m.bits(value);
        let mut result = otherwise;
        for number in (0..bits).rev() {
            let bit = self.bit(value, number);
            let number = self.constant(bits, u64::from(number));
            result = self.m.ite(bit, number, result);
        }
        result
    }

    /// The number of the highest set bit, counted from the bottom or from the top, or `otherwise`.
    fn highest(&mut self, value: M::Value, from_top: bool, otherwise: M::Value) -> M::Value {
        let bits = self.m.bits(value);
        let mut result = otherwise;
        for number in 0..bits {
            let bit = self.bit(value, number);
            let number = if from_top { bits - 1 - number } else { number };
            let number = self.constant(bits, u64::from(number));
            result = self.m.ite(bit, number, result);
        }
        result
    }

    /// `bsf` and `bsr`.
    pub(crate) fn bit_scan(&mut self, highest: bool) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        let number = gpr_number(self.i.op0_register());
        let old = self.m.gpr(number);
        let zero = self.zero(bits);
        let found = if highest {
            self.highest(value, false, zero)
        } else {
            self.lowest(value, zero)
        };
        let none = self.m.eq(value, zero);
        self.set_gpr(number, found);
        let new = self.m.gpr(number);
        let result = self.m.ite(none, old, new);
        self.m.set_gpr(number, result);
        self.m.set_flag(Flag::Zero, none);
        self.undefine_flags(&[
            Flag::Carry,
            Flag::Overflow,
            Flag::Sign,
            Flag::Adjust,
            Flag::Parity,
        ]);
        Ok(())
    }

    /// `tzcnt` and `lzcnt`.
    pub(crate) fn count_zeros(&mut self, leading: bool) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        let all = self.constant(bits, u64::from(bits));
        let result = if leading {
            self.highest(value, true, all)
        } else {
            self.lowest(value, all)
        };
        let none = self.is_zero(value);
        self.m.set_flag(Flag::Carry, none);
        let zero = self.is_zero(result);
        self.m.set_flag(Flag::Zero, zero);
        self.undefine_flags(&[Flag::Overflow, Flag::Sign, Flag::Adjust, Flag::Parity]);
        self.write(0, result)
    }

    pub(crate) fn popcnt(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        // Sums of neighbours: of bits, of pairs, of four…
        let mut result = value;
        let mut width = 1;
        while width < bits {
            let ones = (1u64 << width) - 1;
            let mut mask = 0u64;
            for at in (0..bits).step_by(2 * width as usize) {
                mask |= ones << at;
            }
            let mask = self.constant(bits, mask);
            let count = self.constant(bits, u64::from(width));
            let even = self.m.and(result, mask);
            let odd = self.m.lshr(result, count);
            let odd = self.m.and(odd, mask);
            result = self.m.add(even, odd);
            width *= 2;
        }
        let zero = self.is_zero(value);
        self.m.set_flag(Flag::Zero, zero);
        self.clear_flags(&[
            Flag::Carry,
            Flag::Overflow,
            Flag::Sign,
            Flag::Adjust,
            Flag::Parity,
        ]);
        self.write(0, result)
    }

    /// Zero and sign of a result; overflow is cleared, the carry is given, the rest undefined.
    fn bmi_flags(&mut self, result: M::Value, carry: M::Value) {
        let zero = self.is_zero(result);
        self.m.set_flag(Flag::Zero, zero);
        let sign = self.top_bit(result);
        self.m.set_flag(Flag::Sign, sign);
        self.m.set_flag(Flag::Carry, carry);
        self.clear_flags(&[Flag::Overflow]);
        self.undefine_flags(&[Flag::Adjust, Flag::Parity]);
    }

    pub(crate) fn andn(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let a = self.read(1, bits)?;
        let b = self.read(2, bits)?;
        let a = self.m.not(a);
        let result = self.m.and(a, b);
        let carry = self.zero(1);
        self.bmi_flags(result, carry);
        self.write(0, result)
    }

    /// `blsi`, `blsr`, `blsmsk`.
    pub(crate) fn lowest_bit(&mut self, mnemonic: Mnemonic) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        let none = self.is_zero(value);
        let (result, carry) = if mnemonic == Mnemonic::Blsi {
            let negative = self.m.neg(value);
            (self.m.and(value, negative), self.m.not(none))
        } else {
            let one = self.constant(bits, 1);
            let less = self.m.sub(value, one);
            let result = if mnemonic == Mnemonic::Blsr {
                self.m.and(value, less)
            } else {
                self.m.xor(value, less)
            };
            (result, none)
        };
        self.bmi_flags(result, carry);
        self.write(0, result)
    }

    /// As many ones from the bottom as an eight-bit number says.
    fn low_ones(&mut self, bits: u32, number: M::Value) -> M::Value {
        let number = self.fit(number, bits);
        let ones = self.ones(bits);
        let rest = self.m.shl(ones, number);
        self.m.not(rest)
    }

    pub(crate) fn bextr(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        let control = self.read(2, bits)?;
        let start = self.m.extract(control, 0, 8);
        let length = self.m.extract(control, 8, 8);
        let start = self.fit(start, bits);
        let moved = self.m.lshr(value, start);
        let mask = self.low_ones(bits, length);
        let result = self.m.and(moved, mask);
        let zero = self.is_zero(result);
        self.m.set_flag(Flag::Zero, zero);
        self.clear_flags(&[Flag::Carry, Flag::Overflow]);
        self.undefine_flags(&[Flag::Sign, Flag::Adjust, Flag::Parity]);
        self.write(0, result)
    }

    pub(crate) fn bzhi(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        let index = self.read(2, bits)?;
        let number = self.m.extract(index, 0, 8);
        let mask = self.low_ones(bits, number);
        let result = self.m.and(value, mask);
        let last = self.constant(8, u64::from(bits) - 1);
        let carry = self.m.ult(last, number);
        self.bmi_flags(result, carry);
        self.write(0, result)
    }

    /// Bits are taken from the bottom one after the other, each to where the mask has its next one.
    pub(crate) fn pdep(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let mut value = self.read(1, bits)?;
        let mask = self.read(2, bits)?;
        let (none, one) = (self.zero(1), self.constant(bits, 1));
        let mut result = None;
        for number in 0..bits {
            let wanted = self.bit(mask, number);
            let next = self.bit(value, 0);
            let bit = self.m.ite(wanted, next, none);
            let rest = self.m.lshr(value, one);
            value = self.m.ite(wanted, rest, value);
            result = Some(match result {
                Some(result) => self.m.concat(bit, result),
                None => bit,
            });
        }
        let result = result.unwrap_or(mask);
        self.write(0, result)
    }

    /// Where the mask has ones, bits are moved together at the bottom, from the top on.
    pub(crate) fn pext(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        let mask = self.read(2, bits)?;
        let mut result = self.zero(bits);
        for number in (0..bits).rev() {
            let wanted = self.bit(mask, number);
            let bit = self.bit(value, number);
            let rest = self.m.extract(result, 0, bits - 1);
            let longer = self.m.concat(rest, bit);
            result = self.m.ite(wanted, longer, result);
        }
        self.write(0, result)
    }

    /// The remainder modulo the polynomial of CRC-32C, bits reversed.
    pub(crate) fn crc32(&mut self) -> Known<()> {
        let bits = self.bits_of(1)?;
        let to = self.bits_of(0)?;
        let mut remainder = self.read(0, 32)?;
        let data = self.read(1, bits)?;
        let (one, polynomial) = (self.constant(32, 1), self.constant(32, 0x82F6_3B78));
        for at in (0..bits).step_by(32) {
            let width = bits.min(32);
            let part = self.part(data, at, width);
            let part = self.fit(part, 32);
            remainder = self.m.xor(remainder, part);
            for _ in 0..width {
                let odd = self.bit(remainder, 0);
                let all = self.m.sext(odd, 32);
                let other = self.m.and(all, polynomial);
                let half = self.m.lshr(remainder, one);
                remainder = self.m.xor(half, other);
            }
        }
        let result = self.fit(remainder, to);
        self.write(0, result)
    }
}

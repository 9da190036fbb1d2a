//! Shifts and rotations of general registers and memory.
//!
//! Guarantee: flags that stay because the count is zero stay, and the overflow flag is defined for
//! counts of one only. The count decides at run time if it is in `cl`.
//!
//! Source: Intel SDM volume 2, at `sal`, `rcl`, `shld`, `sarx`.

use crate::operands::{Known, Lifter, RCX};
use crate::{Flag, Machine, Unsupported};
use iced_x86::{Mnemonic, OpKind};

/// A count, cut to five or six bits.
#[derive(Clone, Copy)]
enum Count<V> {
    Constant(u32),
    /// Eight bits, and whether they are zero.
    Variable(V, V),
}

impl<M: Machine> Lifter<'_, M> {
    fn count(&mut self, operand: u32, bits: u32) -> Known<Count<M::Value>> {
        let mask = if bits == 64 { 63 } else { 31 };
        if self.i.op_kind(operand) == OpKind::Register {
            let count = self.gpr(RCX, 8);
            let mask = self.constant(8, mask);
            let count = self.m.and(count, mask);
            let zero = self.is_zero(count);
            Ok(Count::Variable(count, zero))
        } else {
            Ok(Count::Constant((self.i.immediate(operand) & mask) as u32))
        }
    }

    /// The count as a value of some width.
    fn amount(&mut self, count: Count<M::Value>, bits: u32) -> M::Value {
        match count {
            Count::Constant(count) => self.constant(bits, u64::from(count)),
            Count::Variable(count, _) => self.fit(count, bits),
        }
    }

    /// Sets flags that stay if the count is zero.
    fn keep(count: Count<M::Value>) -> Option<M::Value> {
        match count {
            Count::Constant(_) => None,
            Count::Variable(_, zero) => Some(zero),
        }
    }

    /// Overflow: defined if the count is one, kept if it is zero.
    fn shift_overflow(&mut self, count: Count<M::Value>, value: M::Value) {
        match count {
            Count::Constant(1) => self.m.set_flag(Flag::Overflow, value),
            Count::Constant(_) => self.m.undefine_flag(Flag::Overflow),
            Count::Variable(count, zero) => {
                let one = self.constant(8, 1);
                let is_one = self.m.eq(count, one);
                self.undefine_flag_unless(Some(zero), Flag::Overflow);
                let other = self.m.flag(Flag::Overflow);
                let value = self.m.ite(is_one, value, other);
                self.m.set_flag(Flag::Overflow, value);
            }
        }
    }

    /// The carry of a shift, which is undefined if the count is `limit` or more.
    fn shift_carry(&mut self, count: Count<M::Value>, limit: u32, value: M::Value) {
        match count {
            Count::Constant(count) if count >= limit => self.m.undefine_flag(Flag::Carry),
            Count::Constant(_) => self.m.set_flag(Flag::Carry, value),
            Count::Variable(_, zero) if limit >= 32 => {
                self.set_flag_unless(Some(zero), Flag::Carry, value);
            }
            Count::Variable(count, zero) => {
                let limit = self.constant(8, u64::from(limit));
                let defined = self.m.ult(count, limit);
                self.undefine_flag_unless(Some(zero), Flag::Carry);
                let other = self.m.flag(Flag::Carry);
                let value = self.m.ite(zero, other, value);
                let value = self.m.ite(defined, value, other);
                self.m.set_flag(Flag::Carry, value);
            }
        }
    }

    pub(crate) fn shift(&mut self, mnemonic: Mnemonic) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(0, bits)?;
        let count = self.count(1, bits)?;
        if matches!(count, Count::Constant(0)) {
            return self.write(0, value);
        }
        let amount = self.amount(count, bits);
        let wide_amount = self.amount(count, bits + 1);
        // One bit more, at the end at which the carry comes out.
        let (result, carry, overflow) = if mnemonic == Mnemonic::Shl || mnemonic == Mnemonic::Sal {
            let result = self.m.shl(value, amount);
            let wide = self.m.zext(value, bits + 1);
            let wide = self.m.shl(wide, wide_amount);
            let carry = self.top_bit(wide);
            let sign = self.top_bit(result);
            let overflow = self.m.xor(sign, carry);
            (result, carry, overflow)
        } else {
            let zero = self.zero(1);
            let wide = self.m.concat(value, zero);
            if mnemonic == Mnemonic::Sar {
                let result = self.m.ashr(value, amount);
                let wide = self.m.ashr(wide, wide_amount);
                (result, self.bit(wide, 0), zero)
            } else {
                let result = self.m.lshr(value, amount);
                let wide = self.m.lshr(wide, wide_amount);
                (result, self.bit(wide, 0), self.top_bit(value))
            }
        };
        let limit = if mnemonic == Mnemonic::Sar { 64 } else { bits };
        self.shift_carry(count, limit, carry);
        self.shift_overflow(count, overflow);
        self.result_flags(Self::keep(count), result);
        self.undefine_flag_unless(Self::keep(count), Flag::Adjust);
        self.write(0, result)
    }

    /// A value rotated to the left or to the right by a constant or by less than its width.
    fn rotated(&mut self, value: M::Value, amount: M::Value, left: bool) -> M::Value {
        let bits = self.m.bits(value);
        let all = self.constant(bits, u64::from(bits));
        let rest = self.m.sub(all, amount);
        let (to_left, to_right) = if left { (amount, rest) } else { (rest, amount) };
        let high = self.m.shl(value, to_left);
        let low = self.m.lshr(value, to_right);
        self.m.or(high, low)
    }

    pub(crate) fn rotate(&mut self, left: bool) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(0, bits)?;
        let count = self.count(1, bits)?;
        if matches!(count, Count::Constant(0)) {
            return self.write(0, value);
        }
        let amount = self.amount(count, bits);
        let mask = self.constant(bits, u64::from(bits) - 1);
        let amount = self.m.and(amount, mask);
        let result = self.rotated(value, amount, left);
        let (top, bottom) = (self.top_bit(result), self.bit(result, 0));
        let (carry, other) = if left {
            (bottom, bottom)
        } else {
            (top, self.bit(result, bits - 2))
        };
        self.set_flag_unless(Self::keep(count), Flag::Carry, carry);
        let overflow = self.m.xor(top, other);
        self.shift_overflow(count, overflow);
        self.write(0, result)
    }

    pub(crate) fn rotate_through_carry(&mut self, left: bool) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(0, bits)?;
        let count = self.count(1, bits)?;
        if matches!(count, Count::Constant(0)) {
            return self.write(0, value);
        }
        let mut amount = self.amount(count, bits + 1);
        if bits < 32 {
            let all = self.constant(bits + 1, u64::from(bits) + 1);
            amount = self.m.urem(amount, all);
        }
        let carry = self.m.flag(Flag::Carry);
        let wide = self.m.concat(carry, value);
        let wide = self.rotated(wide, amount, left);
        let carry = self.top_bit(wide);
        let result = self.m.extract(wide, 0, bits);
        self.m.set_flag(Flag::Carry, carry);
        let top = self.top_bit(result);
        let other = if left {
            carry
        } else {
            self.bit(result, bits - 2)
        };
        let overflow = self.m.xor(top, other);
        self.shift_overflow(count, overflow);
        self.write(0, result)
    }

    /// `shld` and `shrd`.
    pub(crate) fn shift_double(&mut self, left: bool) -> Known<()> {
        let bits = self.bits_of(0)?;
        let (value, filling) = self.pair()?;
        let count = self.count(2, bits)?;
        match count {
            Count::Constant(0) => return self.write(0, value),
            Count::Constant(count) if count > bits => return Err(Unsupported),
            _ => {}
        }
        let amount = self.amount(count, 2 * bits);
        let wide_amount = self.amount(count, bits + 1);
        let (result, carry) = if left {
            let both = self.m.concat(value, filling);
            let both = self.m.shl(both, amount);
            let result = self.m.extract(both, bits, bits);
            let wide = self.m.zext(value, bits + 1);
            let wide = self.m.shl(wide, wide_amount);
            (result, self.top_bit(wide))
        } else {
            let both = self.m.concat(filling, value);
            let both = self.m.lshr(both, amount);
            let result = self.m.extract(both, 0, bits);
            let zero = self.zero(1);
            let wide = self.m.concat(value, zero);
            let wide = self.m.lshr(wide, wide_amount);
            (result, self.bit(wide, 0))
        };
        // By more than the width, nothing is defined.
        self.shift_carry(count, bits + 1, carry);
        let (before, after) = (self.top_bit(value), self.top_bit(result));
        let overflow = self.m.xor(before, after);
        self.shift_overflow(count, overflow);
        self.result_flags(Self::keep(count), result);
        self.undefine_flag_unless(Self::keep(count), Flag::Adjust);
        self.write(0, result)
    }

    /// `shlx`, `shrx`, `sarx`: no flags.
    pub(crate) fn shift_plain(&mut self, mnemonic: Mnemonic) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        let count = self.read(2, bits)?;
        let mask = self.constant(bits, u64::from(bits) - 1);
        let count = self.m.and(count, mask);
        let result = match mnemonic {
            Mnemonic::Shlx => self.m.shl(value, count),
            Mnemonic::Shrx => self.m.lshr(value, count),
            _ => self.m.ashr(value, count),
        };
        self.write(0, result)
    }

    pub(crate) fn rorx(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        let count = self.i.immediate(2) & (u64::from(bits) - 1);
        let result = if count == 0 {
            value
        } else {
            let count = self.constant(bits, count);
            self.rotated(value, count, false)
        };
        self.write(0, result)
    }
}

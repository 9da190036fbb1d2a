//! Moves, sums, products, quotients of general registers and memory.
//!
//! Source: Intel SDM volume 2 and AMD APM volume 3, at the instructions' names.

use crate::operands::{Known, Lifter, RAX, RBX, RCX, RDX};
use crate::{Flag, Machine, Unsupported};
use iced_x86::Mnemonic;

const UNDEFINED_BY_PRODUCTS: [Flag; 4] = [Flag::Zero, Flag::Sign, Flag::Adjust, Flag::Parity];
const ALL: [Flag; 6] = [
    Flag::Carry,
    Flag::Parity,
    Flag::Adjust,
    Flag::Zero,
    Flag::Sign,
    Flag::Overflow,
];

impl<M: Machine> Lifter<'_, M> {
    /// Operands 0 and 1, as wide as operand 0 is.
    pub(crate) fn pair(&mut self) -> Known<(M::Value, M::Value)> {
        let bits = self.bits_of(0)?;
        if bits > 64 {
            return Err(Unsupported);
        }
        Ok((self.read(0, bits)?, self.read(1, bits)?))
    }

    pub(crate) fn mov(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        self.write(0, value)
    }

    pub(crate) fn mov_extended(&mut self, signed: bool) -> Known<()> {
        let (to, from) = (self.bits_of(0)?, self.bits_of(1)?);
        let value = self.read(1, from.min(to))?;
        let value = if signed {
            self.widen_signed(value, to)
        } else {
            self.fit(value, to)
        };
        self.write(0, value)
    }

    pub(crate) fn reversed(&mut self, value: M::Value) -> M::Value {
        let bytes = self.m.bits(value) / 8;
        let mut result = self.m.extract(value, 0, 8);
        for byte in 1..bytes {
            let next = self.m.extract(value, 8 * byte, 8);
            result = self.m.concat(result, next);
        }
        result
    }

    pub(crate) fn movbe(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(1, bits)?;
        let value = self.reversed(value);
        self.write(0, value)
    }

    pub(crate) fn bswap(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        if bits == 16 {
            // What it leaves is undefined.
            return Err(Unsupported);
        }
        let value = self.read(0, bits)?;
        let value = self.reversed(value);
        self.write(0, value)
    }

    pub(crate) fn lea(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let offset = self.offset();
        let value = self.fit(offset, bits);
        self.write(0, value)
    }

    pub(crate) fn xchg(&mut self) -> Known<()> {
        let (a, b) = self.pair()?;
        self.write(0, b)?;
        self.write(1, a)
    }

    pub(crate) fn xadd(&mut self) -> Known<()> {
        let (a, b) = self.pair()?;
        let (sum, carry) = self.sum(a, b, None);
        self.m.set_flag(Flag::Carry, carry);
        self.write(1, a)?;
        self.write(0, sum)
    }

    pub(crate) fn cmpxchg(&mut self) -> Known<()> {
        let (old, new) = self.pair()?;
        let bits = self.m.bits(old);
        if bits == 32 && !self.is_memory(0) {
            // Processors differ in whether a comparison that fails clears the destination's upper
            // half.
            return Err(Unsupported);
        }
        let whole = self.m.gpr(RAX);
        let expected = self.fit(whole, bits);
        let (_, carry) = self.difference(expected, old, None);
        self.m.set_flag(Flag::Carry, carry);
        let same = self.m.eq(expected, old);
        let stored = self.m.ite(same, new, old);
        // The accumulator is written only if they differ, and then all of it.
        self.set_gpr(RAX, old);
        let written = self.m.gpr(RAX);
        let accumulator = self.m.ite(same, whole, written);
        self.m.set_gpr(RAX, accumulator);
        self.write(0, stored)
    }

    /// `cmpxchg8b` and `cmpxchg16b`.
    pub(crate) fn cmpxchg_pair(&mut self, half: u32) -> Known<()> {
        let old = self.read(0, 2 * half)?;
        let (low, high) = (self.gpr(RAX, half), self.gpr(RDX, half));
        let expected = self.m.concat(high, low);
        let (new_low, new_high) = (self.gpr(RBX, half), self.gpr(RCX, half));
        let new = self.m.concat(new_high, new_low);
        let same = self.m.eq(expected, old);
        self.m.set_flag(Flag::Zero, same);
        let stored = self.m.ite(same, new, old);
        self.write(0, stored)?;
        for (register, at) in [(RAX, 0), (RDX, half)] {
            let whole = self.m.gpr(register);
            let part = self.m.extract(old, at, half);
            let part = self.fit(part, 64);
            let value = self.m.ite(same, whole, part);
            self.m.set_gpr(register, value);
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, with_carry: bool) -> Known<()> {
        let (a, b) = self.pair()?;
        let carry = with_carry.then(|| self.m.flag(Flag::Carry));
        let (sum, carry) = self.sum(a, b, carry);
        self.m.set_flag(Flag::Carry, carry);
        self.write(0, sum)
    }

    /// `sub`, `sbb`, and `cmp`, which keeps no result.
    pub(crate) fn sub(&mut self, with_borrow: bool, write: bool) -> Known<()> {
        let (a, b) = self.pair()?;
        let borrow = with_borrow.then(|| self.m.flag(Flag::Carry));
        let (difference, borrow) = self.difference(a, b, borrow);
        self.m.set_flag(Flag::Carry, borrow);
        if write {
            self.write(0, difference)?;
        }
        Ok(())
    }

    /// `adcx` and `adox`: a sum whose carry is in one flag, and that changes no other.
    pub(crate) fn add_by(&mut self, flag: Flag) -> Known<()> {
        let (a, b) = self.pair()?;
        let bits = self.m.bits(a);
        let carry = self.m.flag(flag);
        let (wide_a, wide_b) = (self.m.zext(a, bits + 1), self.m.zext(b, bits + 1));
        let carry = self.m.zext(carry, bits + 1);
        let sum = self.m.add(wide_a, wide_b);
        let sum = self.m.add(sum, carry);
        let carry = self.top_bit(sum);
        self.m.set_flag(flag, carry);
        let sum = self.m.extract(sum, 0, bits);
        self.write(0, sum)
    }

    pub(crate) fn step(&mut self, down: bool) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(0, bits)?;
        let one = self.constant(bits, 1);
        let (result, _) = if down {
            self.difference(value, one, None)
        } else {
            self.sum(value, one, None)
        };
        self.write(0, result)
    }

    pub(crate) fn neg(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(0, bits)?;
        let zero = self.zero(bits);
        let (result, borrow) = self.difference(zero, value, None);
        self.m.set_flag(Flag::Carry, borrow);
        self.write(0, result)
    }

    pub(crate) fn not(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let value = self.read(0, bits)?;
        let result = self.m.not(value);
        self.write(0, result)
    }

    /// `and`, `or`, `xor`, and `test`, which keeps no result.
    pub(crate) fn logical(&mut self, mnemonic: Mnemonic) -> Known<()> {
        let (a, b) = self.pair()?;
        let result = match mnemonic {
            Mnemonic::Or => self.m.or(a, b),
            Mnemonic::Xor => self.m.xor(a, b),
            _ => self.m.and(a, b),
        };
        self.logical_flags(result);
        if mnemonic != Mnemonic::Test {
            self.write(0, result)?;
        }
        Ok(())
    }

    fn widened(&mut self, value: M::Value, signed: bool) -> M::Value {
        let bits = self.m.bits(value);
        if signed {
            self.m.sext(value, 2 * bits)
        } else {
            self.m.zext(value, 2 * bits)
        }
    }

    /// A product of twice the width, whose flags say whether the upper half means anything.
    fn product(&mut self, a: M::Value, b: M::Value, signed: bool) -> M::Value {
        let bits = self.m.bits(a);
        let (a, b) = (self.widened(a, signed), self.widened(b, signed));
        let product = self.m.mul(a, b);
        let low = self.m.extract(product, 0, bits);
        let again = self.widened(low, signed);
        let same = self.m.eq(product, again);
        let lost = self.m.not(same);
        self.m.set_flag(Flag::Carry, lost);
        self.m.set_flag(Flag::Overflow, lost);
        self.undefine_flags(&UNDEFINED_BY_PRODUCTS);
        product
    }

    /// `mul`, and `imul` of one operand.
    pub(crate) fn mul(&mut self, signed: bool) -> Known<()> {
        let bits = self.bits_of(0)?;
        let a = self.gpr(RAX, bits);
        let b = self.read(0, bits)?;
        let product = self.product(a, b, signed);
        self.set_pair(bits, product);
        Ok(())
    }

    /// Both halves into `ax`, or into `dx:ax` and its like.
    fn set_pair(&mut self, bits: u32, value: M::Value) {
        if bits == 8 {
            self.set_gpr(RAX, value);
        } else {
            let low = self.m.extract(value, 0, bits);
            let high = self.m.extract(value, bits, bits);
            self.set_gpr(RAX, low);
            self.set_gpr(RDX, high);
        }
    }

    pub(crate) fn imul(&mut self) -> Known<()> {
        if self.i.op_count() == 1 {
            return self.mul(true);
        }
        let bits = self.bits_of(0)?;
        let first = if self.i.op_count() == 2 { 0 } else { 1 };
        let a = self.read(first, bits)?;
        let b = self.read(first + 1, bits)?;
        let product = self.product(a, b, true);
        let low = self.m.extract(product, 0, bits);
        self.write(0, low)
    }

    pub(crate) fn mulx(&mut self) -> Known<()> {
        let bits = self.bits_of(0)?;
        let a = self.gpr(RDX, bits);
        let b = self.read(2, bits)?;
        let (a, b) = (self.m.zext(a, 2 * bits), self.m.zext(b, 2 * bits));
        let product = self.m.mul(a, b);
        let low = self.m.extract(product, 0, bits);
        let high = self.m.extract(product, bits, bits);
        // If both are one register, it gets the upper half.
        self.write(1, low)?;
        self.write(0, high)
    }

    pub(crate) fn div(&mut self, signed: bool) -> Known<()> {
        let bits = self.bits_of(0)?;
        let divisor = self.read(0, bits)?;
        let dividend = if bits == 8 {
            self.gpr(RAX, 16)
        } else {
            let (low, high) = (self.gpr(RAX, bits), self.gpr(RDX, bits));
            self.m.concat(high, low)
        };
        let divisor = self.widened(divisor, signed);
        let (quotient, remainder) = if signed {
            (
                self.m.sdiv(dividend, divisor),
                self.m.srem(dividend, divisor),
            )
        } else {
            (
                self.m.udiv(dividend, divisor),
                self.m.urem(dividend, divisor),
            )
        };
        let quotient = self.m.extract(quotient, 0, bits);
        let remainder = self.m.extract(remainder, 0, bits);
        let both = self.m.concat(remainder, quotient);
        self.set_pair(bits, both);
        self.undefine_flags(&ALL);
        Ok(())
    }

    /// `cbw`, `cwde`, `cdqe`: the accumulator from half of it.
    pub(crate) fn extend_accumulator(&mut self, to: u32) {
        let value = self.gpr(RAX, to / 2);
        let value = self.m.sext(value, to);
        self.set_gpr(RAX, value);
    }

    /// `cwd`, `cdq`, `cqo`: the sign of the accumulator everywhere in `dx` and its like.
    pub(crate) fn spread_sign(&mut self, bits: u32) {
        let value = self.gpr(RAX, bits);
        let sign = self.top_bit(value);
        let value = self.m.sext(sign, bits);
        self.set_gpr(RDX, value);
    }

    pub(crate) fn setcc(&mut self) -> Known<()> {
        let condition = self.condition()?;
        let value = self.m.zext(condition, 8);
        self.write(0, value)
    }

    pub(crate) fn cmovcc(&mut self) -> Known<()> {
        let condition = self.condition()?;
        let (old, new) = self.pair()?;
        let value = self.m.ite(condition, new, old);
        self.write(0, value)
    }

    /// `ah` and the low byte of the flags.
    pub(crate) fn lahf(&mut self) {
        let (zero, one) = (self.zero(1), self.constant(1, 1));
        let mut value = self.m.flag(Flag::Carry);
        for flag in [
            None,
            Some(Flag::Parity),
            None,
            Some(Flag::Adjust),
            None,
            Some(Flag::Zero),
            Some(Flag::Sign),
        ] {
            let bit = match flag {
                Some(flag) => self.m.flag(flag),
                // Bit 1 is always set.
                None if self.m.bits(value) == 1 => one,
                None => zero,
            };
            value = self.m.concat(bit, value);
        }
        self.set_register(iced_x86::Register::AH, value);
    }

    pub(crate) fn sahf(&mut self) {
        let value = self.register(iced_x86::Register::AH);
        for (flag, number) in [
            (Flag::Carry, 0),
            (Flag::Parity, 2),
            (Flag::Adjust, 4),
            (Flag::Zero, 6),
            (Flag::Sign, 7),
        ] {
            let bit = self.bit(value, number);
            self.m.set_flag(flag, bit);
        }
    }

    pub(crate) fn set_constant_flag(&mut self, flag: Flag, value: u64) {
        let value = self.constant(1, value);
        self.m.set_flag(flag, value);
    }

    pub(crate) fn cmc(&mut self) {
        let carry = self.m.flag(Flag::Carry);
        let carry = self.m.not(carry);
        self.m.set_flag(Flag::Carry, carry);
    }

    pub(crate) fn xlat(&mut self) {
        let address = self.address();
        let value = self.m.load(address, 1);
        self.set_gpr(RAX, value);
    }
}

//! Flags of results, and the conditions that are made of them.
//!
//! Source: Intel SDM volume 1, 3.4.3.1 and appendices A and B.

use crate::operands::{Known, Lifter};
use crate::{Flag, Machine, Unsupported};
use iced_x86::ConditionCode;

impl<M: Machine> Lifter<'_, M> {
    pub(crate) fn clear_flags(&mut self, flags: &[Flag]) {
        let zero = self.zero(1);
        for flag in flags {
            self.m.set_flag(*flag, zero);
        }
    }

    pub(crate) fn undefine_flags(&mut self, flags: &[Flag]) {
        for flag in flags {
            self.m.undefine_flag(*flag);
        }
    }

    /// A flag that becomes `value`, unless `keep` says that it stays.
    pub(crate) fn set_flag_unless(&mut self, keep: Option<M::Value>, flag: Flag, value: M::Value) {
        let value = match keep {
            Some(keep) => {
                let old = self.m.flag(flag);
                self.m.ite(keep, old, value)
            }
            None => value,
        };
        self.m.set_flag(flag, value);
    }

    /// A flag that becomes undefined, unless `keep` says that it stays.
    pub(crate) fn undefine_flag_unless(&mut self, keep: Option<M::Value>, flag: Flag) {
        let old = keep.map(|keep| (keep, self.m.flag(flag)));
        self.m.undefine_flag(flag);
        if let Some((keep, old)) = old {
            let new = self.m.flag(flag);
            let value = self.m.ite(keep, old, new);
            self.m.set_flag(flag, value);
        }
    }

    /// Whether the low byte has an even number of ones.
    pub(crate) fn parity(&mut self, result: M::Value) -> M::Value {
        let mut byte = self.fit(result, 8);
        for shift in [4, 2, 1] {
            let count = self.constant(8, shift);
            let other = self.m.lshr(byte, count);
            byte = self.m.xor(byte, other);
        }
        let odd = self.bit(byte, 0);
        self.m.not(odd)
    }

    /// Zero, sign and parity of a result.
    pub(crate) fn result_flags(&mut self, keep: Option<M::Value>, result: M::Value) {
        let zero = self.is_zero(result);
        self.set_flag_unless(keep, Flag::Zero, zero);
        let sign = self.top_bit(result);
        self.set_flag_unless(keep, Flag::Sign, sign);
        let parity = self.parity(result);
        self.set_flag_unless(keep, Flag::Parity, parity);
    }

    /// Adjust: the carry out of the low four bits.
    fn adjust(&mut self, a: M::Value, b: M::Value, result: M::Value) {
        let changed = self.m.xor(a, b);
        let changed = self.m.xor(changed, result);
        let adjust = self.bit(changed, 4);
        self.m.set_flag(Flag::Adjust, adjust);
    }

    /// A sum with all flags but the carry, which is returned.
    pub(crate) fn sum(
        &mut self,
        a: M::Value,
        b: M::Value,
        carry: Option<M::Value>,
    ) -> (M::Value, M::Value) {
        let mut result = self.m.add(a, b);
        if let Some(carry) = carry {
            let bits = self.m.bits(a);
            let carry = self.m.zext(carry, bits);
            result = self.m.add(result, carry);
        }
        let mut out = self.m.ult(result, a);
        if let Some(carry) = carry {
            let same = self.m.eq(result, a);
            let wrapped = self.m.and(carry, same);
            out = self.m.or(out, wrapped);
        }
        self.adjust(a, b, result);
        self.result_flags(None, result);
        let from_a = self.m.xor(a, result);
        let from_b = self.m.xor(b, result);
        let both = self.m.and(from_a, from_b);
        let overflow = self.top_bit(both);
        self.m.set_flag(Flag::Overflow, overflow);
        (result, out)
    }

    /// A difference with all flags but the carry, which is returned.
    pub(crate) fn difference(
        &mut self,
        a: M::Value,
        b: M::Value,
        borrow: Option<M::Value>,
    ) -> (M::Value, M::Value) {
        let mut result = self.m.sub(a, b);
        let mut out = self.m.ult(a, b);
        let same = self.m.eq(a, b);
        if let Some(borrow) = borrow {
            let bits = self.m.bits(a);
            let wide = self.m.zext(borrow, bits);
            result = self.m.sub(result, wide);
            let wrapped = self.m.and(borrow, same);
            out = self.m.or(out, wrapped);
        }
        self.adjust(a, b, result);
        self.result_flags(None, result);
        if borrow.is_none() {
            // The same bit, in words that say more.
            self.m.set_flag(Flag::Zero, same);
        }
        let differ = self.m.xor(a, b);
        let changed = self.m.xor(a, result);
        let both = self.m.and(differ, changed);
        let overflow = self.top_bit(both);
        self.m.set_flag(Flag::Overflow, overflow);
        (result, out)
    }

    /// The flags of `and`, `or`, `xor`, `test`.
    pub(crate) fn logical_flags(&mut self, result: M::Value) {
        self.result_flags(None, result);
        self.clear_flags(&[Flag::Carry, Flag::Overflow]);
        self.undefine_flags(&[Flag::Adjust]);
    }

    /// The condition that the instruction is named after, one bit.
    pub(crate) fn condition(&mut self) -> Known<M::Value> {
        use ConditionCode as C;
        let code = self.i.condition_code();
        let (base, negated) = match code {
            C::o | C::b | C::e | C::be | C::s | C::p | C::l | C::le => (code, false),
            C::no => (C::o, true),
            C::ae => (C::b, true),
            C::ne => (C::e, true),
            C::a => (C::be, true),
            C::ns => (C::s, true),
            C::np => (C::p, true),
            C::ge => (C::l, true),
            C::g => (C::le, true),
            C::None => return Err(Unsupported),
        };
        let value = match base {
            C::o => self.m.flag(Flag::Overflow),
            C::b => self.m.flag(Flag::Carry),
            C::e => self.m.flag(Flag::Zero),
            C::s => self.m.flag(Flag::Sign),
            C::p => self.m.flag(Flag::Parity),
            C::be => {
                let carry = self.m.flag(Flag::Carry);
                let zero = self.m.flag(Flag::Zero);
                self.m.or(carry, zero)
            }
            _ => {
                let sign = self.m.flag(Flag::Sign);
                let overflow = self.m.flag(Flag::Overflow);
                let less = self.m.xor(sign, overflow);
                if base == C::l {
                    less
                } else {
                    let zero = self.m.flag(Flag::Zero);
                    self.m.or(zero, less)
                }
            }
        };
        Ok(if negated { self.m.not(value) } else { value })
    }
}

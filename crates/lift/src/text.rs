//! Comparisons of strings in vectors: `pcmpistri`, `pcmpestrm` and their like.
//!
//! The immediate says how elements of the second string (operand 1) are looked for in the first
//! (operand 0), and what becomes of the bits that come of it, one for each element of the second.
//!
//! Source: Intel SDM volume 2, 4.1 (imm8 control byte operation).

use crate::operands::{Known, Lifter, RAX, RCX, RDX};
use crate::{Flag, Machine, Unsupported};
use core::array::from_fn;
use iced_x86::Mnemonic;

/// How strings are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    EqualAny,
    Ranges,
    EqualEach,
    EqualOrdered,
}

/// A string: its elements, which of them belong to it, and whether it ends within the vector.
struct Text<V, const N: usize> {
    elements: [V; N],
    valid: [V; N],
    ends: V,
}

impl<M: Machine> Lifter<'_, M> {
    /// Whether there was a rule.
    pub(crate) fn text(&mut self, mnemonic: Mnemonic) -> Known<bool> {
        use Mnemonic as N;
        let (length_bits, index) = match mnemonic {
            N::Pcmpistri | N::Vpcmpistri => (None, true),
            N::Pcmpistrm | N::Vpcmpistrm => (None, false),
            N::Pcmpestri | N::Vpcmpestri => (Some(32), true),
            N::Pcmpestrm | N::Vpcmpestrm => (Some(32), false),
            N::Pcmpestri64 | N::Vpcmpestri64 => (Some(64), true),
            N::Pcmpestrm64 | N::Vpcmpestrm64 => (Some(64), false),
            _ => return Ok(false),
        };
        if self.i.op_count() != 3 {
            return Err(Unsupported);
        }
        if self.i.immediate(2) & 1 == 0 {
            self.compare_texts::<16>(length_bits, index)?;
        } else {
            self.compare_texts::<8>(length_bits, index)?;
        }
        Ok(true)
    }

    /// A string that ends at its first zero, or whose length is in a register.
    fn read_text<const N: usize>(
        &mut self,
        operand: u32,
        length: Option<(usize, u32)>,
    ) -> Known<Text<M::Value, N>> {
        let lane = self.lane(operand, 0)?;
        let width = 128 / N as u32;
        let elements: [_; N] = from_fn(|number| self.m.extract(lane, number as u32 * width, width));
        if let Some((register, bits)) = length {
            // What is longer than the vector, or negative and so in magnitude, fills it.
            let length = self.gpr(register, bits);
            let negative = self.top_bit(length);
            let other = self.m.neg(length);
            let length = self.m.ite(negative, other, length);
            let valid = from_fn(|number| {
                let number = self.constant(bits, number as u64);
                self.m.ult(number, length)
            });
            let all = self.constant(bits, N as u64);
            let ends = self.m.ult(length, all);
            return Ok(Text {
                elements,
                valid,
                ends,
            });
        }
        let mut before = self.constant(1, 1);
        let valid = from_fn(|number| {
            let zero = self.is_zero(elements[number]);
            let other = self.m.not(zero);
            before = self.m.and(before, other);
            before
        });
        let ends = self.m.not(before);
        Ok(Text {
            elements,
            valid,
            ends,
        })
    }

    fn all(&mut self, bits: impl IntoIterator<Item = M::Value>) -> M::Value {
        let mut result = self.constant(1, 1);
        for bit in bits {
            result = self.m.and(result, bit);
        }
        result
    }

    fn any(&mut self, bits: impl IntoIterator<Item = M::Value>) -> M::Value {
        let mut result = self.zero(1);
        for bit in bits {
            result = self.m.or(result, bit);
        }
        result
    }

    /// Whether the element at `second` is what the first string asks for.
    fn matched<const N: usize>(
        &mut self,
        mode: Mode,
        signed: bool,
        a: &Text<M::Value, N>,
        b: &Text<M::Value, N>,
        second: usize,
    ) -> M::Value {
        let element = b.elements[second];
        match mode {
            Mode::EqualAny => {
                let found: [_; N] = from_fn(|first| {
                    let same = self.m.eq(a.elements[first], element);
                    self.m.and(same, a.valid[first])
                });
                let found = self.any(found);
                self.m.and(found, b.valid[second])
            }
            Mode::Ranges => {
                let found: [_; N] = from_fn(|first| {
                    if first % 2 == 1 {
                        return self.zero(1);
                    }
                    let (low, high) = (a.elements[first], a.elements[first + 1]);
                    let (below, above) = if signed {
                        (self.m.slt(element, low), self.m.slt(high, element))
                    } else {
                        (self.m.ult(element, low), self.m.ult(high, element))
                    };
                    let outside = self.m.or(below, above);
                    let inside = self.m.not(outside);
                    // Of a pair that is cut off there is no upper end.
                    self.all([inside, a.valid[first], a.valid[first + 1]])
                });
                let found = self.any(found);
                self.m.and(found, b.valid[second])
            }
            Mode::EqualEach => {
                let same = self.m.eq(a.elements[second], element);
                let both = self.all([same, a.valid[second], b.valid[second]]);
                let either = self.m.or(a.valid[second], b.valid[second]);
                let neither = self.m.not(either);
                self.m.or(both, neither)
            }
            Mode::EqualOrdered => {
                let mut result = self.constant(1, 1);
                for first in 0..N - second {
                    let at = second + first;
                    let same = self.m.eq(a.elements[first], b.elements[at]);
                    let both = self.m.and(same, b.valid[at]);
                    let over = self.m.not(a.valid[first]);
                    let here = self.m.or(both, over);
                    result = self.m.and(result, here);
                }
                result
            }
        }
    }

    fn compare_texts<const N: usize>(
        &mut self,
        length_bits: Option<u32>,
        index: bool,
    ) -> Known<()> {
        let control = self.i.immediate(2);
        let signed = control & 2 != 0;
        let mode = match control >> 2 & 3 {
            0 => Mode::EqualAny,
            1 => Mode::Ranges,
            2 => Mode::EqualEach,
            _ => Mode::EqualOrdered,
        };
        let a: Text<_, N> = self.read_text(0, length_bits.map(|bits| (RAX, bits)))?;
        let b: Text<_, N> = self.read_text(1, length_bits.map(|bits| (RDX, bits)))?;
        let mut bits: [_; N] = from_fn(|second| self.matched(mode, signed, &a, &b, second));
        for (number, bit) in bits.iter_mut().enumerate() {
            *bit = match control >> 4 & 3 {
                1 => self.m.not(*bit),
                3 => self.m.xor(*bit, b.valid[number]),
                _ => *bit,
            };
        }
        let high = control & 0x40 != 0;
        if index {
            // What is looked at last wins.
            let mut result = self.constant(32, N as u64);
            for step in 0..N {
                let number = if high { step } else { N - 1 - step };
                let here = self.constant(32, number as u64);
                result = self.m.ite(bits[number], here, result);
            }
            self.set_gpr(RCX, result);
        } else {
            let width = if high { 128 / N as u32 } else { 1 };
            let mut result = None;
            for bit in bits {
                let part = self.widen_signed(bit, width);
                result = Some(match result {
                    Some(result) => self.m.concat(part, result),
                    None => part,
                });
            }
            let result = result.ok_or(Unsupported)?;
            let result = self.fit(result, 128);
            self.m.set_xmm(0, result);
            if self.is_vex() {
                let zero = self.zero(128);
                self.m.set_ymm_high(0, zero);
            }
        }
        let found = self.any(bits);
        self.m.set_flag(Flag::Carry, found);
        self.m.set_flag(Flag::Zero, b.ends);
        self.m.set_flag(Flag::Sign, a.ends);
        self.m.set_flag(Flag::Overflow, bits[0]);
        self.clear_flags(&[Flag::Adjust, Flag::Parity]);
        Ok(())
    }
}

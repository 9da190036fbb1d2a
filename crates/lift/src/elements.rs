//! Vectors of integers: elements of 8 to 64 bits, lane by lane.
//!
//! Guarantee: integers only. Floating point is moved (as bits), never computed.
//!
//! Source: Intel SDM volume 2, at the instructions' names.

use crate::operands::{Known, Lifter};
use crate::{Flag, Machine, Unsupported};
use core::array::from_fn;
use iced_x86::{Mnemonic, OpKind};

/// How elements are shifted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Left,
    Right,
    RightSigned,
}

impl<M: Machine> Lifter<'_, M> {
    /// The elements of a lane, lowest first.
    fn split<const N: usize>(&mut self, lane: M::Value) -> [M::Value; N] {
        let bits = self.m.bits(lane) / N as u32;
        if N == 1 {
            return [lane; N];
        }
        from_fn(|number| self.m.extract(lane, number as u32 * bits, bits))
    }

    /// A lane of elements, lowest first.
    fn join<const N: usize>(&mut self, elements: [M::Value; N]) -> M::Value {
        let mut result = elements[0];
        for element in &elements[1..] {
            result = self.m.concat(*element, result);
        }
        result
    }

    /// From lanes of both sources.
    fn lanewise(
        &mut self,
        mut rule: impl FnMut(&mut Self, M::Value, M::Value) -> M::Value,
    ) -> Known<()> {
        self.lanewise_numbered(|this, _, a, b| Ok(rule(this, a, b)))
    }

    fn lanewise_numbered(
        &mut self,
        mut rule: impl FnMut(&mut Self, u32, M::Value, M::Value) -> Known<M::Value>,
    ) -> Known<()> {
        let first = self.first();
        let mut results = [None; 2];
        for lane in 0..self.lanes() {
            let a = self.lane(first, lane)?;
            let b = self.lane(first + 1, lane)?;
            results[lane as usize] = Some(rule(self, lane, a, b)?);
        }
        match results {
            [Some(low), high] => self.write_vector(0, low, high),
            _ => Err(Unsupported),
        }
    }

    /// From lanes of one source, operand 1.
    fn lanewise_one(&mut self, mut rule: impl FnMut(&mut Self, M::Value) -> M::Value) -> Known<()> {
        let mut results = [None; 2];
        for lane in 0..self.lanes() {
            let value = self.lane(1, lane)?;
            results[lane as usize] = Some(rule(self, value));
        }
        match results {
            [Some(low), high] => self.write_vector(0, low, high),
            _ => Err(Unsupported),
        }
    }

    /// From `N` elements a lane of both sources.
    fn each<const N: usize>(
        &mut self,
        mut rule: impl FnMut(&mut Self, M::Value, M::Value) -> M::Value,
    ) -> Known<()> {
        self.lanewise(|this, a, b| {
            let (a, b): ([_; N], [_; N]) = (this.split(a), this.split(b));
            let result: [_; N] = from_fn(|number| rule(this, a[number], b[number]));
            this.join(result)
        })
    }

    /// From `N` elements a lane of one source.
    fn each_one<const N: usize>(
        &mut self,
        mut rule: impl FnMut(&mut Self, M::Value) -> M::Value,
    ) -> Known<()> {
        self.lanewise_one(|this, value| {
            let value: [_; N] = this.split(value);
            let result: [_; N] = from_fn(|number| rule(this, value[number]));
            this.join(result)
        })
    }

    /// One of two elements by a comparison of both.
    fn choose<const N: usize>(&mut self, signed: bool, larger: bool) -> Known<()> {
        self.each::<N>(|this, a, b| {
            let less = if signed {
                this.m.slt(a, b)
            } else {
                this.m.ult(a, b)
            };
            if larger {
                this.m.ite(less, b, a)
            } else {
                this.m.ite(less, a, b)
            }
        })
    }

    fn equal<const N: usize>(&mut self) -> Known<()> {
        self.each::<N>(|this, a, b| {
            let bits = this.m.bits(a);
            let same = this.m.eq(a, b);
            this.m.sext(same, bits)
        })
    }

    fn greater<const N: usize>(&mut self) -> Known<()> {
        self.each::<N>(|this, a, b| {
            let bits = this.m.bits(a);
            let greater = this.m.slt(b, a);
            this.m.sext(greater, bits)
        })
    }

    /// A signed number that becomes the nearest of a signed or unsigned range of fewer bits.
    fn saturate(&mut self, value: M::Value, bits: u32, signed: bool) -> M::Value {
        let wide = self.m.bits(value);
        let (least, most) = if signed {
            (
                (u64::MAX) << (bits - 1),
                u64::MAX >> 1 >> (64 - bits), // The sign bit stays clear.
            )
        } else {
            (0, u64::MAX >> (64 - bits))
        };
        let (least, most) = (self.constant(wide, least), self.constant(wide, most));
        let below = self.m.slt(value, least);
        let above = self.m.slt(most, value);
        let value = self.m.ite(above, most, value);
        let value = self.m.ite(below, least, value);
        self.m.extract(value, 0, bits)
    }

    fn add_saturating<const N: usize>(&mut self, signed: bool, subtract: bool) -> Known<()> {
        self.each::<N>(|this, a, b| {
            let bits = this.m.bits(a);
            let (a, b) = if signed {
                (this.m.sext(a, 2 * bits), this.m.sext(b, 2 * bits))
            } else {
                (this.m.zext(a, 2 * bits), this.m.zext(b, 2 * bits))
            };
            let sum = if subtract {
                this.m.sub(a, b)
            } else {
                this.m.add(a, b)
            };
            this.saturate(sum, bits, signed)
        })
    }

    /// Elements of both sources, cut to half their width: those of the first are the lower ones.
    fn pack<const N: usize>(&mut self, signed: bool) -> Known<()> {
        self.lanewise(|this, a, b| {
            let bits = 128 / N as u32 / 2;
            let (a, b): ([_; N], [_; N]) = (this.split(a), this.split(b));
            let a: [_; N] = from_fn(|number| this.saturate(a[number], bits, signed));
            let b: [_; N] = from_fn(|number| this.saturate(b[number], bits, signed));
            let (low, high) = (this.join(a), this.join(b));
            this.m.concat(high, low)
        })
    }

    /// Elements of both sources by turns, from their lower or upper halves.
    fn unpack<const N: usize>(&mut self, high: bool) -> Known<()> {
        self.lanewise(|this, a, b| {
            let (a, b): ([_; N], [_; N]) = (this.split(a), this.split(b));
            let start = if high { N / 2 } else { 0 };
            let result: [_; N] = from_fn(|number| {
                let from = if number % 2 == 0 { &a } else { &b };
                from[start + number / 2]
            });
            this.join(result)
        })
    }

    fn immediate_of_last(&self) -> usize {
        self.i.immediate(self.i.op_count() - 1) as u8 as usize
    }

    fn pshufd(&mut self) -> Known<()> {
        let control = self.immediate_of_last();
        self.lanewise_one(|this, value| {
            let value: [_; 4] = this.split(value);
            this.join::<4>(from_fn(|number| value[control >> (2 * number) & 3]))
        })
    }

    /// `pshuflw` and `pshufhw`.
    fn pshufw(&mut self, high: bool) -> Known<()> {
        let control = self.immediate_of_last();
        self.lanewise_one(|this, value| {
            let value: [_; 8] = this.split(value);
            let start = if high { 4 } else { 0 };
            this.join::<8>(from_fn(|number| {
                if (start..start + 4).contains(&number) {
                    value[start + (control >> (2 * (number - start)) & 3)]
                } else {
                    value[number]
                }
            }))
        })
    }

    fn shufps(&mut self) -> Known<()> {
        let control = self.immediate_of_last();
        self.lanewise(|this, a, b| {
            let (a, b): ([_; 4], [_; 4]) = (this.split(a), this.split(b));
            this.join::<4>(from_fn(|number| {
                let from = if number < 2 { &a } else { &b };
                from[control >> (2 * number) & 3]
            }))
        })
    }

    /// Two bits of the immediate a lane.
    fn shufpd(&mut self) -> Known<()> {
        let control = self.immediate_of_last();
        self.lanewise_numbered(|this, lane, a, b| {
            let control = control >> (2 * lane);
            let (a, b): ([_; 2], [_; 2]) = (this.split(a), this.split(b));
            Ok(this.m.concat(b[control >> 1 & 1], a[control & 1]))
        })
    }

    fn vpermilpd(&mut self) -> Known<()> {
        if self.i.op_kind(2) != OpKind::Immediate8 {
            return self.lanewise(|this, value, control| {
                let value: [_; 2] = this.split(value);
                let controls: [_; 2] = this.split(control);
                let result: [_; 2] = from_fn(|number| {
                    let bit = this.bit(controls[number], 1);
                    this.m.ite(bit, value[1], value[0])
                });
                this.join(result)
            });
        }
        let control = self.immediate_of_last();
        let mut lane = 0;
        self.lanewise_one(|this, value| {
            let control = control >> (2 * lane);
            lane += 1;
            let value: [_; 2] = this.split(value);
            this.m.concat(value[control >> 1 & 1], value[control & 1])
        })
    }

    fn vpermilps(&mut self) -> Known<()> {
        if self.i.op_kind(2) == OpKind::Immediate8 {
            return self.pshufd();
        }
        self.lanewise(|this, value, control| {
            let value: [_; 4] = this.split(value);
            let controls: [_; 4] = this.split(control);
            let result: [_; 4] = from_fn(|number| {
                let index = this.m.extract(controls[number], 0, 2);
                this.select(&value, index)
            });
            this.join(result)
        })
    }

    /// One of a power of two of values, by an index of as many bits.
    fn select(&mut self, values: &[M::Value], index: M::Value) -> M::Value {
        if values.len() == 1 {
            return values[0];
        }
        let bit = values.len().trailing_zeros() - 1;
        let (low, high) = values.split_at(values.len() / 2);
        let low = self.select(low, index);
        let high = self.select(high, index);
        let bit = self.bit(index, bit);
        self.m.ite(bit, high, low)
    }

    fn pshufb(&mut self) -> Known<()> {
        self.lanewise(|this, value, control| {
            let value: [_; 16] = this.split(value);
            let controls: [_; 16] = this.split(control);
            let zero = this.zero(8);
            let result: [_; 16] = from_fn(|number| {
                let index = this.m.extract(controls[number], 0, 4);
                let chosen = this.select(&value, index);
                let clear = this.top_bit(controls[number]);
                this.m.ite(clear, zero, chosen)
            });
            this.join(result)
        })
    }

    fn both_lanes<const N: usize, const ALL: usize>(
        &mut self,
        operand: u32,
    ) -> Known<[M::Value; ALL]> {
        let (low, high) = (self.lane(operand, 0)?, self.lane(operand, 1)?);
        let (low, high): ([_; N], [_; N]) = (self.split(low), self.split(high));
        Ok(from_fn(|number| {
            if number < N {
                low[number]
            } else {
                high[number - N]
            }
        }))
    }

    /// `vpermq` and `vpermpd` by an immediate.
    fn permute_quads(&mut self) -> Known<()> {
        if self.i.op_kind(2) != OpKind::Immediate8 {
            return Err(Unsupported);
        }
        let control = self.immediate_of_last();
        let value: [_; 4] = self.both_lanes::<2, 4>(1)?;
        let chosen: [_; 4] = from_fn(|number| value[control >> (2 * number) & 3]);
        let low = self.m.concat(chosen[1], chosen[0]);
        let high = self.m.concat(chosen[3], chosen[2]);
        self.write_vector(0, low, Some(high))
    }

    /// `vpermd` and `vpermps`: the first source has the indices.
    fn permute_doubles(&mut self) -> Known<()> {
        let controls: [_; 8] = self.both_lanes::<4, 8>(1)?;
        let value: [_; 8] = self.both_lanes::<4, 8>(2)?;
        let chosen: [_; 8] = from_fn(|number| {
            let index = self.m.extract(controls[number], 0, 3);
            self.select(&value, index)
        });
        let low: [_; 4] = from_fn(|number| chosen[number]);
        let high: [_; 4] = from_fn(|number| chosen[4 + number]);
        let (low, high) = (self.join(low), self.join(high));
        self.write_vector(0, low, Some(high))
    }

    fn shift_one(&mut self, value: M::Value, count: M::Value, direction: Direction) -> M::Value {
        match direction {
            Direction::Left => self.m.shl(value, count),
            Direction::Right => self.m.lshr(value, count),
            Direction::RightSigned => self.m.ashr(value, count),
        }
    }

    /// All elements by one count: an immediate, or the low 64 bits of a vector.
    fn shift_elements<const N: usize>(&mut self, direction: Direction) -> Known<()> {
        let bits = 128 / N as u32;
        let first = self.first();
        let by = first + 1;
        let count = if self.i.op_kind(by) == OpKind::Immediate8 {
            let count = self.i.immediate(by).min(u64::from(bits));
            self.constant(bits, count)
        } else {
            // From memory, too, all 128 bits are read.
            let count = self.read(by, 128)?;
            let count = self.m.extract(count, 0, 64);
            let limit = self.constant(64, u64::from(bits));
            let less = self.m.ult(count, limit);
            let count = self.m.ite(less, count, limit);
            self.fit(count, bits)
        };
        let mut results = [None; 2];
        for lane in 0..self.lanes() {
            let value = self.lane(first, lane)?;
            let value: [_; N] = self.split(value);
            let value: [_; N] = from_fn(|number| self.shift_one(value[number], count, direction));
            results[lane as usize] = Some(self.join(value));
        }
        match results {
            [Some(low), high] => self.write_vector(0, low, high),
            _ => Err(Unsupported),
        }
    }

    /// `pslldq` and `psrldq`.
    fn shift_bytes(&mut self, direction: Direction) -> Known<()> {
        let count = 8 * self.immediate_of_last().min(16) as u64;
        let first = self.first();
        let mut results = [None; 2];
        for lane in 0..self.lanes() {
            let value = self.lane(first, lane)?;
            let count = self.constant(128, count);
            results[lane as usize] = Some(self.shift_one(value, count, direction));
        }
        match results {
            [Some(low), high] => self.write_vector(0, low, high),
            _ => Err(Unsupported),
        }
    }

    fn palignr(&mut self) -> Known<()> {
        let count = self.immediate_of_last();
        self.lanewise(|this, a, b| {
            let (a, b): ([_; 16], [_; 16]) = (this.split(a), this.split(b));
            let zero = this.zero(8);
            this.join::<16>(from_fn(|number| match number + count {
                at @ 0..16 => b[at],
                at @ 16..32 => a[at - 16],
                _ => zero,
            }))
        })
    }

    /// A part of the product of elements, made wider first.
    fn multiply<const N: usize>(&mut self, signed: bool, from: u32) -> Known<()> {
        self.each::<N>(|this, a, b| {
            let bits = this.m.bits(a);
            let product = this.wide_product(a, b, signed, signed);
            this.m.extract(product, from, bits)
        })
    }

    fn wide_product(
        &mut self,
        a: M::Value,
        b: M::Value,
        a_signed: bool,
        b_signed: bool,
    ) -> M::Value {
        let wide = 2 * self.m.bits(a);
        let a = if a_signed {
            self.m.sext(a, wide)
        } else {
            self.m.zext(a, wide)
        };
        let b = if b_signed {
            self.m.sext(b, wide)
        } else {
            self.m.zext(b, wide)
        };
        self.m.mul(a, b)
    }

    fn low_product<const N: usize>(&mut self) -> Known<()> {
        self.each::<N>(|this, a, b| this.m.mul(a, b))
    }

    /// `pmuludq` and `pmuldq`: the low halves of 64-bit elements.
    fn multiply_even(&mut self, signed: bool) -> Known<()> {
        self.each::<2>(|this, a, b| {
            let (a, b) = (this.m.extract(a, 0, 32), this.m.extract(b, 0, 32));
            this.wide_product(a, b, signed, signed)
        })
    }

    fn pmulhrsw(&mut self) -> Known<()> {
        self.each::<8>(|this, a, b| {
            let product = this.wide_product(a, b, true, true);
            let count = this.constant(32, 14);
            let rounded = this.m.ashr(product, count);
            let one = this.constant(32, 1);
            let rounded = this.m.add(rounded, one);
            this.m.extract(rounded, 1, 16)
        })
    }

    fn pmaddwd(&mut self) -> Known<()> {
        self.each::<4>(|this, a, b| {
            let (a, b): ([_; 2], [_; 2]) = (this.split(a), this.split(b));
            let low = this.wide_product(a[0], b[0], true, true);
            let high = this.wide_product(a[1], b[1], true, true);
            this.m.add(low, high)
        })
    }

    fn pmaddubsw(&mut self) -> Known<()> {
        self.each::<8>(|this, a, b| {
            let (a, b): ([_; 2], [_; 2]) = (this.split(a), this.split(b));
            let low = this.wide_product(a[0], b[0], false, true);
            let high = this.wide_product(a[1], b[1], false, true);
            let (low, high) = (this.m.sext(low, 32), this.m.sext(high, 32));
            let sum = this.m.add(low, high);
            this.saturate(sum, 16, true)
        })
    }

    fn psadbw(&mut self) -> Known<()> {
        self.each::<2>(|this, a, b| {
            let (a, b): ([_; 8], [_; 8]) = (this.split(a), this.split(b));
            let mut sum = this.zero(16);
            for (a, b) in a.into_iter().zip(b) {
                let less = this.m.ult(a, b);
                let (up, down) = (this.m.sub(b, a), this.m.sub(a, b));
                let distance = this.m.ite(less, up, down);
                let distance = this.m.zext(distance, 16);
                sum = this.m.add(sum, distance);
            }
            this.m.zext(sum, 64)
        })
    }

    fn average<const N: usize>(&mut self) -> Known<()> {
        self.each::<N>(|this, a, b| {
            let bits = this.m.bits(a);
            let (a, b) = (this.m.zext(a, bits + 1), this.m.zext(b, bits + 1));
            let one = this.constant(bits + 1, 1);
            let sum = this.m.add(a, b);
            let sum = this.m.add(sum, one);
            this.m.extract(sum, 1, bits)
        })
    }

    fn absolute<const N: usize>(&mut self) -> Known<()> {
        self.each_one::<N>(|this, value| {
            let negative = this.top_bit(value);
            let other = this.m.neg(value);
            this.m.ite(negative, other, value)
        })
    }

    fn sign<const N: usize>(&mut self) -> Known<()> {
        self.each::<N>(|this, a, b| {
            let bits = this.m.bits(a);
            let zero = this.zero(bits);
            let none = this.m.eq(b, zero);
            let negative = this.top_bit(b);
            let other = this.m.neg(a);
            let value = this.m.ite(negative, other, a);
            this.m.ite(none, zero, value)
        })
    }

    /// Sums or differences of neighbours: those of the first source are the lower ones.
    fn horizontal<const N: usize>(&mut self, subtract: bool, saturating: bool) -> Known<()> {
        self.lanewise(|this, a, b| {
            let (a, b): ([_; N], [_; N]) = (this.split(a), this.split(b));
            let bits = this.m.bits(a[0]);
            let result: [_; N] = from_fn(|number| {
                let (from, at) = if number < N / 2 {
                    (&a, 2 * number)
                } else {
                    (&b, 2 * number - N)
                };
                let (mut x, mut y) = (from[at], from[at + 1]);
                if saturating {
                    (x, y) = (this.m.sext(x, 2 * bits), this.m.sext(y, 2 * bits));
                }
                let sum = if subtract {
                    this.m.sub(x, y)
                } else {
                    this.m.add(x, y)
                };
                if saturating {
                    this.saturate(sum, bits, true)
                } else {
                    sum
                }
            });
            this.join(result)
        })
    }

    /// The signs of all elements into a general register.
    fn signs<const N: usize>(&mut self) -> Known<()> {
        let mut result = None;
        for lane in 0..self.lanes() {
            let value = self.lane(1, lane)?;
            let value: [_; N] = self.split(value);
            let signs: [_; N] = from_fn(|number| self.top_bit(value[number]));
            let signs = self.join(signs);
            result = Some(match result {
                Some(low) => self.m.concat(signs, low),
                None => signs,
            });
        }
        let bits = self.bits_of(0)?;
        let result = result.ok_or(Unsupported)?;
        let result = self.fit(result, bits);
        self.write(0, result)
    }

    /// `ptest`.
    fn test(&mut self) -> Known<()> {
        let (mut both, mut only) = (self.constant(1, 1), self.constant(1, 1));
        for lane in 0..self.lanes() {
            let a = self.lane(0, lane)?;
            let b = self.lane(1, lane)?;
            let common = self.m.and(a, b);
            let none = self.is_zero(common);
            both = self.m.and(both, none);
            let other = self.m.not(a);
            let rest = self.m.and(other, b);
            let none = self.is_zero(rest);
            only = self.m.and(only, none);
        }
        self.m.set_flag(Flag::Zero, both);
        self.m.set_flag(Flag::Carry, only);
        self.clear_flags(&[Flag::Overflow, Flag::Sign, Flag::Adjust, Flag::Parity]);
        Ok(())
    }

    /// `vtestps` and `vtestpd`: the same of signs only.
    fn test_signs<const N: usize>(&mut self) -> Known<()> {
        let (mut both, mut only) = (self.constant(1, 1), self.constant(1, 1));
        for lane in 0..self.lanes() {
            let a = self.lane(0, lane)?;
            let b = self.lane(1, lane)?;
            let (a, b): ([_; N], [_; N]) = (self.split(a), self.split(b));
            for (a, b) in a.into_iter().zip(b) {
                let (a, b) = (self.top_bit(a), self.top_bit(b));
                let common = self.m.and(a, b);
                let none = self.m.not(common);
                both = self.m.and(both, none);
                let other = self.m.not(b);
                let none = self.m.or(a, other);
                only = self.m.and(only, none);
            }
        }
        self.m.set_flag(Flag::Zero, both);
        self.m.set_flag(Flag::Carry, only);
        self.clear_flags(&[Flag::Overflow, Flag::Sign, Flag::Adjust, Flag::Parity]);
        Ok(())
    }

    /// `pclmulqdq`: a product without carries.
    fn carryless(&mut self) -> Known<()> {
        let control = self.immediate_of_last();
        self.lanewise(|this, a, b| {
            let (a, b): ([_; 2], [_; 2]) = (this.split(a), this.split(b));
            let (a, b) = (a[control & 1], b[control >> 4 & 1]);
            let a = this.m.zext(a, 128);
            let zero = this.zero(128);
            let mut sum = zero;
            for number in 0..64 {
                let bit = this.bit(b, number);
                let count = this.constant(128, u64::from(number));
                let moved = this.m.shl(a, count);
                let term = this.m.ite(bit, moved, zero);
                sum = this.m.xor(sum, term);
            }
            sum
        })
    }

    /// `pmovzx*` and `pmovsx*`: elements that become wider; `N` of them in a lane of the result.
    fn extend<const N: usize>(&mut self, from: u32, signed: bool) -> Known<()> {
        let bits = 128 / N as u32;
        let lanes = self.lanes();
        let source = self.read(1, lanes * N as u32 * from)?;
        let mut results = [None; 2];
        for lane in 0..lanes {
            let elements: [_; N] = from_fn(|number| {
                let at = (lane * N as u32 + number as u32) * from;
                let element = self.m.extract(source, at, from);
                if signed {
                    self.m.sext(element, bits)
                } else {
                    self.m.zext(element, bits)
                }
            });
            results[lane as usize] = Some(self.join(elements));
        }
        match results {
            [Some(low), high] => self.write_vector(0, low, high),
            _ => Err(Unsupported),
        }
    }

    /// By the signs of a mask, from the second source.
    fn blend_variable<const N: usize>(&mut self) -> Known<()> {
        self.lanewise_numbered(|this, lane, a, b| {
            let mask = this.blend_mask(lane)?;
            let mask: [_; N] = this.split(mask);
            let (a, b): ([_; N], [_; N]) = (this.split(a), this.split(b));
            let result: [_; N] = from_fn(|number| {
                let second = this.top_bit(mask[number]);
                this.m.ite(second, b[number], a[number])
            });
            Ok(this.join(result))
        })
    }

    /// By the bits of an immediate, which go on from lane to lane or begin again.
    fn blend<const N: usize>(&mut self, again: bool) -> Known<()> {
        let control = self.immediate_of_last();
        self.lanewise_numbered(|this, lane, a, b| {
            let control = if again {
                control
            } else {
                control >> (lane as usize * N)
            };
            let (a, b): ([_; N], [_; N]) = (this.split(a), this.split(b));
            Ok(this.join::<N>(from_fn(|number| {
                if control >> number & 1 == 1 {
                    b[number]
                } else {
                    a[number]
                }
            })))
        })
    }

    fn insertps(&mut self) -> Known<()> {
        let control = self.immediate_of_last();
        let first = self.first();
        let element = if self.is_memory(first + 1) {
            self.read(first + 1, 32)?
        } else {
            let source = self.lane(first + 1, 0)?;
            let source: [_; 4] = self.split(source);
            source[control >> 6]
        };
        let value = self.lane(first, 0)?;
        let mut value: [_; 4] = self.split(value);
        value[control >> 4 & 3] = element;
        let zero = self.zero(32);
        for (number, place) in value.iter_mut().enumerate() {
            if control >> number & 1 == 1 {
                *place = zero;
            }
        }
        let value = self.join(value);
        self.write_vector(0, value, None)
    }

    /// Chosen elements of operand 1, in every lane.
    fn rearrange<const N: usize>(&mut self, from: [usize; N]) -> Known<()> {
        self.lanewise_one(|this, value| {
            let value: [_; N] = this.split(value);
            this.join(from.map(|number| value[number]))
        })
    }

    /// `movddup`, which of memory reads 64 bits only.
    fn movddup(&mut self) -> Known<()> {
        if self.lanes() == 2 || !self.is_memory(1) {
            return self.rearrange::<2>([0, 0]);
        }
        let value = self.read(1, 64)?;
        let value = self.m.concat(value, value);
        self.write_vector(0, value, None)
    }

    /// Whether there was a rule.
    pub(crate) fn elements(&mut self, mnemonic: Mnemonic) -> Known<bool> {
        use Direction::{Left, Right, RightSigned};
        use Mnemonic as N;
        if !(0..self.i.op_count()).any(|operand| self.is_vector(operand)) {
            return Ok(false);
        }
        match mnemonic {
            N::Pxor | N::Xorps | N::Xorpd | N::Vpxor | N::Vxorps | N::Vxorpd => {
                self.lanewise(|this, a, b| this.m.xor(a, b))?;
            }
            N::Por | N::Orps | N::Orpd | N::Vpor | N::Vorps | N::Vorpd => {
                self.lanewise(|this, a, b| this.m.or(a, b))?;
            }
            N::Pand | N::Andps | N::Andpd | N::Vpand | N::Vandps | N::Vandpd => {
                self.lanewise(|this, a, b| this.m.and(a, b))?;
            }
            N::Pandn | N::Andnps | N::Andnpd | N::Vpandn | N::Vandnps | N::Vandnpd => {
                self.lanewise(|this, a, b| {
                    let a = this.m.not(a);
                    this.m.and(a, b)
                })?;
            }
            N::Paddb | N::Vpaddb => self.each::<16>(|this, a, b| this.m.add(a, b))?,
            N::Paddw | N::Vpaddw => self.each::<8>(|this, a, b| this.m.add(a, b))?,
            N::Paddd | N::Vpaddd => self.each::<4>(|this, a, b| this.m.add(a, b))?,
            N::Paddq | N::Vpaddq => self.each::<2>(|this, a, b| this.m.add(a, b))?,
            N::Psubb | N::Vpsubb => self.each::<16>(|this, a, b| this.m.sub(a, b))?,
            N::Psubw | N::Vpsubw => self.each::<8>(|this, a, b| this.m.sub(a, b))?,
            N::Psubd | N::Vpsubd => self.each::<4>(|this, a, b| this.m.sub(a, b))?,
            N::Psubq | N::Vpsubq => self.each::<2>(|this, a, b| this.m.sub(a, b))?,
            N::Paddsb | N::Vpaddsb => self.add_saturating::<16>(true, false)?,
            N::Paddsw | N::Vpaddsw => self.add_saturating::<8>(true, false)?,
            N::Paddusb | N::Vpaddusb => self.add_saturating::<16>(false, false)?,
            N::Paddusw | N::Vpaddusw => self.add_saturating::<8>(false, false)?,
            N::Psubsb | N::Vpsubsb => self.add_saturating::<16>(true, true)?,
            N::Psubsw | N::Vpsubsw => self.add_saturating::<8>(true, true)?,
            N::Psubusb | N::Vpsubusb => self.add_saturating::<16>(false, true)?,
            N::Psubusw | N::Vpsubusw => self.add_saturating::<8>(false, true)?,
            N::Pcmpeqb | N::Vpcmpeqb => self.equal::<16>()?,
            N::Pcmpeqw | N::Vpcmpeqw => self.equal::<8>()?,
            N::Pcmpeqd | N::Vpcmpeqd => self.equal::<4>()?,
            N::Pcmpeqq | N::Vpcmpeqq => self.equal::<2>()?,
            N::Pcmpgtb | N::Vpcmpgtb => self.greater::<16>()?,
            N::Pcmpgtw | N::Vpcmpgtw => self.greater::<8>()?,
            N::Pcmpgtd | N::Vpcmpgtd => self.greater::<4>()?,
            N::Pcmpgtq | N::Vpcmpgtq => self.greater::<2>()?,
            N::Pminub | N::Vpminub => self.choose::<16>(false, false)?,
            N::Pminuw | N::Vpminuw => self.choose::<8>(false, false)?,
            N::Pminud | N::Vpminud => self.choose::<4>(false, false)?,
            N::Pminsb | N::Vpminsb => self.choose::<16>(true, false)?,
            N::Pminsw | N::Vpminsw => self.choose::<8>(true, false)?,
            N::Pminsd | N::Vpminsd => self.choose::<4>(true, false)?,
            N::Pmaxub | N::Vpmaxub => self.choose::<16>(false, true)?,
            N::Pmaxuw | N::Vpmaxuw => self.choose::<8>(false, true)?,
            N::Pmaxud | N::Vpmaxud => self.choose::<4>(false, true)?,
            N::Pmaxsb | N::Vpmaxsb => self.choose::<16>(true, true)?,
            N::Pmaxsw | N::Vpmaxsw => self.choose::<8>(true, true)?,
            N::Pmaxsd | N::Vpmaxsd => self.choose::<4>(true, true)?,
            N::Pmovmskb | N::Vpmovmskb => self.signs::<16>()?,
            N::Movmskps | N::Vmovmskps => self.signs::<4>()?,
            N::Movmskpd | N::Vmovmskpd => self.signs::<2>()?,
            N::Punpcklbw | N::Vpunpcklbw => self.unpack::<16>(false)?,
            N::Punpcklwd | N::Vpunpcklwd => self.unpack::<8>(false)?,
            N::Punpckldq | N::Unpcklps | N::Vpunpckldq | N::Vunpcklps => {
                self.unpack::<4>(false)?;
            }
            N::Punpcklqdq | N::Unpcklpd | N::Vpunpcklqdq | N::Vunpcklpd => {
                self.unpack::<2>(false)?;
            }
            N::Punpckhbw | N::Vpunpckhbw => self.unpack::<16>(true)?,
            N::Punpckhwd | N::Vpunpckhwd => self.unpack::<8>(true)?,
            N::Punpckhdq | N::Unpckhps | N::Vpunpckhdq | N::Vunpckhps => {
                self.unpack::<4>(true)?;
            }
            N::Punpckhqdq | N::Unpckhpd | N::Vpunpckhqdq | N::Vunpckhpd => {
                self.unpack::<2>(true)?;
            }
            N::Packuswb | N::Vpackuswb => self.pack::<8>(false)?,
            N::Packsswb | N::Vpacksswb => self.pack::<8>(true)?,
            N::Packusdw | N::Vpackusdw => self.pack::<4>(false)?,
            N::Packssdw | N::Vpackssdw => self.pack::<4>(true)?,
            N::Pshufd | N::Vpshufd => self.pshufd()?,
            N::Pshuflw | N::Vpshuflw => self.pshufw(false)?,
            N::Pshufhw | N::Vpshufhw => self.pshufw(true)?,
            N::Pshufb | N::Vpshufb => self.pshufb()?,
            N::Shufps | N::Vshufps => self.shufps()?,
            N::Shufpd | N::Vshufpd => self.shufpd()?,
            N::Vpermilps => self.vpermilps()?,
            N::Vpermilpd => self.vpermilpd()?,
            N::Vpermq | N::Vpermpd => self.permute_quads()?,
            N::Vpermd | N::Vpermps => self.permute_doubles()?,
            N::Psllw | N::Vpsllw => self.shift_elements::<8>(Left)?,
            N::Pslld | N::Vpslld => self.shift_elements::<4>(Left)?,
            N::Psllq | N::Vpsllq => self.shift_elements::<2>(Left)?,
            N::Psrlw | N::Vpsrlw => self.shift_elements::<8>(Right)?,
            N::Psrld | N::Vpsrld => self.shift_elements::<4>(Right)?,
            N::Psrlq | N::Vpsrlq => self.shift_elements::<2>(Right)?,
            N::Psraw | N::Vpsraw => self.shift_elements::<8>(RightSigned)?,
            N::Psrad | N::Vpsrad => self.shift_elements::<4>(RightSigned)?,
            N::Vpsllvd => self.each::<4>(|this, a, b| this.shift_one(a, b, Left))?,
            N::Vpsllvq => self.each::<2>(|this, a, b| this.shift_one(a, b, Left))?,
            N::Vpsrlvd => self.each::<4>(|this, a, b| this.shift_one(a, b, Right))?,
            N::Vpsrlvq => self.each::<2>(|this, a, b| this.shift_one(a, b, Right))?,
            N::Vpsravd => self.each::<4>(|this, a, b| this.shift_one(a, b, RightSigned))?,
            N::Pslldq | N::Vpslldq => self.shift_bytes(Left)?,
            N::Psrldq | N::Vpsrldq => self.shift_bytes(Right)?,
            N::Palignr | N::Vpalignr => self.palignr()?,
            N::Pmuludq | N::Vpmuludq => self.multiply_even(false)?,
            N::Pmuldq | N::Vpmuldq => self.multiply_even(true)?,
            N::Pmullw | N::Vpmullw => self.low_product::<8>()?,
            N::Pmulld | N::Vpmulld => self.low_product::<4>()?,
            N::Pmulhw | N::Vpmulhw => self.multiply::<8>(true, 16)?,
            N::Pmulhuw | N::Vpmulhuw => self.multiply::<8>(false, 16)?,
            N::Pmulhrsw | N::Vpmulhrsw => self.pmulhrsw()?,
            N::Pmaddwd | N::Vpmaddwd => self.pmaddwd()?,
            N::Pmaddubsw | N::Vpmaddubsw => self.pmaddubsw()?,
            N::Psadbw | N::Vpsadbw => self.psadbw()?,
            N::Pavgb | N::Vpavgb => self.average::<16>()?,
            N::Pavgw | N::Vpavgw => self.average::<8>()?,
            N::Pabsb | N::Vpabsb => self.absolute::<16>()?,
            N::Pabsw | N::Vpabsw => self.absolute::<8>()?,
            N::Pabsd | N::Vpabsd => self.absolute::<4>()?,
            N::Psignb | N::Vpsignb => self.sign::<16>()?,
            N::Psignw | N::Vpsignw => self.sign::<8>()?,
            N::Psignd | N::Vpsignd => self.sign::<4>()?,
            N::Phaddw | N::Vphaddw => self.horizontal::<8>(false, false)?,
            N::Phaddd | N::Vphaddd => self.horizontal::<4>(false, false)?,
            N::Phaddsw | N::Vphaddsw => self.horizontal::<8>(false, true)?,
            N::Phsubw | N::Vphsubw => self.horizontal::<8>(true, false)?,
            N::Phsubd | N::Vphsubd => self.horizontal::<4>(true, false)?,
            N::Phsubsw | N::Vphsubsw => self.horizontal::<8>(true, true)?,
            N::Ptest | N::Vptest => self.test()?,
            N::Vtestps => self.test_signs::<4>()?,
            N::Vtestpd => self.test_signs::<2>()?,
            N::Pclmulqdq | N::Vpclmulqdq => self.carryless()?,
            N::Pmovzxbw | N::Vpmovzxbw => self.extend::<8>(8, false)?,
            N::Pmovzxbd | N::Vpmovzxbd => self.extend::<4>(8, false)?,
            N::Pmovzxbq | N::Vpmovzxbq => self.extend::<2>(8, false)?,
            N::Pmovzxwd | N::Vpmovzxwd => self.extend::<4>(16, false)?,
            N::Pmovzxwq | N::Vpmovzxwq => self.extend::<2>(16, false)?,
            N::Pmovzxdq | N::Vpmovzxdq => self.extend::<2>(32, false)?,
            N::Pmovsxbw | N::Vpmovsxbw => self.extend::<8>(8, true)?,
            N::Pmovsxbd | N::Vpmovsxbd => self.extend::<4>(8, true)?,
            N::Pmovsxbq | N::Vpmovsxbq => self.extend::<2>(8, true)?,
            N::Pmovsxwd | N::Vpmovsxwd => self.extend::<4>(16, true)?,
            N::Pmovsxwq | N::Vpmovsxwq => self.extend::<2>(16, true)?,
            N::Pmovsxdq | N::Vpmovsxdq => self.extend::<2>(32, true)?,
            N::Pblendvb | N::Vpblendvb => self.blend_variable::<16>()?,
            N::Blendvps | N::Vblendvps => self.blend_variable::<4>()?,
            N::Blendvpd | N::Vblendvpd => self.blend_variable::<2>()?,
            N::Pblendw | N::Vpblendw => self.blend::<8>(true)?,
            N::Vpblendd | N::Blendps | N::Vblendps => self.blend::<4>(false)?,
            N::Blendpd | N::Vblendpd => self.blend::<2>(false)?,
            N::Insertps | N::Vinsertps => self.insertps()?,
            N::Movddup | N::Vmovddup => self.movddup()?,
            N::Movsldup | N::Vmovsldup => self.rearrange::<4>([0, 0, 2, 2])?,
            N::Movshdup | N::Vmovshdup => self.rearrange::<4>([1, 1, 3, 3])?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

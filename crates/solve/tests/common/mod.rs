//! Random expressions, made twice: through the pool, and as a tree that nothing simplifies.
#![allow(dead_code)]

use brownout_solve::{Expr, Pool};

/// An operation as it was asked for; operands are indices.
#[derive(Clone, Debug)]
pub enum Plain {
    Constant(u128),
    Input(u32),
    Unary(&'static str, usize),
    Binary(&'static str, usize, usize),
    Ite(usize, usize, usize),
    Concat(usize, usize),
    Extract(usize, u32),
    Zext(usize),
    Sext(usize),
}

/// One step of making an expression, of numbers that may be anything.
pub type Step = (u8, u8, u8, u8, u64);

/// Both forms, side by side.
#[derive(Default)]
pub struct Both {
    pub pool: Pool,
    pub expressions: Vec<Expr>,
    pub plain: Vec<(u32, Plain)>,
    inputs: u32,
}

const WIDTHS: [u32; 12] = [1, 2, 7, 8, 9, 16, 24, 32, 33, 64, 96, 128];

pub const BINARY: [&str; 16] = [
    "add", "sub", "mul", "udiv", "urem", "sdiv", "srem", "and", "or", "xor", "shl", "lshr", "ashr",
    "eq", "ult", "slt",
];

impl Both {
    pub fn new(inputs: u32) -> Both {
        let mut both = Both {
            inputs,
            ..Both::default()
        };
        for input in 0..inputs {
            let e = both.pool.input(input);
            both.push(e, 8, Plain::Input(input));
        }
        both
    }

    fn push(&mut self, e: Expr, bits: u32, plain: Plain) -> usize {
        assert_eq!(self.pool.bits(e), bits, "{plain:?}");
        self.expressions.push(e);
        self.plain.push((bits, plain));
        self.plain.len() - 1
    }

    fn pick(&self, number: u8) -> usize {
        // Recent ones more often, so that expressions become deep.
        let len = self.plain.len();
        let number = usize::from(number);
        if number.is_multiple_of(3) {
            number / 3 % len
        } else {
            len - 1 - (number / 3) % len.min(4)
        }
    }

    fn bits(&self, at: usize) -> u32 {
        self.plain[at].0
    }

    pub fn constant(&mut self, bits: u32, number: u64) -> usize {
        let ones = ones(bits);
        let value = match number % 9 {
            0 => 0,
            1 => 1,
            2 => ones,
            3 => 1 << (number / 9 % u64::from(bits)),
            4 => ones >> (number / 9 % u64::from(bits)),
            5 => (number / 9 % 16).into(),
            6 => (number / 9 % 256).into(),
            7 => !u128::from(number / 9 % 256),
            _ => u128::from(number) << 64 | u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        } & ones;
        let e = self.pool.constant(bits, value);
        self.push(e, bits, Plain::Constant(value))
    }

    /// The same value with this width.
    pub fn resized(&mut self, at: usize, bits: u32, how: u8) -> usize {
        let old = self.bits(at);
        if old == bits {
            return at;
        }
        let e = self.expressions[at];
        if old > bits {
            let low = if how.is_multiple_of(2) {
                0
            } else {
                u32::from(how) % (old - bits + 1)
            };
            let e = self.pool.extract(e, low, bits);
            return self.push(e, bits, Plain::Extract(at, low));
        }
        match how % 3 {
            0 => {
                let e = self.pool.sext(e, bits);
                self.push(e, bits, Plain::Sext(at))
            }
            1 => {
                let other = self.constant(bits - old, how.into());
                let e = self.pool.concat(e, self.expressions[other]);
                self.push(e, bits, Plain::Concat(at, other))
            }
            _ => {
                let e = self.pool.zext(e, bits);
                self.push(e, bits, Plain::Zext(at))
            }
        }
    }

    pub fn binary(&mut self, name: &'static str, a: usize, b: usize) -> usize {
        let (x, y) = (self.expressions[a], self.expressions[b]);
        let pool = &mut self.pool;
        let e = match name {
            "add" => pool.add(x, y),
            "sub" => pool.sub(x, y),
            "mul" => pool.mul(x, y),
            "udiv" => pool.udiv(x, y),
            "urem" => pool.urem(x, y),
            "sdiv" => pool.sdiv(x, y),
            "srem" => pool.srem(x, y),
            "and" => pool.and(x, y),
            "or" => pool.or(x, y),
            "xor" => pool.xor(x, y),
            "shl" => pool.shl(x, y),
            "lshr" => pool.lshr(x, y),
            "ashr" => pool.ashr(x, y),
            "eq" => pool.eq(x, y),
            "ult" => pool.ult(x, y),
            "slt" => pool.slt(x, y),
            _ => unreachable!("{name}"),
        };
        let bits = if matches!(name, "eq" | "ult" | "slt") {
            1
        } else {
            self.bits(a)
        };
        self.push(e, bits, Plain::Binary(name, a, b))
    }

    pub fn not(&mut self, a: usize) -> usize {
        let e = self.pool.not(self.expressions[a]);
        self.push(e, self.bits(a), Plain::Unary("not", a))
    }

    /// The condition that this is not zero, or itself if it is one bit.
    pub fn condition(&mut self, at: usize, number: u64) -> usize {
        if self.bits(at) == 1 {
            return at;
        }
        let k = self.constant(self.bits(at), number);
        self.binary(["eq", "ult", "slt"][number as usize / 7 % 3], at, k)
    }

    pub fn step(&mut self, (op, a, b, c, number): Step, widest: u32) {
        let a = self.pick(a);
        match op % 24 {
            op @ 0..=15 => {
                let name = BINARY[usize::from(op)];
                let bits = self.bits(a);
                let y = if number.is_multiple_of(2) {
                    self.constant(bits, number / 2)
                } else {
                    let b = self.pick(b);
                    self.resized(b, bits, c)
                };
                if c % 5 == 0 {
                    self.binary(name, y, a)
                } else {
                    self.binary(name, a, y)
                };
            }
            16 => {
                self.not(a);
            }
            17 => {
                let e = self.pool.neg(self.expressions[a]);
                self.push(e, self.bits(a), Plain::Unary("neg", a));
            }
            18 | 19 => {
                let condition = self.pick(b);
                let condition = self.condition(condition, number);
                let bits = self.bits(a);
                let other = if number.is_multiple_of(2) {
                    self.constant(bits, number / 2)
                } else {
                    let c = self.pick(c);
                    self.resized(c, bits, b)
                };
                let then = if c % 3 == 0 {
                    self.constant(bits, number / 3)
                } else {
                    a
                };
                let [x, y, z] = [condition, then, other].map(|at| self.expressions[at]);
                let e = self.pool.ite(x, y, z);
                self.push(e, bits, Plain::Ite(condition, then, other));
            }
            20 => {
                let b = self.pick(b);
                if self.bits(a) + self.bits(b) <= widest {
                    let e = self.pool.concat(self.expressions[a], self.expressions[b]);
                    self.push(e, self.bits(a) + self.bits(b), Plain::Concat(a, b));
                }
            }
            _ => {
                let widths = WIDTHS.iter().filter(|&&bits| bits <= widest).count();
                self.resized(a, WIDTHS[usize::from(b) % widths], c);
            }
        }
    }

    /// The values of all, by definition.
    pub fn values(&self, input: &dyn Fn(u32) -> u8) -> Vec<u128> {
        let mut values: Vec<u128> = Vec::new();
        for (bits, plain) in &self.plain {
            let bits = *bits;
            let value = match *plain {
                Plain::Constant(value) => value,
                Plain::Input(index) => input(index).into(),
                Plain::Unary("not", a) => !values[a],
                Plain::Unary(_, a) => 0u128.wrapping_sub(values[a]),
                Plain::Binary(name, a, b) => binary(name, self.bits(a), values[a], values[b]),
                Plain::Ite(a, b, c) => values[if values[a] == 1 { b } else { c }],
                Plain::Concat(a, b) => values[a] << self.bits(b) | values[b],
                Plain::Extract(a, low) => values[a] >> low,
                Plain::Zext(a) => values[a],
                Plain::Sext(a) => {
                    let old = self.bits(a);
                    if values[a] >> (old - 1) == 1 {
                        values[a] | u128::MAX << old
                    } else {
                        values[a]
                    }
                }
            };
            values.push(value & ones(bits));
        }
        values
    }
}

pub fn ones(bits: u32) -> u128 {
    u128::MAX >> (128 - bits)
}

fn negative(value: u128, bits: u32) -> bool {
    value >> (bits - 1) & 1 == 1
}

/// SMT-LIB's definitions, in its words: signed operations by unsigned ones.
pub fn binary(name: &str, bits: u32, a: u128, b: u128) -> u128 {
    let ones = ones(bits);
    let neg = |value: u128| value.wrapping_neg() & ones;
    let abs = |value: u128| {
        if negative(value, bits) {
            neg(value)
        } else {
            value
        }
    };
    let udiv = |a: u128, b: u128| a.checked_div(b).unwrap_or(ones);
    let urem = |a: u128, b: u128| a.checked_rem(b).unwrap_or(a);
    let value = match name {
        "add" => a.wrapping_add(b),
        "sub" => a.wrapping_sub(b),
        "mul" => a.wrapping_mul(b),
        "udiv" => udiv(a, b),
        "urem" => urem(a, b),
        "sdiv" => {
            let quotient = udiv(abs(a), abs(b));
            if negative(a, bits) != negative(b, bits) {
                neg(quotient)
            } else {
                quotient
            }
        }
        "srem" => {
            let remainder = urem(abs(a), abs(b));
            if negative(a, bits) {
                neg(remainder)
            } else {
                remainder
            }
        }
        "and" => a & b,
        "or" => a | b,
        "xor" => a ^ b,
        "shl" => (0..b.min(bits.into())).fold(a, |value, _| value << 1 & ones),
        "lshr" => (0..b.min(bits.into())).fold(a, |value, _| value >> 1),
        "ashr" => {
            let sign = a & 1 << (bits - 1);
            (0..b.min(bits.into())).fold(a, |value, _| value >> 1 | sign)
        }
        "eq" => (a == b).into(),
        "ult" => (a < b).into(),
        // With the signs inverted, the order is the unsigned one.
        "slt" => (a ^ 1 << (bits - 1) < b ^ 1 << (bits - 1)).into(),
        _ => unreachable!("{name}"),
    };
    value & ones
}

//! Circuits of gates over single bits, and words of them.
//!
//! # Guarantee
//!
//! Equal gates are one gate, and a gate whose value its inputs fix is no gate. What each word-level
//! circuit computes is tested against the definition of the operation, at all usual widths.
//!
//! # Source
//!
//! Gates are and, exclusive or, the choice of one of two, and the majority of three, because an
//! adder is made of exclusive ors and majorities; their clauses are those of G. Tseitin's
//! translation. Products by constants use the non-adjacent form. Division is the school's.

use rustc_hash::FxHashMap;

/// A bit: a gate's number, shifted, and whether it is inverted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Bit(pub(crate) u32);

impl Bit {
    pub(crate) const FALSE: Bit = Bit(0);
    pub(crate) const TRUE: Bit = Bit(1);

    pub(crate) fn gate(self) -> usize {
        (self.0 >> 1) as usize
    }

    pub(crate) fn inverted(self) -> bool {
        self.0 & 1 == 1
    }

    fn constant(value: bool) -> Bit {
        Bit(value.into())
    }

    fn is_constant(self) -> bool {
        self.0 < 2
    }
}

impl std::ops::Not for Bit {
    type Output = Bit;

    fn not(self) -> Bit {
        Bit(self.0 ^ 1)
    }
}

/// What a gate computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Gate {
    /// Gate 0, which is false.
    False,
    /// A bit that is free.
    Free,
    And(Bit, Bit),
    Xor(Bit, Bit),
    /// The second if the first, else the third.
    Choose(Bit, Bit, Bit),
    Majority(Bit, Bit, Bit),
}

/// A word: its bits, the lowest first.
pub(crate) type Word = Vec<Bit>;

/// All gates of a query.
#[derive(Debug)]
pub(crate) struct Gates {
    pub(crate) gates: Vec<Gate>,
    known: FxHashMap<Gate, Bit>,
}

impl Default for Gates {
    fn default() -> Gates {
        Gates {
            gates: vec![Gate::False],
            known: FxHashMap::default(),
        }
    }
}

impl Gates {
    pub(crate) fn free(&mut self) -> Bit {
        self.gates.push(Gate::Free);
        Bit((self.gates.len() as u32 - 1) << 1)
    }

    fn gate(&mut self, gate: Gate) -> Bit {
        let next = Bit((self.gates.len() as u32) << 1);
        let bit = *self.known.entry(gate).or_insert(next);
        if bit == next {
            self.gates.push(gate);
        }
        bit
    }

    pub(crate) fn and(&mut self, a: Bit, b: Bit) -> Bit {
        let (a, b) = (a.min(b), a.max(b));
        if a == Bit::FALSE || a == !b {
            Bit::FALSE
        } else if a == Bit::TRUE || a == b {
            b
        } else {
            self.gate(Gate::And(a, b))
        }
    }

    pub(crate) fn or(&mut self, a: Bit, b: Bit) -> Bit {
        !self.and(!a, !b)
    }

    pub(crate) fn xor(&mut self, a: Bit, b: Bit) -> Bit {
        let invert = a.inverted() != b.inverted();
        let (a, b) = (Bit(a.0 & !1), Bit(b.0 & !1));
        let (a, b) = (a.min(b), a.max(b));
        let value = if a == b {
            Bit::FALSE
        } else if a == Bit::FALSE {
            b
        } else {
            self.gate(Gate::Xor(a, b))
        };
        Bit(value.0 ^ u32::from(invert))
    }

    pub(crate) fn choose(&mut self, condition: Bit, then: Bit, otherwise: Bit) -> Bit {
        if condition.inverted() {
            return self.choose_by(!condition, otherwise, then);
        }
        self.choose_by(condition, then, otherwise)
    }

    fn choose_by(&mut self, condition: Bit, then: Bit, otherwise: Bit) -> Bit {
        if condition == Bit::FALSE {
            return otherwise;
        }
        if then == otherwise {
            return then;
        }
        if then == !otherwise {
            return self.xor(condition, otherwise);
        }
        if then.is_constant() || then == condition || then == !condition {
            let known = if then.is_constant() {
                then
            } else {
                Bit::constant(then == condition)
            };
            return if known == Bit::TRUE {
                self.or(condition, otherwise)
            } else {
                self.and(!condition, otherwise)
            };
        }
        if otherwise.is_constant() || otherwise == condition || otherwise == !condition {
            let known = if otherwise.is_constant() {
                otherwise
            } else {
                Bit::constant(otherwise != condition)
            };
            return if known == Bit::TRUE {
                self.or(!condition, then)
            } else {
                self.and(condition, then)
            };
        }
        if then.inverted() {
            return !self.gate(Gate::Choose(condition, !then, !otherwise));
        }
        self.gate(Gate::Choose(condition, then, otherwise))
    }

    pub(crate) fn majority(&mut self, a: Bit, b: Bit, c: Bit) -> Bit {
        let mut sorted = [a, b, c];
        sorted.sort_unstable();
        let [a, b, c] = sorted;
        // Equal and opposite bits are neighbours, and constants are first.
        if a == Bit::FALSE {
            self.and(b, c)
        } else if a == Bit::TRUE {
            self.or(b, c)
        } else if a == b || b == c {
            b
        } else if a == !b {
            c
        } else if b == !c {
            a
        } else if a.inverted() {
            !self.gate(Gate::Majority(!a, !b, !c))
        } else {
            self.gate(Gate::Majority(a, b, c))
        }
    }

    pub(crate) fn constant(value: u128, bits: u32) -> Word {
        (0..bits)
            .map(|bit| Bit::constant(value >> bit & 1 == 1))
            .collect()
    }

    fn value(word: &[Bit]) -> Option<u128> {
        word.iter().rev().try_fold(0, |value, bit| {
            bit.is_constant()
                .then_some(value << 1 | u128::from(*bit == Bit::TRUE))
        })
    }

    fn add_carry(&mut self, a: &[Bit], b: &[Bit], mut carry: Bit) -> Word {
        let mut sum = Word::with_capacity(a.len());
        for (&x, &y) in a.iter().zip(b) {
            let half = self.xor(x, y);
            sum.push(self.xor(half, carry));
            carry = self.majority(x, y, carry);
        }
        sum
    }

    pub(crate) fn add(&mut self, a: &[Bit], b: &[Bit]) -> Word {
        self.add_carry(a, b, Bit::FALSE)
    }

    pub(crate) fn sub(&mut self, a: &[Bit], b: &[Bit]) -> Word {
        let inverted = not(b);
        self.add_carry(a, &inverted, Bit::TRUE)
    }

    pub(crate) fn neg(&mut self, a: &[Bit]) -> Word {
        self.sub(&vec![Bit::FALSE; a.len()], a)
    }

    pub(crate) fn mul(&mut self, a: &[Bit], b: &[Bit]) -> Word {
        let bits = a.len();
        let constants = |word: &[Bit]| word.iter().filter(|bit| bit.is_constant()).count();
        let (a, b) = if constants(a) > constants(b) {
            (b, a)
        } else {
            (a, b)
        };
        let mut sum = vec![Bit::FALSE; bits];
        if let Some(mut k) = Self::value(b) {
            // The non-adjacent form: digits 1, 0 and -1, of which at most every second is not 0.
            let mut at = 0;
            while k != 0 && at < bits {
                if k & 1 == 1 {
                    let shifted = &a[..bits - at];
                    let high = if k & 3 == 3 {
                        k = k.wrapping_add(1);
                        self.sub(&sum[at..], shifted)
                    } else {
                        k -= 1;
                        self.add(&sum[at..], shifted)
                    };
                    sum.truncate(at);
                    sum.extend(high);
                }
                k >>= 1;
                at += 1;
            }
            return sum;
        }
        for (at, &digit) in b.iter().enumerate() {
            if digit == Bit::FALSE {
                continue;
            }
            let row: Word = a[..bits - at]
                .iter()
                .map(|&bit| self.and(bit, digit))
                .collect();
            let high = self.add(&sum[at..], &row);
            sum.truncate(at);
            sum.extend(high);
        }
        sum
    }

    /// Quotient and remainder, with all ones and the dividend if the divisor is zero.
    pub(crate) fn divide(&mut self, a: &[Bit], b: &[Bit]) -> (Word, Word) {
        let bits = a.len();
        let mut quotient = vec![Bit::FALSE; bits];
        // As far as the remainder can have bits that are not zero.
        let mut remainder: Word = Vec::new();
        // above[i]: whether the divisor has a bit at i or above.
        let mut above = vec![Bit::FALSE; bits + 1];
        for bit in (0..bits).rev() {
            above[bit] = self.or(above[bit + 1], b[bit]);
        }
        for at in (0..bits).rev() {
            remainder.insert(0, a[at]);
            while remainder.last() == Some(&Bit::FALSE) {
                remainder.pop();
            }
            // The remainder may be one bit longer than the divisor; it is smaller after this step.
            let width = remainder.len();
            let mut divisor: Word = b[..width.min(bits)].to_vec();
            divisor.resize(width, Bit::FALSE);
            let smaller = self.ult(&remainder, &divisor);
            let fits = self.and(!smaller, !above[width.min(bits)]);
            let difference = self.sub(&remainder, &divisor);
            remainder = remainder
                .iter()
                .zip(difference)
                .map(|(&old, new)| self.choose(fits, new, old))
                .collect();
            quotient[at] = fits;
        }
        remainder.resize(bits.max(remainder.len()), Bit::FALSE);
        remainder.truncate(bits);
        (quotient, remainder)
    }

    pub(crate) fn divide_signed(&mut self, a: &[Bit], b: &[Bit]) -> (Word, Word) {
        let (a_sign, b_sign) = (sign(a), sign(b));
        let (a, b) = (self.negate_if(a_sign, a), self.negate_if(b_sign, b));
        let (quotient, remainder) = self.divide(&a, &b);
        let differ = self.xor(a_sign, b_sign);
        (
            self.negate_if(differ, &quotient),
            self.negate_if(a_sign, &remainder),
        )
    }

    fn negate_if(&mut self, condition: Bit, word: &[Bit]) -> Word {
        let flipped: Word = word.iter().map(|&bit| self.xor(bit, condition)).collect();
        self.add_carry(&flipped, &vec![Bit::FALSE; word.len()], condition)
    }

    /// Shifted right, or left if the words are given and taken the other way round.
    pub(crate) fn shift_right(&mut self, a: &[Bit], by: &[Bit], fill: Bit) -> Word {
        let bits = a.len();
        let mut word = a.to_vec();
        let mut too_far = Bit::FALSE;
        for (stage, &bit) in by.iter().enumerate() {
            let distance = if stage < 8 { 1 << stage } else { bits };
            if distance >= bits {
                too_far = self.or(too_far, bit);
                continue;
            }
            word = (0..bits)
                .map(|at| {
                    let moved = word.get(at + distance).copied().unwrap_or(fill);
                    self.choose(bit, moved, word[at])
                })
                .collect();
        }
        word.into_iter()
            .map(|bit| self.choose(too_far, fill, bit))
            .collect()
    }

    pub(crate) fn shift_left(&mut self, a: &[Bit], by: &[Bit]) -> Word {
        let reversed: Word = a.iter().rev().copied().collect();
        let mut word = self.shift_right(&reversed, by, Bit::FALSE);
        word.reverse();
        word
    }

    pub(crate) fn eq(&mut self, a: &[Bit], b: &[Bit]) -> Bit {
        a.iter().zip(b).fold(Bit::TRUE, |equal, (&x, &y)| {
            let differ = self.xor(x, y);
            self.and(equal, !differ)
        })
    }

    pub(crate) fn ult(&mut self, a: &[Bit], b: &[Bit]) -> Bit {
        a.iter()
            .zip(b)
            .fold(Bit::FALSE, |less, (&x, &y)| self.majority(!x, y, less))
    }

    pub(crate) fn slt(&mut self, a: &[Bit], b: &[Bit]) -> Bit {
        let top = a.len() - 1;
        let less = self.ult(&a[..top], &b[..top]);
        self.majority(a[top], !b[top], less)
    }
}

pub(crate) fn not(word: &[Bit]) -> Word {
    word.iter().map(|&bit| !bit).collect()
}

/// The highest bit.
pub(crate) fn sign(word: &[Bit]) -> Bit {
    word.last().copied().unwrap_or(Bit::FALSE)
}

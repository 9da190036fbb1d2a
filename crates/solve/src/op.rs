//! What each operation means.
//!
//! # Guarantee
//!
//! [`apply`] is the only place where an operation on values is defined. Folding of constants,
//! evaluation and compiled programs use it; the gates and the lanes are tested against it.
//!
//! # Source
//!
//! The theory of fixed-size bit vectors of SMT-LIB 2.6.

/// An operation, as stored in a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Op {
    /// A constant below 2^96, in the three operands.
    Const,
    /// A larger constant: the index into a table.
    Wide,
    /// A byte of the input, whose index is the first operand.
    Input,
    Add,
    Sub,
    Mul,
    Udiv,
    Urem,
    Sdiv,
    Srem,
    And,
    Or,
    Xor,
    Shl,
    Lshr,
    Ashr,
    Not,
    Neg,
    Eq,
    Ult,
    Slt,
    Ite,
    /// High, low.
    Concat,
    /// Of the first operand, from the bit whose number is the second.
    Extract,
    Zext,
    Sext,
}

impl Op {
    /// How many operands are expressions.
    pub(crate) fn arity(self) -> usize {
        match self {
            Op::Const | Op::Wide | Op::Input => 0,
            Op::Not | Op::Neg | Op::Extract | Op::Zext | Op::Sext => 1,
            Op::Ite => 3,
            _ => 2,
        }
    }

    /// Whether the operands may change places.
    pub(crate) fn commutes(self) -> bool {
        matches!(
            self,
            Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor | Op::Eq
        )
    }
}

/// So many ones.
pub(crate) fn mask(bits: u32) -> u128 {
    if bits >= 128 {
        u128::MAX
    } else {
        (1 << bits) - 1
    }
}

/// A value of this width as a signed number.
pub(crate) fn signed(value: u128, bits: u32) -> i128 {
    let unused = 128 - bits;
    ((value << unused) as i128) >> unused
}

/// The result of an operation of width `bits`.
///
/// `aux` is the width of the first operand; of the second for [`Op::Concat`]; and the lowest bit
/// that is taken for [`Op::Extract`].
pub(crate) fn apply(op: Op, bits: u32, aux: u32, a: u128, b: u128, c: u128) -> u128 {
    let value = match op {
        Op::Const | Op::Wide | Op::Input => a,
        Op::Add => a.wrapping_add(b),
        Op::Sub => a.wrapping_sub(b),
        Op::Mul => a.wrapping_mul(b),
        Op::Udiv => a.checked_div(b).unwrap_or(u128::MAX),
        Op::Urem => a.checked_rem(b).unwrap_or(a),
        Op::Sdiv if b == 0 => {
            if signed(a, bits) < 0 {
                1
            } else {
                u128::MAX
            }
        }
        Op::Sdiv => signed(a, bits).wrapping_div(signed(b, bits)) as u128,
        Op::Srem if b == 0 => a,
        Op::Srem => signed(a, bits).wrapping_rem(signed(b, bits)) as u128,
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Shl if b >= bits.into() => 0,
        Op::Shl => a << b,
        Op::Lshr if b >= bits.into() => 0,
        Op::Lshr => a >> b,
        Op::Ashr => (signed(a, bits) >> b.min(u128::from(bits) - 1)) as u128,
        Op::Not => !a,
        Op::Neg => a.wrapping_neg(),
        Op::Eq => (a == b).into(),
        Op::Ult => (a < b).into(),
        Op::Slt => (signed(a, aux) < signed(b, aux)).into(),
        Op::Ite => {
            if a != 0 {
                b
            } else {
                c
            }
        }
        Op::Concat => a << aux | b,
        Op::Extract => a >> aux,
        Op::Zext => a,
        Op::Sext => signed(a, aux) as u128,
    };
    value & mask(bits)
}

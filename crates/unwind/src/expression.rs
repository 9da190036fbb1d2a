//! Symbolic evaluation of the DWARF expressions that occur in call-frame information.
//!
//! The program counter is known when a rule is made, so an expression such as the one of procedure
//! linkage tables, `rsp + 8 + ((rip & 15) >= 11) * 8`, folds to `rsp + n`. Registers stay symbolic.

use gimli::{EndianSlice, Expression, LittleEndian, Operation};

use crate::rule::Register;

/// What a symbolic address is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Register(Register),
    Cfa,
}

/// A value during evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Constant(u64),
    /// `base + offset`
    Sum {
        base: Base,
        offset: i64,
    },
    /// `*(base + offset) + add`
    Load {
        base: Base,
        offset: i64,
        add: i64,
    },
}

impl Value {
    fn plus(self, constant: u64) -> Self {
        let constant = constant as i64;
        match self {
            Self::Constant(a) => Self::Constant(a.wrapping_add(constant as u64)),
            Self::Sum { base, offset } => Self::Sum {
                base,
                offset: offset.wrapping_add(constant),
            },
            Self::Load { base, offset, add } => Self::Load {
                base,
                offset,
                add: add.wrapping_add(constant),
            },
        }
    }

    fn constant(self) -> Option<u64> {
        match self {
            Self::Constant(value) => Some(value),
            Self::Sum { .. } | Self::Load { .. } => None,
        }
    }
}

/// The deepest expression stack. Real call-frame information needs 3.
const DEPTH_MAX: usize = 8;

struct Stack {
    values: [Value; DEPTH_MAX],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: Value) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<Value> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }

    fn fold(&mut self, operation: impl FnOnce(u64, u64) -> u64) -> Option<()> {
        let (right, left) = (self.pop()?.constant()?, self.pop()?.constant()?);
        self.push(Value::Constant(operation(left, right)))
    }

    /// DWARF compares as signed integers.
    fn compare(&mut self, operation: impl FnOnce(i64, i64) -> bool) -> Option<()> {
        self.fold(|left, right| u64::from(operation(left as i64, right as i64)))
    }
}

/// Evaluates an expression at this program counter. A register's rule starts with the CFA on the
/// stack, the CFA's own rule with nothing (`initial`). None if the result is not a [`Value`].
pub(crate) fn evaluate(
    expression: Expression<EndianSlice<'_, LittleEndian>>,
    encoding: gimli::Encoding,
    pc: u64,
    initial: Option<Base>,
) -> Option<Value> {
    let mut stack = Stack {
        values: [Value::Constant(0); DEPTH_MAX],
        len: 0,
    };
    if let Some(base) = initial {
        stack.push(Value::Sum { base, offset: 0 })?;
    }
    let mut operations = expression.operations(encoding);
    while let Some(operation) = operations.next().ok()? {
        match operation {
            Operation::RegisterOffset {
                register,
                offset,
                base_type,
            } if base_type.0 == 0 => {
                stack.push(if register == gimli::X86_64::RA {
                    Value::Constant(pc.wrapping_add_signed(offset))
                } else {
                    let base = Base::Register(Register::from_dwarf(register.0)?);
                    Value::Sum { base, offset }
                })?;
            }
            Operation::Deref {
                base_type,
                size: 8,
                space: false,
            } if base_type.0 == 0 => {
                let Value::Sum { base, offset } = stack.pop()? else {
                    return None;
                };
                stack.push(Value::Load {
                    base,
                    offset,
                    add: 0,
                })?;
            }
            Operation::UnsignedConstant { value } => stack.push(Value::Constant(value))?,
            Operation::SignedConstant { value } => stack.push(Value::Constant(value as u64))?,
            Operation::PlusConstant { value } => {
                let sum = stack.pop()?.plus(value);
                stack.push(sum)?;
            }
            Operation::Plus => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                stack.push(match (left, right) {
                    (value, Value::Constant(n)) | (Value::Constant(n), value) => value.plus(n),
                    _ => return None,
                })?;
            }
            Operation::Minus => {
                let (right, left) = (stack.pop()?.constant()?, stack.pop()?);
                stack.push(left.plus(right.wrapping_neg()))?;
            }
            Operation::And => stack.fold(|left, right| left & right)?,
            Operation::Or => stack.fold(|left, right| left | right)?,
            Operation::Mul => stack.fold(u64::wrapping_mul)?,
            // Shifting by the width or more gives zero, as in gimli's evaluation.
            Operation::Shl => stack.fold(|left, right| {
                u32::try_from(right)
                    .ok()
                    .and_then(|n| left.checked_shl(n))
                    .unwrap_or(0)
            })?,
            Operation::Shr => stack.fold(|left, right| {
                u32::try_from(right)
                    .ok()
                    .and_then(|n| left.checked_shr(n))
                    .unwrap_or(0)
            })?,
            Operation::Eq => stack.compare(|left, right| left == right)?,
            Operation::Ne => stack.compare(|left, right| left != right)?,
            Operation::Ge => stack.compare(|left, right| left >= right)?,
            Operation::Gt => stack.compare(|left, right| left > right)?,
            Operation::Le => stack.compare(|left, right| left <= right)?,
            Operation::Lt => stack.compare(|left, right| left < right)?,
            Operation::Nop => {}
            _ => return None,
        }
    }
    stack.pop()
}

//! Values that are known, and of which some are also known as a function of the input.

use brownout_solve::{Expr, Pool};

/// A bit vector: what it is in this run, and how it follows from the input if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// How many bits it has, at most 128.
    pub bits: u32,
    /// What it is.
    pub now: u128,
    /// How it follows; none if it does not.
    pub expr: Option<Expr>,
}

/// The low bits of a number.
pub fn cut(value: u128, bits: u32) -> u128 {
    match bits {
        128.. => value,
        _ => value & ((1 << bits) - 1),
    }
}

/// As a signed number.
fn signed(value: u128, bits: u32) -> i128 {
    let shift = 128 - bits;
    ((value << shift) as i128) >> shift
}

impl Value {
    /// One that does not follow from the input.
    pub fn known(bits: u32, now: u128) -> Value {
        Value {
            bits,
            now: cut(now, bits),
            expr: None,
        }
    }

    /// As an expression, whatever it follows from.
    pub fn expression(self, pool: &mut Pool) -> Expr {
        match self.expr {
            Some(expr) => expr,
            None => pool.constant(self.bits, self.now),
        }
    }
}

/// What can be done with two values of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
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
    Eq,
    Ult,
    Slt,
}

/// Does it.
pub fn binary(pool: &mut Pool, what: Binary, a: Value, b: Value) -> Value {
    let bits = a.bits;
    let (x, y) = (a.now, b.now);
    let (sx, sy) = (signed(x, bits), signed(y, bits));
    let is_wide = y >= u128::from(bits);
    let now = match what {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::Udiv => x.checked_div(y).unwrap_or(u128::MAX),
        Binary::Urem => x.checked_rem(y).unwrap_or(x),
        Binary::Sdiv if sy == 0 => match sx < 0 {
            true => 1,
            false => u128::MAX,
        },
        Binary::Sdiv => sx.wrapping_div(sy) as u128,
        Binary::Srem if sy == 0 => x,
        Binary::Srem => sx.wrapping_rem(sy) as u128,
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Shl if is_wide => 0,
        Binary::Shl => x << y,
        Binary::Lshr if is_wide => 0,
        Binary::Lshr => x >> y,
        Binary::Ashr => (sx >> y.min(u128::from(bits) - 1)) as u128,
        Binary::Eq => u128::from(x == y),
        Binary::Ult => u128::from(x < y),
        Binary::Slt => u128::from(sx < sy),
    };
    let out = match what {
        Binary::Eq | Binary::Ult | Binary::Slt => 1,
        _ => bits,
    };
    let now = cut(now, out);
    if a.expr.is_none() && b.expr.is_none() {
        return Value::known(out, now);
    }
    let (x, y) = (a.expression(pool), b.expression(pool));
    let expr = match what {
        Binary::Add => pool.add(x, y),
        Binary::Sub => pool.sub(x, y),
        Binary::Mul => pool.mul(x, y),
        Binary::Udiv => pool.udiv(x, y),
        Binary::Urem => pool.urem(x, y),
        Binary::Sdiv => pool.sdiv(x, y),
        Binary::Srem => pool.srem(x, y),
        Binary::And => pool.and(x, y),
        Binary::Or => pool.or(x, y),
        Binary::Xor => pool.xor(x, y),
        Binary::Shl => pool.shl(x, y),
        Binary::Lshr => pool.lshr(x, y),
        Binary::Ashr => pool.ashr(x, y),
        Binary::Eq => pool.eq(x, y),
        Binary::Ult => pool.ult(x, y),
        Binary::Slt => pool.slt(x, y),
    };
    with(pool, out, now, expr)
}

/// A value that follows, unless the expression turns out to be a constant.
pub fn with(pool: &Pool, bits: u32, now: u128, expr: Expr) -> Value {
    Value {
        bits,
        now: cut(now, bits),
        expr: pool.as_constant(expr).is_none().then_some(expr),
    }
}

/// All bits the other way round.
pub fn not(pool: &mut Pool, a: Value) -> Value {
    let now = cut(!a.now, a.bits);
    match a.expr {
        None => Value::known(a.bits, now),
        Some(expr) => {
            let expr = pool.not(expr);
            with(pool, a.bits, now, expr)
        }
    }
}

/// Its negative.
pub fn neg(pool: &mut Pool, a: Value) -> Value {
    let now = cut(a.now.wrapping_neg(), a.bits);
    match a.expr {
        None => Value::known(a.bits, now),
        Some(expr) => {
            let expr = pool.neg(expr);
            with(pool, a.bits, now, expr)
        }
    }
}

/// One of two values.
pub fn ite(pool: &mut Pool, condition: Value, then: Value, otherwise: Value) -> Value {
    let chosen = if condition.now & 1 == 1 {
        then
    } else {
        otherwise
    };
    let Some(condition) = condition.expr else {
        return chosen;
    };
    let (then, otherwise) = (then.expression(pool), otherwise.expression(pool));
    let expr = pool.ite(condition, then, otherwise);
    with(pool, chosen.bits, chosen.now, expr)
}

/// Two values side by side.
pub fn concat(pool: &mut Pool, high: Value, low: Value) -> Value {
    let bits = high.bits + low.bits;
    let now = high.now << low.bits | low.now;
    if high.expr.is_none() && low.expr.is_none() {
        return Value::known(bits, now);
    }
    let (high, low) = (high.expression(pool), low.expression(pool));
    let expr = pool.concat(high, low);
    with(pool, bits, now, expr)
}

/// Some bits of a value.
pub fn extract(pool: &mut Pool, value: Value, low: u32, bits: u32) -> Value {
    let now = cut(value.now >> low, bits);
    match value.expr {
        None => Value::known(bits, now),
        Some(expr) => {
            let expr = pool.extract(expr, low, bits);
            with(pool, bits, now, expr)
        }
    }
}

/// More bits, which are zeros.
pub fn zext(pool: &mut Pool, value: Value, bits: u32) -> Value {
    match value.expr {
        None => Value::known(bits, value.now),
        Some(expr) => {
            let expr = pool.zext(expr, bits);
            with(pool, bits, value.now, expr)
        }
    }
}

/// More bits, which are copies of the highest.
pub fn sext(pool: &mut Pool, value: Value, bits: u32) -> Value {
    let now = cut(signed(value.now, value.bits) as u128, bits);
    match value.expr {
        None => Value::known(bits, now),
        Some(expr) => {
            let expr = pool.sext(expr, bits);
            with(pool, bits, now, expr)
        }
    }
}

//! How expressions are made: every constructor simplifies.
//!
//! # Guarantee
//!
//! What a constructor returns has the same value as what was asked for, under every input.
//! `tests/simplify.rs` compares random expressions with a reference that does not simplify.
//!
//! # Rules
//!
//! A node is looked up as it was asked for; only if it is new, rules are tried, and what they made
//! of it is kept. This is what bounds the work: rules that go into operands (a part of a sum is the
//! sum of parts) would otherwise visit shared operands again and again. [`DEPTH`] bounds the stack.
//!
//! The forms that other rules rely on for their effect, never for their correctness:
//!
//! 1. The constant is the second operand of an operation that commutes.
//! 2. A concatenation hangs to the right, and its zeros on top are an extension.
//! 3. Shifts by constants and contiguous masks are concatenations of extracts, so that bytes which
//!    were put together by shifts come apart again.
//! 4. Equalities with a constant are as narrow as possible and split at concatenations, so that
//!    their parts depend on few inputs each.

use crate::op::{Op, apply, mask, signed};
use crate::pool::{Expr, Node, Pool};

/// Rules are not tried deeper within each other than this.
const DEPTH: u32 = 96;

/// How many nodes are looked at to tell which bits may be set.
const LOOK: u32 = 40;

/// How many pieces the union of disjoint bits may have.
const PIECES: usize = 18;

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(&mut self, a: Expr, b: Expr) -> Expr {
            let bits = self.same_width(a, b);
            self.make(Op::$op, bits, a.0, b.0, 0)
        })*
    };
}

macro_rules! comparison {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(&mut self, a: Expr, b: Expr) -> Expr {
            self.same_width(a, b);
            self.make(Op::$op, 1, a.0, b.0, 0)
        })*
    };
}

/// Constructors. Operands of a binary operation have the same width.
#[allow(clippy::should_implement_trait)]
impl Pool {
    binary! {
        /// The sum, modulo the width.
        add Add;
        /// The difference, modulo the width.
        sub Sub;
        /// The product, modulo the width.
        mul Mul;
        /// The unsigned quotient; all ones if the divisor is zero.
        udiv Udiv;
        /// The unsigned remainder; the dividend if the divisor is zero.
        urem Urem;
        /// The signed quotient, rounded towards zero; by zero, -1 or, for a negative dividend, 1.
        sdiv Sdiv;
        /// The signed remainder, with the dividend's sign; the dividend if the divisor is zero.
        srem Srem;
        /// Bitwise and.
        and And;
        /// Bitwise or.
        or Or;
        /// Bitwise exclusive or.
        xor Xor;
        /// Shifted left; zero if by the width or more.
        shl Shl;
        /// Shifted right; zero if by the width or more.
        lshr Lshr;
        /// Shifted right with copies of the sign; only those if by the width or more.
        ashr Ashr;
    }

    comparison! {
        /// Whether both are equal, as one bit.
        eq Eq;
        /// Whether the first is smaller as an unsigned number, as one bit.
        ult Ult;
        /// Whether the first is smaller as a signed number, as one bit.
        slt Slt;
    }

    /// All bits inverted.
    pub fn not(&mut self, a: Expr) -> Expr {
        self.make(Op::Not, self.bits(a), a.0, 0, 0)
    }

    /// The negative, modulo the width.
    pub fn neg(&mut self, a: Expr) -> Expr {
        self.make(Op::Neg, self.bits(a), a.0, 0, 0)
    }

    /// One of two, by a condition of one bit.
    pub fn ite(&mut self, condition: Expr, then: Expr, otherwise: Expr) -> Expr {
        assert_eq!(self.bits(condition), 1, "a condition has one bit");
        let bits = self.same_width(then, otherwise);
        self.make(Op::Ite, bits, condition.0, then.0, otherwise.0)
    }

    /// Both, one above the other.
    pub fn concat(&mut self, high: Expr, low: Expr) -> Expr {
        let bits = self.bits(high) + self.bits(low);
        assert!(bits <= 128, "a concatenation of {bits} bits");
        self.make(Op::Concat, bits, high.0, low.0, 0)
    }

    /// So many bits, from bit `low` on.
    pub fn extract(&mut self, e: Expr, low: u32, bits: u32) -> Expr {
        let all = self.bits(e);
        assert!(
            bits >= 1 && low + bits <= all,
            "bits {low}..{} of {all}",
            low + bits
        );
        if bits == all {
            return e;
        }
        self.make(Op::Extract, bits, e.0, low, 0)
    }

    /// Extended by zeros to this width.
    pub fn zext(&mut self, e: Expr, bits: u32) -> Expr {
        self.extension(Op::Zext, e, bits)
    }

    /// Extended by copies of the sign to this width.
    pub fn sext(&mut self, e: Expr, bits: u32) -> Expr {
        self.extension(Op::Sext, e, bits)
    }

    /// Whether an expression lies between two constants, both included, as unsigned numbers.
    pub fn within(&mut self, e: Expr, low: u128, high: u128) -> Expr {
        let bits = self.bits(e);
        let (low, high) = (self.constant(bits, low), self.constant(bits, high));
        let (below, above) = (self.ult(e, low), self.ult(high, e));
        let (below, above) = (self.not(below), self.not(above));
        self.and(below, above)
    }

    fn extension(&mut self, op: Op, e: Expr, bits: u32) -> Expr {
        let inner = self.bits(e);
        assert!(
            (inner..=128).contains(&bits),
            "{inner} bits cannot become {bits}"
        );
        if inner == bits {
            return e;
        }
        self.make(op, bits, e.0, 0, 0)
    }

    fn same_width(&self, a: Expr, b: Expr) -> u32 {
        let (a, b) = (self.bits(a), self.bits(b));
        assert_eq!(a, b, "operands of different widths");
        a
    }

    fn make(&mut self, op: Op, bits: u32, a: u32, b: u32, c: u32) -> Expr {
        let node = Node {
            op,
            bits: bits as u8,
            a,
            b,
            c,
        };
        if let Some(e) = self.known(&node) {
            return e;
        }
        let simpler = if self.depth < DEPTH {
            self.depth += 1;
            let simpler = self.simplify(node);
            self.depth -= 1;
            simpler
        } else {
            None
        };
        match simpler {
            Some(e) => {
                self.alias(node, e);
                e
            }
            None => self.intern(node),
        }
    }

    /// The same operation on other operands.
    fn again(&mut self, op: Op, a: Expr, b: Expr) -> Expr {
        let bits = match op {
            Op::Eq | Op::Ult | Op::Slt => 1,
            _ => self.bits(a),
        };
        self.make(op, bits, a.0, b.0, 0)
    }

    fn bool(&mut self, value: bool) -> Expr {
        self.constant(1, value.into())
    }

    /// The operands, if it is this operation.
    fn is(&self, e: Expr, op: Op) -> Option<(Expr, Expr)> {
        let node = self.node(e);
        (node.op == op).then_some((Expr(node.a), Expr(node.b)))
    }

    /// The first operand and the second one's value, if it is this operation with a constant.
    fn is_with_constant(&self, e: Expr, op: Op) -> Option<(Expr, u128)> {
        let (a, b) = self.is(e, op)?;
        Some((a, self.as_constant(b)?))
    }

    /// The condition and both values, if it chooses one of two constants.
    fn choice(&self, e: Expr) -> Option<(Expr, u128, u128)> {
        let node = self.node(e);
        if node.op != Op::Ite {
            return None;
        }
        let (then, otherwise) = (
            self.as_constant(Expr(node.b))?,
            self.as_constant(Expr(node.c))?,
        );
        Some((Expr(node.a), then, otherwise))
    }

    /// Where an expression consists of two that lie above each other.
    fn boundary(&self, e: Expr) -> Option<u32> {
        let node = self.node(e);
        match node.op {
            Op::Concat => Some(self.bits(Expr(node.b))),
            Op::Zext => Some(self.bits(Expr(node.a))),
            _ => None,
        }
    }

    /// Both parts, cut at this bit.
    fn cut(&mut self, e: Expr, at: u32) -> (Expr, Expr) {
        let bits = self.bits(e);
        (self.extract(e, at, bits - at), self.extract(e, 0, at))
    }

    /// The bits that are not known to be zero.
    fn possible(&self, e: Expr, look: &mut u32) -> u128 {
        let node = self.node(e);
        let all = mask(node.bits.into());
        if *look == 0 {
            return all;
        }
        *look -= 1;
        let (a, b, c) = (Expr(node.a), Expr(node.b), Expr(node.c));
        match node.op {
            Op::Const | Op::Wide => self.value_of(node).unwrap_or(all),
            Op::Zext => self.possible(a, look),
            Op::Concat => self.possible(a, look) << self.bits(b) | self.possible(b, look),
            Op::And => self.possible(a, look) & self.possible(b, look),
            Op::Or | Op::Xor => self.possible(a, look) | self.possible(b, look),
            Op::Ite => self.possible(b, look) | self.possible(c, look),
            Op::Extract => self.possible(a, look) >> node.b & all,
            _ => all,
        }
    }

    fn never_negative(&self, e: Expr) -> bool {
        self.possible(e, &mut { LOOK }) >> (self.bits(e) - 1) == 0
    }

    /// Something simpler with the same value, unless the node is as simple as it gets.
    fn simplify(&mut self, node: Node) -> Option<Expr> {
        let (a, b, c) = (Expr(node.a), Expr(node.b), Expr(node.c));
        let bits = u32::from(node.bits);
        let arity = node.op.arity();
        let first = self.as_constant(a);
        let second = if arity > 1 { self.as_constant(b) } else { None };
        if node.op == Op::Ite {
            return self.simplify_ite(a, b, c);
        }
        // What is constant is computed, and so is what has one of two values.
        if let Some(x) = first
            && (arity == 1 || second.is_some())
        {
            let value = apply(node.op, bits, self.aux(node), x, second.unwrap_or(0), 0);
            return Some(self.constant(bits, value));
        }
        if node.op != Op::Concat {
            let aux = self.aux(node);
            let value = |x, y| apply(node.op, bits, aux, x, y, 0);
            let chosen = match (self.choice(a), second) {
                (Some((condition, x, y)), _) if arity == 1 => {
                    Some((condition, value(x, 0), value(y, 0)))
                }
                (Some((condition, x, y)), Some(k)) => Some((condition, value(x, k), value(y, k))),
                (None, None) if arity == 2 => match (first, self.choice(b)) {
                    (Some(k), Some((condition, x, y))) => {
                        Some((condition, value(k, x), value(k, y)))
                    }
                    _ => None,
                },
                _ => None,
            };
            if let Some((condition, x, y)) = chosen {
                let (x, y) = (self.constant(bits, x), self.constant(bits, y));
                return Some(self.ite(condition, x, y));
            }
        }
        if node.op.commutes() && second.is_none() && (first.is_some() || a > b) {
            return Some(self.again(node.op, b, a));
        }
        match node.op {
            Op::Add => self.simplify_add(a, b, second),
            Op::Sub => self.simplify_sub(a, b, first, second),
            Op::Mul => self.simplify_mul(a, b, second),
            Op::Udiv | Op::Urem => self.simplify_division(node.op, a, b, second),
            Op::Sdiv | Op::Srem => self.simplify_signed_division(node.op, a, b, second),
            Op::And | Op::Or | Op::Xor => self.simplify_bitwise(node.op, a, b, second),
            Op::Shl | Op::Lshr | Op::Ashr => self.simplify_shift(node.op, a, b, first, second),
            Op::Not => self.simplify_not(a),
            Op::Neg => self.simplify_neg(a),
            Op::Eq => self.simplify_eq(a, b, second),
            Op::Ult => self.simplify_ult(a, b, first, second),
            Op::Slt => self.simplify_slt(a, b, first, second),
            Op::Concat => self.simplify_concat(a, b),
            Op::Extract => self.simplify_extract(a, node.b, bits),
            Op::Zext => {
                let (inner, _) = self.is(a, Op::Zext)?;
                Some(self.zext(inner, bits))
            }
            Op::Sext => {
                if let Some((inner, _)) = self.is(a, Op::Sext) {
                    return Some(self.sext(inner, bits));
                }
                self.never_negative(a).then(|| self.zext(a, bits))
            }
            Op::Const | Op::Wide | Op::Input | Op::Ite => None,
        }
    }

    fn simplify_ite(&mut self, condition: Expr, then: Expr, otherwise: Expr) -> Option<Expr> {
        if let Some(value) = self.as_constant(condition) {
            return Some(if value != 0 { then } else { otherwise });
        }
        if then == otherwise {
            return Some(then);
        }
        if let Some((inverse, _)) = self.is(condition, Op::Not) {
            return Some(self.ite(inverse, otherwise, then));
        }
        // Inside a branch, the condition is known.
        let node = self.node(then);
        if node.op == Op::Ite && node.a == condition.0 {
            return Some(self.ite(condition, Expr(node.b), otherwise));
        }
        let node = self.node(otherwise);
        if node.op == Op::Ite && node.a == condition.0 {
            return Some(self.ite(condition, then, Expr(node.c)));
        }
        if self.bits(then) != 1 {
            return None;
        }
        match (self.as_constant(then), self.as_constant(otherwise)) {
            (Some(1), Some(_)) => Some(condition),
            (Some(_), Some(_)) => Some(self.not(condition)),
            (Some(1), None) => Some(self.or(condition, otherwise)),
            (Some(_), None) => {
                let inverse = self.not(condition);
                Some(self.and(inverse, otherwise))
            }
            (None, Some(1)) => {
                let inverse = self.not(condition);
                Some(self.or(inverse, then))
            }
            (None, Some(_)) => Some(self.and(condition, then)),
            (None, None) => None,
        }
    }

    /// Two expressions none of whose bits are set in both, as a concatenation.
    fn disjoint(&mut self, a: Expr, b: Expr) -> Option<Expr> {
        let (of_a, of_b) = (
            self.possible(a, &mut { LOOK }),
            self.possible(b, &mut { LOOK }),
        );
        if of_a & of_b != 0 {
            return None;
        }
        let bits = self.bits(a);
        let owner = |bit: u32| (of_a >> bit & 1, of_b >> bit & 1);
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for bit in 0..bits {
            match runs.last_mut() {
                Some(run) if owner(run.0) == owner(bit) => run.1 += 1,
                _ => runs.push((bit, 1)),
            }
        }
        if runs.len() > PIECES {
            return None;
        }
        let mut all: Option<Expr> = None;
        for (low, bits) in runs {
            let piece = match owner(low) {
                (1, _) => self.extract(a, low, bits),
                (_, 1) => self.extract(b, low, bits),
                _ => self.constant(bits, 0),
            };
            all = Some(match all {
                Some(all) => self.concat(piece, all),
                None => piece,
            });
        }
        all
    }

    fn simplify_add(&mut self, a: Expr, b: Expr, second: Option<u128>) -> Option<Expr> {
        let bits = self.bits(a);
        if second == Some(0) {
            return Some(a);
        }
        if bits == 1 {
            return Some(self.xor(a, b));
        }
        if let Some(k) = second {
            if let Some((x, l)) = self.is_with_constant(a, Op::Add) {
                let sum = self.constant(bits, k.wrapping_add(l));
                return Some(self.add(x, sum));
            }
            if let Some((l, x)) = self.is(a, Op::Sub)
                && let Some(l) = self.as_constant(l)
            {
                let sum = self.constant(bits, k.wrapping_add(l));
                return Some(self.sub(sum, x));
            }
        } else {
            if a == b {
                let one = self.constant(bits, 1);
                return Some(self.shl(a, one));
            }
            for (a, b) in [(a, b), (b, a)] {
                // Constants move outwards, where they meet.
                if let Some((x, k)) = self.is_with_constant(a, Op::Add) {
                    let (sum, k) = (self.add(x, b), self.constant(bits, k));
                    return Some(self.add(sum, k));
                }
                if let Some((x, y)) = self.is(a, Op::Sub)
                    && y == b
                {
                    return Some(x);
                }
            }
        }
        for (a, b) in [(a, b), (b, a)] {
            if let Some((x, _)) = self.is(a, Op::Neg) {
                return Some(self.sub(b, x));
            }
        }
        self.disjoint(a, b)
    }

    fn simplify_sub(
        &mut self,
        a: Expr,
        b: Expr,
        first: Option<u128>,
        second: Option<u128>,
    ) -> Option<Expr> {
        let bits = self.bits(a);
        if let Some(k) = second {
            let k = self.constant(bits, k.wrapping_neg());
            return Some(self.add(a, k));
        }
        if a == b {
            return Some(self.constant(bits, 0));
        }
        if bits == 1 {
            return Some(self.xor(a, b));
        }
        if first == Some(0) {
            return Some(self.neg(b));
        }
        if let Some((x, _)) = self.is(b, Op::Neg) {
            return Some(self.add(a, x));
        }
        if let Some((x, y)) = self.is(a, Op::Add) {
            if x == b {
                return Some(y);
            }
            if y == b {
                return Some(x);
            }
            if self.as_constant(y).is_some() {
                let difference = self.sub(x, b);
                return Some(self.add(difference, y));
            }
        }
        if let Some((x, y)) = self.is(b, Op::Add) {
            if x == a {
                return Some(self.neg(y));
            }
            if y == a {
                return Some(self.neg(x));
            }
            if let Some(k) = self.as_constant(y) {
                let k = self.constant(bits, k.wrapping_neg());
                let start = if first.is_some() {
                    self.add(a, k)
                } else {
                    self.sub(a, x)
                };
                return Some(if first.is_some() {
                    self.sub(start, x)
                } else {
                    self.add(start, k)
                });
            }
        }
        None
    }

    fn simplify_mul(&mut self, a: Expr, b: Expr, second: Option<u128>) -> Option<Expr> {
        let bits = self.bits(a);
        if bits == 1 {
            return Some(self.and(a, b));
        }
        let k = second?;
        match k {
            0 => return Some(b),
            1 => return Some(a),
            k if k == mask(bits) => return Some(self.neg(a)),
            k if k.is_power_of_two() => {
                let by = self.constant(bits, k.trailing_zeros().into());
                return Some(self.shl(a, by));
            }
            _ => {}
        }
        let (x, l) = self.is_with_constant(a, Op::Mul)?;
        let product = self.constant(bits, k.wrapping_mul(l));
        Some(self.mul(x, product))
    }

    fn simplify_division(
        &mut self,
        op: Op,
        a: Expr,
        b: Expr,
        second: Option<u128>,
    ) -> Option<Expr> {
        let bits = self.bits(a);
        let quotient = op == Op::Udiv;
        if let Some(k) = second {
            match k {
                0 => {
                    return Some(if quotient {
                        self.constant(bits, u128::MAX)
                    } else {
                        a
                    });
                }
                1 => return Some(if quotient { a } else { self.constant(bits, 0) }),
                k if k.is_power_of_two() => {
                    let shift = k.trailing_zeros();
                    let (high, low) = self.cut(a, shift);
                    return Some(self.zext(if quotient { high } else { low }, bits));
                }
                _ => {}
            }
            if let Some((x, _)) = self.is(a, Op::Zext) {
                let inner = self.bits(x);
                if k > mask(inner) {
                    return Some(if quotient { self.constant(bits, 0) } else { a });
                }
                let k = self.constant(inner, k);
                let narrow = self.again(op, x, k);
                return Some(self.zext(narrow, bits));
            }
            if quotient
                && let Some((x, l)) = self.is_with_constant(a, Op::Udiv)
                && let Some(product) = k.checked_mul(l)
                && product <= mask(bits)
            {
                let product = self.constant(bits, product);
                return Some(self.udiv(x, product));
            }
            return None;
        }
        if a == b && !quotient {
            return Some(self.constant(bits, 0));
        }
        let ((x, _), (y, _)) = (self.is(a, Op::Zext)?, self.is(b, Op::Zext)?);
        let inner = self.bits(x).max(self.bits(y));
        let (x, y) = (self.zext(x, inner), self.zext(y, inner));
        let narrow = self.again(op, x, y);
        let narrow = self.zext(narrow, bits);
        if !quotient {
            return Some(narrow);
        }
        // Ones that a division by zero gives are as many as the result is wide.
        let (zero, ones) = (self.constant(inner, 0), self.constant(bits, u128::MAX));
        let by_zero = self.eq(y, zero);
        Some(self.ite(by_zero, ones, narrow))
    }

    fn simplify_signed_division(
        &mut self,
        op: Op,
        a: Expr,
        b: Expr,
        second: Option<u128>,
    ) -> Option<Expr> {
        let bits = self.bits(a);
        let quotient = op == Op::Sdiv;
        if second == Some(1) && bits > 1 {
            return Some(if quotient { a } else { self.constant(bits, 0) });
        }
        if self.never_negative(a) && self.never_negative(b) {
            return Some(self.again(if quotient { Op::Udiv } else { Op::Urem }, a, b));
        }
        let k = second?;
        let (x, _) = self.is(a, Op::Sext)?;
        let inner = self.bits(x);
        // Not by zero, and not by -1, where the narrow quotient may overflow.
        if k == 0 || k == mask(bits) || signed(k, inner) as u128 & mask(bits) != k {
            return None;
        }
        let k = self.constant(inner, k);
        let narrow = self.again(op, x, k);
        Some(self.sext(narrow, bits))
    }

    fn simplify_bitwise(&mut self, op: Op, a: Expr, b: Expr, second: Option<u128>) -> Option<Expr> {
        let bits = self.bits(a);
        let ones = mask(bits);
        if let Some(k) = second {
            match (op, k) {
                (Op::And, 0) => return Some(b),
                (_, 0) => return Some(a),
                (Op::And, k) if k == ones => return Some(a),
                (Op::Or, k) if k == ones => return Some(b),
                (_, k) if k == ones => return Some(self.not(a)),
                _ => {}
            }
            if let Some((x, l)) = self.is_with_constant(a, op) {
                let both = self.constant(bits, apply(op, bits, 0, k, l, 0));
                return Some(self.again(op, x, both));
            }
            if op == Op::Xor
                && let Some((x, _)) = self.is(a, Op::Not)
            {
                let inverse = self.constant(bits, !k);
                return Some(self.xor(x, inverse));
            }
            if let Some(at) = self.boundary(a) {
                return Some(self.piecewise(op, a, b, at));
            }
            if op == Op::And {
                let low = k.trailing_zeros();
                let used = 128 - k.leading_zeros();
                let middle = self.extract(a, low, used - low);
                let kept = if k >> low == mask(used - low) {
                    middle
                } else if low > 0 || used < bits {
                    let k = self.constant(used - low, k >> low);
                    self.and(middle, k)
                } else {
                    return None;
                };
                let kept = if low > 0 {
                    let zeros = self.constant(low, 0);
                    self.concat(kept, zeros)
                } else {
                    kept
                };
                return Some(self.zext(kept, bits));
            }
            return None;
        }
        if a == b {
            return Some(if op == Op::Xor {
                self.constant(bits, 0)
            } else {
                a
            });
        }
        if self.is(a, Op::Not).is_some_and(|(x, _)| x == b)
            || self.is(b, Op::Not).is_some_and(|(x, _)| x == a)
        {
            return Some(self.constant(bits, if op == Op::And { 0 } else { ones }));
        }
        for (a, b) in [(a, b), (b, a)] {
            for inner in [Op::And, Op::Or, Op::Xor] {
                let Some((x, y)) = self.is(b, inner) else {
                    continue;
                };
                let other = match (x == a, y == a) {
                    (true, _) => y,
                    (_, true) => x,
                    _ => continue,
                };
                match (op, inner) {
                    (Op::And, Op::And) | (Op::Or, Op::Or) => return Some(b),
                    (Op::And, Op::Or) | (Op::Or, Op::And) => return Some(a),
                    (Op::Xor, Op::Xor) => return Some(other),
                    _ => {}
                }
            }
            // An exclusive or with a constant hands it on, so that it meets others.
            if op == Op::Xor
                && let Some((x, k)) = self.is_with_constant(a, Op::Xor)
            {
                let (rest, k) = (self.xor(x, b), self.constant(bits, k));
                return Some(self.xor(rest, k));
            }
        }
        if let (Some(at), Some(other)) = (self.boundary(a), self.boundary(b))
            && at == other
        {
            return Some(self.piecewise(op, a, b, at));
        }
        if op == Op::And {
            let common = self.possible(a, &mut { LOOK }) & self.possible(b, &mut { LOOK });
            return (common == 0).then(|| self.constant(bits, 0));
        }
        self.disjoint(a, b)
    }

    fn piecewise(&mut self, op: Op, a: Expr, b: Expr, at: u32) -> Expr {
        let ((a_high, a_low), (b_high, b_low)) = (self.cut(a, at), self.cut(b, at));
        let (high, low) = (self.again(op, a_high, b_high), self.again(op, a_low, b_low));
        self.concat(high, low)
    }

    fn simplify_shift(
        &mut self,
        op: Op,
        a: Expr,
        b: Expr,
        first: Option<u128>,
        second: Option<u128>,
    ) -> Option<Expr> {
        let bits = self.bits(a);
        if first == Some(0) {
            return Some(a);
        }
        if op == Op::Ashr && self.never_negative(a) {
            return Some(self.lshr(a, b));
        }
        let k = second?;
        if k == 0 {
            return Some(a);
        }
        if k >= bits.into() {
            if op == Op::Ashr {
                let sign = self.extract(a, bits - 1, 1);
                return Some(self.sext(sign, bits));
            }
            return Some(self.constant(bits, 0));
        }
        let k = k as u32;
        match op {
            Op::Shl => {
                let (kept, zeros) = (self.extract(a, 0, bits - k), self.constant(k, 0));
                Some(self.concat(kept, zeros))
            }
            Op::Lshr => {
                let kept = self.extract(a, k, bits - k);
                Some(self.zext(kept, bits))
            }
            _ => {
                let kept = self.extract(a, k, bits - k);
                Some(self.sext(kept, bits))
            }
        }
    }

    fn simplify_not(&mut self, a: Expr) -> Option<Expr> {
        if let Some((x, _)) = self.is(a, Op::Not) {
            return Some(x);
        }
        if let Some((x, k)) = self.is_with_constant(a, Op::Xor) {
            let k = self.constant(self.bits(a), !k);
            return Some(self.xor(x, k));
        }
        if let Some((high, low)) = self.is(a, Op::Concat) {
            let (high, low) = (self.not(high), self.not(low));
            return Some(self.concat(high, low));
        }
        None
    }

    fn simplify_neg(&mut self, a: Expr) -> Option<Expr> {
        let bits = self.bits(a);
        if bits == 1 {
            return Some(a);
        }
        if let Some((x, _)) = self.is(a, Op::Neg) {
            return Some(x);
        }
        if let Some((x, y)) = self.is(a, Op::Sub) {
            return Some(self.sub(y, x));
        }
        let (x, k) = self.is_with_constant(a, Op::Add)?;
        let k = self.constant(bits, k.wrapping_neg());
        Some(self.sub(k, x))
    }

    fn simplify_eq(&mut self, a: Expr, b: Expr, second: Option<u128>) -> Option<Expr> {
        let bits = self.bits(a);
        if a == b {
            return Some(self.bool(true));
        }
        if let Some(k) = second {
            return self.simplify_eq_constant(a, k, bits);
        }
        let (x, y) = (self.node(a), self.node(b));
        match (x.op, y.op) {
            (Op::Zext, Op::Zext) => {
                let (p, q) = (Expr(x.a), Expr(y.a));
                let inner = self.bits(p).max(self.bits(q));
                let (p, q) = (self.zext(p, inner), self.zext(q, inner));
                return Some(self.eq(p, q));
            }
            (Op::Sext, Op::Sext) => {
                let (p, q) = (Expr(x.a), Expr(y.a));
                let inner = self.bits(p).max(self.bits(q));
                let (p, q) = (self.sext(p, inner), self.sext(q, inner));
                return Some(self.eq(p, q));
            }
            (Op::Not, Op::Not) | (Op::Neg, Op::Neg) => {
                return Some(self.eq(Expr(x.a), Expr(y.a)));
            }
            _ => {}
        }
        if let (Some(at), Some(_)) = (self.boundary(a), self.boundary(b)) {
            return Some(self.eq_by_parts(a, b, at));
        }
        for (e, other) in [(a, b), (b, a)] {
            for op in [Op::Add, Op::Xor] {
                // x + y == x, and the same with an exclusive or.
                if let Some((x, y)) = self.is(e, op)
                    && (x == other || y == other)
                {
                    let zero = self.constant(bits, 0);
                    return Some(self.eq(if x == other { y } else { x }, zero));
                }
            }
        }
        None
    }

    fn eq_by_parts(&mut self, a: Expr, b: Expr, at: u32) -> Expr {
        let ((a_high, a_low), (b_high, b_low)) = (self.cut(a, at), self.cut(b, at));
        let high = self.eq(a_high, b_high);
        let low = self.eq(a_low, b_low);
        self.and(high, low)
    }

    fn simplify_eq_constant(&mut self, a: Expr, k: u128, bits: u32) -> Option<Expr> {
        if bits == 1 {
            return Some(if k == 1 { a } else { self.not(a) });
        }
        let node = self.node(a);
        let (x, y) = (Expr(node.a), Expr(node.b));
        // What the other operand of an operation has to be.
        let solved = |pool: &mut Pool, x: Expr, value: u128| {
            let value = pool.constant(pool.bits(x), value);
            Some(pool.eq(x, value))
        };
        match node.op {
            Op::Zext => {
                let inner = self.bits(x);
                if k > mask(inner) {
                    Some(self.bool(false))
                } else {
                    solved(self, x, k)
                }
            }
            Op::Sext => {
                let inner = self.bits(x);
                if signed(k, inner) as u128 & mask(bits) != k {
                    return Some(self.bool(false));
                }
                solved(self, x, k)
            }
            Op::Concat => {
                let b = self.constant(bits, k);
                Some(self.eq_by_parts(a, b, self.bits(y)))
            }
            Op::Not => solved(self, x, !k),
            Op::Neg => solved(self, x, k.wrapping_neg()),
            Op::Add => {
                let l = self.as_constant(y)?;
                solved(self, x, k.wrapping_sub(l))
            }
            Op::Xor => match self.as_constant(y) {
                Some(l) => solved(self, x, k ^ l),
                None if k == 0 => Some(self.eq(x, y)),
                None => None,
            },
            Op::Sub => match self.as_constant(x) {
                Some(l) => solved(self, y, l.wrapping_sub(k)),
                None if k == 0 => Some(self.eq(x, y)),
                None => None,
            },
            Op::Mul => {
                let l = self.as_constant(y)?;
                if l & 1 == 1 {
                    // Newton's iteration doubles the number of correct bits, of which three are
                    // correct from the start.
                    let mut inverse = l;
                    for _ in 0..6 {
                        inverse = inverse.wrapping_mul(2u128.wrapping_sub(l.wrapping_mul(inverse)));
                    }
                    return solved(self, x, k.wrapping_mul(inverse));
                }
                // The power of two in the factor goes to both sides.
                let twos = l.trailing_zeros();
                if k & mask(twos) != 0 {
                    return Some(self.bool(false));
                }
                let low = self.extract(x, 0, bits - twos);
                let factor = self.constant(bits - twos, l >> twos);
                let product = self.mul(low, factor);
                solved(self, product, k >> twos)
            }
            Op::And => {
                let l = self.as_constant(y)?;
                // A bit that the mask clears is asked for.
                (k & !l != 0).then(|| self.bool(false))
            }
            Op::Or => {
                if k == 0 {
                    let (x, y) = (solved(self, x, 0)?, solved(self, y, 0)?);
                    return Some(self.and(x, y));
                }
                let l = self.as_constant(y)?;
                if l & !k != 0 {
                    return Some(self.bool(false));
                }
                let rest = self.constant(bits, !l);
                let rest = self.and(x, rest);
                solved(self, rest, k & !l)
            }
            Op::Udiv => {
                let l = self.as_constant(y)?;
                if l == 0 {
                    return None;
                }
                let Some(low) = k.checked_mul(l).filter(|&low| low <= mask(bits)) else {
                    return Some(self.bool(false));
                };
                let high = low.saturating_add(l - 1).min(mask(bits));
                Some(self.within(x, low, high))
            }
            Op::Ite => {
                let (then, otherwise) = (y, Expr(node.c));
                if let Some(value) = self.as_constant(then) {
                    let rest = solved(self, otherwise, k)?;
                    if value == k {
                        return Some(self.or(x, rest));
                    }
                    let inverse = self.not(x);
                    return Some(self.and(inverse, rest));
                }
                let value = self.as_constant(otherwise)?;
                let rest = solved(self, then, k)?;
                if value == k {
                    let inverse = self.not(x);
                    return Some(self.or(inverse, rest));
                }
                Some(self.and(x, rest))
            }
            _ => None,
        }
    }

    fn simplify_ult(
        &mut self,
        a: Expr,
        b: Expr,
        first: Option<u128>,
        second: Option<u128>,
    ) -> Option<Expr> {
        let bits = self.bits(a);
        let ones = mask(bits);
        if a == b || first == Some(ones) || second == Some(0) {
            return Some(self.bool(false));
        }
        if bits == 1 {
            let inverse = self.not(a);
            return Some(self.and(inverse, b));
        }
        match (first, second) {
            (Some(0), _) => {
                let equal = self.eq(b, a);
                return Some(self.not(equal));
            }
            (Some(k), _) if k == ones - 1 => {
                let k = self.constant(bits, ones);
                return Some(self.eq(b, k));
            }
            (_, Some(1)) => {
                let k = self.constant(bits, 0);
                return Some(self.eq(a, k));
            }
            (_, Some(k)) if k == ones => {
                let equal = self.eq(a, b);
                return Some(self.not(equal));
            }
            _ => {}
        }
        let (x, y) = (self.node(a), self.node(b));
        match (x.op, y.op, first, second) {
            (Op::Zext, Op::Zext, ..) => {
                let (p, q) = (Expr(x.a), Expr(y.a));
                let inner = self.bits(p).max(self.bits(q));
                let (p, q) = (self.zext(p, inner), self.zext(q, inner));
                Some(self.ult(p, q))
            }
            // Extension by the sign keeps the unsigned order, too.
            (Op::Sext, Op::Sext, ..) => {
                let (p, q) = (Expr(x.a), Expr(y.a));
                let inner = self.bits(p).max(self.bits(q));
                let (p, q) = (self.sext(p, inner), self.sext(q, inner));
                Some(self.ult(p, q))
            }
            (Op::Zext, _, _, Some(k)) => {
                let p = Expr(x.a);
                let inner = self.bits(p);
                if k > mask(inner) {
                    return Some(self.bool(true));
                }
                let k = self.constant(inner, k);
                Some(self.ult(p, k))
            }
            (_, Op::Zext, Some(k), _) => {
                let q = Expr(y.a);
                let inner = self.bits(q);
                if k >= mask(inner) {
                    return Some(self.bool(false));
                }
                let k = self.constant(inner, k);
                Some(self.ult(k, q))
            }
            (Op::Sext, _, _, Some(k)) => {
                let p = Expr(x.a);
                let inner = self.bits(p);
                if signed(k, inner) as u128 & ones != k {
                    return None;
                }
                let k = self.constant(inner, k);
                Some(self.ult(p, k))
            }
            (_, Op::Sext, Some(k), _) => {
                let q = Expr(y.a);
                let inner = self.bits(q);
                if signed(k, inner) as u128 & ones != k {
                    return None;
                }
                let k = self.constant(inner, k);
                Some(self.ult(k, q))
            }
            (Op::Concat, Op::Concat, ..) if x.b == y.b => Some(self.ult(Expr(x.a), Expr(y.a))),
            (Op::Concat, Op::Concat, ..) if x.a == y.a => Some(self.ult(Expr(x.b), Expr(y.b))),
            (Op::Udiv, _, _, Some(k)) => {
                let l = self.as_constant(Expr(x.b))?;
                if l == 0 {
                    return None;
                }
                // A product that is too large is one that no quotient reaches.
                let Some(product) = k.checked_mul(l).filter(|&product| product <= ones) else {
                    return Some(self.bool(true));
                };
                let product = self.constant(bits, product);
                Some(self.ult(Expr(x.a), product))
            }
            _ => None,
        }
    }

    fn simplify_slt(
        &mut self,
        a: Expr,
        b: Expr,
        first: Option<u128>,
        second: Option<u128>,
    ) -> Option<Expr> {
        let bits = self.bits(a);
        let lowest = 1u128 << (bits - 1);
        let highest = lowest - 1;
        if a == b || first == Some(highest) || second == Some(lowest) {
            return Some(self.bool(false));
        }
        if bits == 1 {
            let inverse = self.not(b);
            return Some(self.and(a, inverse));
        }
        if second == Some(0) {
            return Some(self.extract(a, bits - 1, 1));
        }
        if first == Some(mask(bits)) {
            let sign = self.extract(b, bits - 1, 1);
            return Some(self.not(sign));
        }
        match (self.never_negative(a), self.never_negative(b)) {
            (true, true) => return Some(self.ult(a, b)),
            (true, false) if second.is_some() => return Some(self.bool(false)),
            (false, true) if first.is_some() => return Some(self.bool(true)),
            _ => {}
        }
        let (x, y) = (self.node(a), self.node(b));
        match (x.op, y.op, first, second) {
            (Op::Sext, Op::Sext, ..) => {
                let (p, q) = (Expr(x.a), Expr(y.a));
                let inner = self.bits(p).max(self.bits(q));
                let (p, q) = (self.sext(p, inner), self.sext(q, inner));
                Some(self.slt(p, q))
            }
            (Op::Sext, _, _, Some(k)) => {
                let p = Expr(x.a);
                let inner = self.bits(p);
                if signed(k, inner) as u128 & mask(bits) != k {
                    return Some(self.bool(k < lowest));
                }
                let k = self.constant(inner, k);
                Some(self.slt(p, k))
            }
            (_, Op::Sext, Some(k), _) => {
                let q = Expr(y.a);
                let inner = self.bits(q);
                if signed(k, inner) as u128 & mask(bits) != k {
                    return Some(self.bool(k >= lowest));
                }
                let k = self.constant(inner, k);
                Some(self.slt(k, q))
            }
            _ => None,
        }
    }

    fn simplify_concat(&mut self, high: Expr, low: Expr) -> Option<Expr> {
        let bits = self.bits(high) + self.bits(low);
        if self.as_constant(high) == Some(0) {
            return Some(self.zext(low, bits));
        }
        if let Some((x, _)) = self.is(high, Op::Zext) {
            let rest = self.concat(x, low);
            return Some(self.zext(rest, bits));
        }
        if let Some((x, y)) = self.is(high, Op::Concat) {
            let rest = self.concat(y, low);
            return Some(self.concat(x, rest));
        }
        if let Some(merged) = self.merge(high, low) {
            return Some(merged);
        }
        if let Some((middle, rest)) = self.is(low, Op::Concat)
            && let Some(merged) = self.merge(high, middle)
        {
            return Some(self.concat(merged, rest));
        }
        // Copies of the sign above the number are an extension.
        let copied = match self.is(high, Op::Sext) {
            Some((sign, _)) => sign,
            None => high,
        };
        if self.bits(copied) == 1 {
            let sign = self.extract(low, self.bits(low) - 1, 1);
            if sign == copied {
                return Some(self.sext(low, bits));
            }
        }
        None
    }

    /// Neighbours that are one expression.
    fn merge(&mut self, high: Expr, low: Expr) -> Option<Expr> {
        let bits = self.bits(high) + self.bits(low);
        if let (Some(x), Some(y)) = (self.as_constant(high), self.as_constant(low)) {
            return Some(self.constant(bits, x << self.bits(low) | y));
        }
        let (x, y) = (self.node(high), self.node(low));
        if x.op == Op::Extract && y.op == Op::Extract && x.a == y.a {
            return (x.b == y.b + u32::from(y.bits)).then(|| self.extract(Expr(x.a), y.b, bits));
        }
        None
    }

    fn simplify_extract(&mut self, e: Expr, low: u32, bits: u32) -> Option<Expr> {
        let node = self.node(e);
        let (a, b, c) = (Expr(node.a), Expr(node.b), Expr(node.c));
        match node.op {
            Op::Extract => Some(self.extract(a, node.b + low, bits)),
            Op::Concat => {
                let at = self.bits(b);
                if low >= at {
                    return Some(self.extract(a, low - at, bits));
                }
                if low + bits <= at {
                    return Some(self.extract(b, low, bits));
                }
                let high = self.extract(a, 0, low + bits - at);
                let rest = self.extract(b, low, at - low);
                Some(self.concat(high, rest))
            }
            Op::Zext | Op::Sext => {
                let inner = self.bits(a);
                if low + bits <= inner {
                    return Some(self.extract(a, low, bits));
                }
                if node.op == Op::Zext {
                    if low >= inner {
                        return Some(self.constant(bits, 0));
                    }
                    let rest = self.extract(a, low, inner - low);
                    return Some(self.zext(rest, bits));
                }
                let low = low.min(inner - 1);
                let rest = self.extract(a, low, inner - low);
                Some(self.sext(rest, bits))
            }
            Op::And | Op::Or | Op::Xor => {
                let (x, y) = (self.extract(a, low, bits), self.extract(b, low, bits));
                Some(self.again(node.op, x, y))
            }
            Op::Not => {
                let x = self.extract(a, low, bits);
                Some(self.not(x))
            }
            Op::Neg if low == 0 => {
                let x = self.extract(a, low, bits);
                Some(self.neg(x))
            }
            // The low bits of a result depend on the low bits of the operands; worth it where one
            // of those becomes simpler.
            Op::Add | Op::Sub | Op::Mul if low == 0 => {
                let simple = |e| {
                    matches!(
                        self.node(e).op,
                        Op::Const | Op::Wide | Op::Zext | Op::Sext | Op::Concat | Op::Extract
                    )
                };
                if !simple(a) && !simple(b) {
                    return None;
                }
                let (x, y) = (self.extract(a, 0, bits), self.extract(b, 0, bits));
                Some(self.again(node.op, x, y))
            }
            Op::Ite if self.as_constant(b).is_some() || self.as_constant(c).is_some() => {
                let (x, y) = (self.extract(b, low, bits), self.extract(c, low, bits));
                Some(self.ite(a, x, y))
            }
            _ => None,
        }
    }
}

//! Which values each byte of the input may have behind some conditions, as far as conditions about
//! single bytes say.
//!
//! # Guarantee
//!
//! What is called impossible is: no input makes all conditions and the goal true. What is not may
//! be impossible all the same. It costs some look-ups, so it can be asked about goals before they
//! are worth a query.

use rustc_hash::FxHashMap;

use crate::byte_set::ByteSet;
use crate::pool::{Expr, Pool};
use crate::solver::conjuncts_of;

/// What is known of expressions; kept for as long as the pool is.
#[derive(Default)]
pub struct KnownSets {
    /// Of conditions that depend on one byte: which, and for which values they hold.
    sets: FxHashMap<Expr, Option<(u32, ByteSet)>>,
    /// The parts of conditions that depend on one byte.
    parts: FxHashMap<Expr, Box<[(u32, ByteSet)]>>,
}

impl KnownSets {
    fn set(&mut self, pool: &mut Pool, condition: Expr) -> Option<(u32, ByteSet)> {
        if let Some(known) = self.sets.get(&condition) {
            return *known;
        }
        let set = match *pool.inputs(condition) {
            [input] => Some((input, ByteSet::of(pool, condition))),
            _ => None,
        };
        self.sets.insert(condition, set);
        set
    }

    fn parts(&mut self, pool: &mut Pool, condition: Expr) -> &[(u32, ByteSet)] {
        if !self.parts.contains_key(&condition) {
            let parts = conjuncts_of(pool, condition);
            let parts = parts.into_iter().filter_map(|part| self.set(pool, part));
            let parts = parts.collect();
            self.parts.insert(condition, parts);
        }
        &self.parts[&condition]
    }
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct BytesLeft {
    left: FxHashMap<u32, ByteSet>,
}

impl BytesLeft {
    /// A condition holds.
    pub fn assume(&mut self, known: &mut KnownSets, pool: &mut Pool, condition: Expr) {
        for (input, set) in known.parts(pool, condition) {
            let left = self.left.entry(*input).or_insert(*set);
            *left = left.and(*set);
        }
    }

    /// Whether a condition of one bit may be true (or false, if `is` says so).
    pub fn may_be(
        &self,
        known: &mut KnownSets,
        pool: &mut Pool,
        condition: Expr,
        is: bool,
    ) -> bool {
        if let Some(value) = pool.as_constant(condition) {
            return (value != 0) == is;
        }
        let Some((input, set)) = known.set(pool, condition) else {
            return true;
        };
        let set = match is {
            true => set,
            false => set.not(),
        };
        match self.left.get(&input) {
            Some(left) => !left.and(set).is_empty(),
            None => !set.is_empty(),
        }
    }

    /// For how many values of its byte a condition of one bit is true (or false, if `is` says so),
    /// of those that are left. None if it does not depend on one byte.
    pub fn count(
        &self,
        known: &mut KnownSets,
        pool: &mut Pool,
        condition: Expr,
        is: bool,
    ) -> Option<u32> {
        let (input, set) = known.set(pool, condition)?;
        let set = match is {
            true => set,
            false => set.not(),
        };
        let left = self.left.get(&input);
        Some(left.map_or(set, |left| left.and(set)).len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_known() {
        let mut pool = Pool::new();
        let mut known = KnownSets::default();
        let byte = pool.input(3);
        let other = pool.input(4);
        let limit = pool.constant(8, 58);
        let is_below = pool.ult(byte, limit);
        let letter = pool.constant(8, 97);
        let is_letter = pool.eq(byte, letter);
        let is_other_letter = pool.eq(other, letter);
        let both = pool.and(is_below, is_other_letter);
        let mut left = BytesLeft::default();
        assert!(left.may_be(&mut known, &mut pool, is_letter, true));
        left.assume(&mut known, &mut pool, both);
        assert!(!left.may_be(&mut known, &mut pool, is_letter, true));
        assert!(left.may_be(&mut known, &mut pool, is_letter, false));
        assert!(!left.may_be(&mut known, &mut pool, is_other_letter, false));
        assert_eq!(left.count(&mut known, &mut pool, is_below, true), Some(58));
        assert_eq!(
            left.count(&mut known, &mut pool, is_other_letter, true),
            Some(1)
        );
        assert_eq!(
            left.count(&mut known, &mut pool, is_other_letter, false),
            Some(0)
        );
        // What depends on two bytes is not known.
        let same = pool.eq(byte, other);
        assert_eq!(left.count(&mut known, &mut pool, same, true), None);
        assert!(left.may_be(&mut known, &mut pool, same, true));
        let never = pool.constant(1, 0);
        assert!(!left.may_be(&mut known, &mut pool, never, true));
    }
}

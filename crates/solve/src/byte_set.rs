//! Which values a byte may have.

use crate::pool::{Expr, Pool};

/// A set of values of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    /// The values for which an expression of one input byte is other than zero.
    pub fn of(pool: &Pool, e: Expr) -> ByteSet {
        let mut words = [0; 4];
        for (value, result) in pool.eval_byte(e).into_iter().enumerate() {
            words[value / 64] |= u64::from(result != 0) << (value % 64);
        }
        ByteSet(words)
    }

    /// What is in both.
    pub fn and(self, other: ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|n| self.0[n] & other.0[n]))
    }

    /// What is not in it.
    pub fn not(self) -> ByteSet {
        ByteSet(self.0.map(|word| !word))
    }

    /// Whether nothing is left.
    pub fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    /// How many values are in it.
    pub fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether a value is in it.
    pub fn has(self, value: u8) -> bool {
        self.0[usize::from(value / 64)] >> (value % 64) & 1 == 1
    }

    /// One of them: what people would write if there is such a one, because programs that read text
    /// are most likely to do something with that. 0 if there is none.
    pub fn nicest(self) -> u8 {
        let found = ByteSet::by_niceness().find(|value| self.has(*value));
        found.unwrap_or(0)
    }

    /// All values, some of them twice: first what people would write. The digit 0 comes after the
    /// others: many programs do not compute with it, but know what it is once they have compared
    /// it.
    pub fn by_niceness() -> impl Iterator<Item = u8> {
        let text = (b'1'..=b'9')
            .chain([b'0'])
            .chain(b'a'..=b'z')
            .chain(b'A'..=b'Z');
        let marks = [b' ', b'\n'].into_iter().chain(b'!'..=b'~');
        text.chain(marks).chain(0..=255)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_those_of_their_expressions() {
        let mut pool = Pool::new();
        let byte = pool.input(5);
        let limit = pool.constant(8, 58);
        let below = pool.ult(byte, limit);
        let set = ByteSet::of(&pool, below);
        assert!((0..=255).all(|value| set.has(value) == (value < 58)));
        let other = pool.not(below);
        let other = ByteSet::of(&pool, other);
        assert!(set.and(other).is_empty() && !set.is_empty());
        assert_eq!((set.nicest(), other.nicest()), (b'1', b'a'));
        let high = pool.constant(8, 200);
        let above = pool.ult(high, byte);
        assert_eq!(ByteSet::of(&pool, above).nicest(), 201);
    }
}

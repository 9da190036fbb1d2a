//! The random numbers of all tests.
//!
//! One small generator (Vigna's xorshift64*, seeded by the finisher of splitmix64), the same on
//! every machine and in every version, so that a seed that a failure prints is enough to repeat it.
//! It is no dependency of the tool: only tests, benchmarks and examples use it.
//!
//! Changing the numbers changes what every test tries: seeds that are named in comments and
//! regression tests would lose their meaning. A test pins them.
//!
//! ```
//! use brownout_random::Random;
//! let mut random = Random::new(17);
//! let dice: Vec<u64> = (0..3).map(|_| random.below(6) + 1).collect();
//! assert!(dice.iter().all(|eyes| (1..=6).contains(eyes)));
//! assert_eq!(Random::new(17).below(6) + 1, dice[0]);
//! ```
#![no_std]

/// A sequence of numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From any seed; neighbouring seeds give unrelated sequences.
    pub fn new(seed: u64) -> Random {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random((z ^ (z >> 31)) | 1)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number smaller than `bound`, which is at most 2^48: the low bits are the weakest, and are
    /// not used.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.bits() >> 16) % bound
    }

    /// An index into something of this length.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from `from` on, smaller than `to`.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from) as u64) as i64
    }

    /// Yes, in so many of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Fills a buffer.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let value = self.bits().to_le_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// Seeds that failures have printed must go on to mean the same.
    #[test]
    fn a_seed_means_the_same_for_ever() {
        let first = |seed| Random::new(seed).bits();
        assert_eq!(
            [0, 1, 17].map(first),
            [
                0x7bbc_b40d_5506_82d0,
                0x4b46_a55d_f361_1b9b,
                0x3e86_b22e_bcc5_0a13
            ]
        );
    }

    #[test]
    fn numbers_are_within_bounds_and_reach_them() {
        let mut random = Random::new(3);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[random.index(10)] += 1;
            assert!((-5..7).contains(&random.between(-5, 7)));
        }
        assert!(
            seen.iter().all(|times| (800..1200).contains(times)),
            "{seen:?}"
        );
        assert!(!random.percent(0) && random.percent(100));
    }

    #[test]
    fn buffers_of_any_length_are_filled() {
        let mut bytes = [0u8; 29];
        Random::new(1).fill(&mut bytes);
        assert!(bytes.iter().filter(|byte| **byte == 0).count() < 5);
    }
}

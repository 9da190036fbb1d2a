//! Ranges that are never judged.
//!
//! libpmemobj excludes every lock that it keeps in the pool, so there may be as many ranges as objects, and every store asks. A
//! filter over cache lines answers most of these questions without a search.
//!
//! Guarantee: the filter says "perhaps" for every line of a range that was put in; what it says beyond that is settled by the ranges.

use brownout_model::{ByteRange, LINE_BYTES};
use brownout_trace::event::TargetAddr;

use crate::ranges::RangeSet;

/// Words of the smallest filter.
const WORDS_MIN: usize = 16;
/// Ranges of more lines than these do not go into the filter.
const NARROW_LINES_MAX: u64 = 1024;
/// Bits of the filter for each line in it, at least: one question in as many is answered wrongly.
const BITS_PER_LINE: usize = 16;

/// A set of ranges, quick to say no.
#[derive(Debug)]
pub struct Excluded {
    is_empty: bool,
    ranges: RangeSet,
    /// A bit for each line, by a hash of it; the length is a power of two.
    filter: Vec<u64>,
    /// Lines in the filter.
    lines: usize,
    /// All ranges that are not in the filter lie between these.
    wide: (u64, u64),
}

impl Default for Excluded {
    fn default() -> Self {
        Excluded {
            is_empty: true,
            ranges: RangeSet::default(),
            filter: vec![0; WORDS_MIN],
            lines: 0,
            wide: NOTHING,
        }
    }
}

const NOTHING: (u64, u64) = (u64::MAX, 0);

impl Excluded {
    /// Word and bit of a line.
    #[inline]
    fn place(&self, line: u64) -> (usize, u64) {
        let hash = line.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (hash >> 32) as usize & (self.filter.len() - 1);
        (word, 1 << (hash >> 26 & 63))
    }

    /// Puts a range in.
    pub fn insert(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        self.ranges.insert(range, ());
        self.is_empty = false;
        if !is_narrow(range) {
            return self.widen(range);
        }
        let (first, last) = lines(range);
        self.lines += (last - first + 1) as usize;
        if self.lines * BITS_PER_LINE > self.filter.len() * 64 {
            self.grow();
        }
        self.set(first, last);
    }

    fn set(&mut self, first: u64, last: u64) {
        for line in first..=last {
            let (word, bit) = self.place(line);
            self.filter[word] |= bit;
        }
    }

    fn widen(&mut self, range: ByteRange) {
        let (start, end) = (range.start().0, range.end().0);
        self.wide = (self.wide.0.min(start), self.wide.1.max(end));
    }

    fn grow(&mut self) {
        let everything = ByteRange::new(TargetAddr(0), u64::MAX);
        let all = self.ranges.overlapping(everything).map(|(range, ())| range);
        // Neighbours have become one, which may be wide.
        let (narrow, wide): (Vec<_>, Vec<_>) = all.partition(|range| is_narrow(*range));
        for range in wide {
            self.widen(range);
        }
        let narrow: Vec<(u64, u64)> = narrow.into_iter().map(lines).collect();
        let count = narrow.iter().map(|(first, last)| last - first + 1);
        self.lines = count.sum::<u64>() as usize;
        let bits = (self.lines * BITS_PER_LINE * 2).next_power_of_two();
        self.filter = vec![0; (bits / 64).max(WORDS_MIN)];
        for (first, last) in narrow {
            self.set(first, last);
        }
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: ByteRange) {
        if self.is_empty {
            return;
        }
        self.ranges.remove(range);
        if self.ranges.is_empty() {
            *self = Excluded::default();
        }
    }

    /// True if part of `range` is in it.
    #[inline(always)]
    pub fn overlaps(&self, range: ByteRange) -> bool {
        !self.is_empty && self.perhaps(range) && self.ranges.overlaps(range)
    }

    #[inline]
    fn perhaps(&self, range: ByteRange) -> bool {
        let (first, last) = lines(range);
        if range.start().0 < self.wide.1 && range.end().0 > self.wide.0 {
            return true;
        }
        let is_in = |line| {
            let (word, bit) = self.place(line);
            self.filter[word] & bit != 0
        };
        // Longer ranges are rare, and a search is no dearer than they are.
        is_in(first) || last > first && (last - first >= 8 || (first + 1..=last).any(is_in))
    }

    /// The parts of `range` that are not in it, in address order.
    pub fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        self.ranges.gaps(range)
    }
}

fn is_narrow(range: ByteRange) -> bool {
    let (first, last) = lines(range);
    last - first < NARROW_LINES_MAX
}

/// First and last line of a range with bytes.
#[inline]
fn lines(range: ByteRange) -> (u64, u64) {
    let last = range.end().0.saturating_sub(1).max(range.start().0);
    (range.start().0 / LINE_BYTES, last / LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(start: u64, len: u64) -> ByteRange {
        ByteRange::new(TargetAddr(start), len)
    }

    /// Against the plain set, through growth, wide ranges, neighbours that join, and removals.
    #[test]
    fn says_what_the_ranges_say() {
        let mut excluded = Excluded::default();
        let mut plain = RangeSet::default();
        let mut key = 1u64;
        let mut random = |below: u64| {
            key = key
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (key >> 33) % below
        };
        let mut said = [0, 0];
        for round in 0..20_000u64 {
            let start = random(1 << 22);
            let len = match random(500) {
                0 => 64 * NARROW_LINES_MAX + random(1 << 17),
                n => n % 130,
            };
            match random(4) {
                0 | 1 => {
                    excluded.insert(r(start, len));
                    plain.insert(r(start, len), ());
                }
                _ => {
                    excluded.remove(r(start, len * 3));
                    plain.remove(r(start, len * 3));
                }
            }
            for _ in 0..8 {
                let asked = r(random(1 << 23), 1 + random(900));
                let overlaps = excluded.overlaps(asked);
                assert_eq!(
                    overlaps,
                    plain.overlaps(asked),
                    "{asked:?} in round {round}"
                );
                assert_eq!(excluded.gaps(asked), plain.gaps(asked));
                said[usize::from(overlaps)] += 1;
            }
        }
        assert!(said.iter().all(|n| *n > 1000), "{said:?}");
        let all = r(0, u64::MAX);
        excluded.remove(all);
        assert!(!excluded.overlaps(all) && excluded.filter.len() == WORDS_MIN);
    }
}

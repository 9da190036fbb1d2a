//! Ranges that are never judged.
//!
//! libpmemobj excludes every lock that it keeps in the pool, so there may be as many ranges as
//! objects, and every store asks. Small ranges are kept as bytes of cache lines, and a filter over
//! lines answers most questions at once.
//!
//! Guarantee: the filter says "perhaps" for every line of a small range that was put in; what it
//! says beyond that is settled by the lines.

use brownout_model::{ByteRange, Key, LINE_BYTES};
use rustc_hash::FxHashMap;

use crate::ranges::RangeSet;

/// Words of the smallest filter.
const WORDS_MIN: usize = 16;
/// Ranges of so many lines are kept as ranges.
const WIDE_LINES_MIN: u64 = 1024;
/// Bits of the filter for each line in it, at least: one question in as many is answered wrongly.
const BITS_PER_LINE: usize = 16;

/// A set of bytes, quick to say no.
#[derive(Debug)]
pub struct Excluded {
    is_empty: bool,
    /// A bit for each of `lines`, by a hash of it; the length is a power of two.
    filter: Vec<u64>,
    /// Bytes of lines: one bit each.
    lines: FxHashMap<u64, u64>,
    wide: RangeSet,
}

impl Default for Excluded {
    fn default() -> Self {
        Excluded {
            is_empty: true,
            filter: vec![0; WORDS_MIN],
            lines: FxHashMap::default(),
            wide: RangeSet::default(),
        }
    }
}

impl Excluded {
    /// Puts a range in.
    pub fn insert(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        self.is_empty = false;
        let (first, last) = lines(range);
        if last - first >= WIDE_LINES_MIN {
            self.wide.insert(range, ());
            return;
        }
        for line in first..=last {
            *self.lines.entry(line).or_default() |= bytes(range, line);
            let (word, bit) = self.place(line);
            self.filter[word] |= bit;
        }
        if self.lines.len() * BITS_PER_LINE > self.filter.len() * 64 {
            self.grow();
        }
    }

    fn grow(&mut self) {
        self.filter = vec![0; self.filter.len() * 4];
        for line in self.lines.keys() {
            let (word, bit) = self.place(*line);
            self.filter[word] |= bit;
        }
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: ByteRange) {
        if self.is_empty || range.is_empty() {
            return;
        }
        self.wide.remove(range);
        let (first, last) = lines(range);
        if last - first < self.lines.len() as u64 {
            for line in first..=last {
                if let Some(kept) = self.lines.get_mut(&line) {
                    *kept &= !bytes(range, line);
                    if *kept == 0 {
                        self.lines.remove(&line);
                    }
                }
            }
        } else {
            self.lines.retain(|line, kept| {
                if (first..=last).contains(line) {
                    *kept &= !bytes(range, *line);
                }
                *kept != 0
            });
        }
        if self.lines.is_empty() && self.wide.is_empty() {
            *self = Excluded::default();
        }
    }

    /// True if part of `range` is in it.
    #[inline(always)]
    pub fn overlaps(&self, range: ByteRange) -> bool {
        !self.is_empty && self.perhaps(range) && self.has_part_of(range)
    }

    /// Word and bit of a line in the filter.
    #[inline(always)]
    fn place(&self, line: u64) -> (usize, u64) {
        let hash = line.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (hash >> 32) as usize & (self.filter.len() - 1);
        (word, 1 << (hash >> 26 & 63))
    }

    #[inline(always)]
    fn perhaps(&self, range: ByteRange) -> bool {
        let (first, last) = lines(range);
        let (word, bit) = self.place(first);
        // Ranges of several lines are rare, and looking closer is no dearer than they are.
        self.filter[word] & bit != 0 || last > first || !self.wide.is_empty()
    }

    #[inline(never)]
    fn has_part_of(&self, range: ByteRange) -> bool {
        let (first, last) = lines(range);
        !range.is_empty()
            && (self.wide.overlaps(range) || (first..=last).any(|line| self.kept(range, line) != 0))
    }

    /// The bytes of `range` in `line` that are in it as such.
    fn kept(&self, range: ByteRange, line: u64) -> u64 {
        let (word, bit) = self.place(line);
        match self.filter[word] & bit != 0 {
            true => self
                .lines
                .get(&line)
                .map_or(0, |kept| kept & bytes(range, line)),
            false => 0,
        }
    }

    /// The parts of `range` that are not in it, in address order.
    pub fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps: Vec<ByteRange> = Vec::new();
        let (first, last) = lines(range);
        for line in first..=last {
            let mut left = bytes(range, line) & !self.kept(range, line);
            while left != 0 {
                let from = left.trailing_zeros();
                let len = (left >> from).trailing_ones();
                left &= !bits(from.into(), len.into());
                let start = Key(line * LINE_BYTES + u64::from(from));
                let gap = ByteRange::new(start, len.into());
                match gaps.last_mut() {
                    Some(before) if before.end() == start => {
                        *before = ByteRange::new(before.start(), before.len() + gap.len());
                    }
                    _ => gaps.push(gap),
                }
            }
        }
        match self.wide.is_empty() {
            true => gaps,
            false => gaps
                .into_iter()
                .flat_map(|gap| self.wide.gaps(gap))
                .collect(),
        }
    }
}

/// First and last line of a range with bytes.
#[inline(always)]
fn lines(range: ByteRange) -> (u64, u64) {
    let last = range.end().0.saturating_sub(1).max(range.start().0);
    (range.start().0 / LINE_BYTES, last / LINE_BYTES)
}

/// The bytes of `range` in `line`.
fn bytes(range: ByteRange, line: u64) -> u64 {
    let base = line * LINE_BYTES;
    let from = range.start().0.max(base);
    let to = range.end().0.min(base.saturating_add(LINE_BYTES));
    match from < to {
        true => bits(from - base, to - from),
        false => 0,
    }
}

fn bits(first: u64, len: u64) -> u64 {
    (u64::MAX >> (LINE_BYTES - len)) << first
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_random::Random;

    fn r(start: u64, len: u64) -> ByteRange {
        ByteRange::new(Key(start), len)
    }

    /// Against the plain set, through growth, wide ranges, neighbours that join, and removals.
    #[test]
    fn says_what_the_ranges_say() {
        let mut excluded = Excluded::default();
        let mut plain = RangeSet::default();
        let mut numbers = Random::new(1);
        let mut random = |below| numbers.below(below);
        let mut said = [0, 0];
        for round in 0..20_000u64 {
            let start = random(1 << 22);
            let len = match random(500) {
                0 => 64 * WIDE_LINES_MIN + random(1 << 17),
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
